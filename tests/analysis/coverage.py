#!/usr/bin/env python3
"""coverage.py BUILD -- how many lines of each layer of app/ were executed, from the counters in a build with COVERAGE=1.

Prints a line for each layer, then "N passed, N failed", where a file of app/ passes when any line of it was executed.
"""
import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def reports(build):
    """gcov's report of each object. Objects that never ran have notes (gcno) but no counters: gcov counts nothing there."""
    notes = [str(path.resolve()) for path in sorted(build.glob("app/**/*.gcno"))]
    with tempfile.TemporaryDirectory() as folder:
        # --hash-filenames: objects of one name in two folders
        subprocess.run(["gcov", "--json-format", "--hash-filenames", *notes], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for path in pathlib.Path(folder).glob("*.gcov.json.gz"):
            yield json.loads(gzip.decompress(path.read_bytes()))


def executed_lines(build):
    """{file: {line: how often}}; an inline function of a header counts in whichever object it ran."""
    files = collections.defaultdict(collections.Counter)
    for report in reports(build):
        for file in report["files"]:
            path = pathlib.Path(report["current_working_directory"], file["file"])
            if path.is_relative_to(ROOT / "app"):
                for line in file["lines"]:
                    files[path.relative_to(ROOT).as_posix()][line["line_number"]] += line["count"]
    return files


def main(build):
    files = executed_lines(pathlib.Path(build))
    # A file of nothing but tables has no line that could be executed, and is not in the report.
    never = [file for file, lines in sorted(files.items()) if not any(lines.values())]
    layers = collections.defaultdict(lambda: [0, 0])
    for file, lines in files.items():
        sums = layers[file.split("/")[1]]
        sums[0] += sum(1 for count in lines.values() if count)
        sums[1] += len(lines)
    layers["all"] = [sum(column) for column in zip(*layers.values())] or [0, 0]
    for layer, (executed, lines) in layers.items():
        print(f"{layer:<10} {100 * executed / max(lines, 1):5.1f} % of {lines} lines")
    for file in never:
        print(f"{file}: never executed")
    failed = len(never) or (not files)
    print(f"{len(files) - len(never)} passed, {int(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
