"""pytest_sum.py FILE -- append to what `pytest -rs` printed: why tests were skipped, and "N passed, N failed[, N skipped]"."""
import collections
import pathlib
import re
import sys

NOT_COUNTED = ("warning", "warnings", "deselected")


def said_of(line):
    """A line of `SKIPPED [1] tests/x.py:12: why`; what could not be measured says so itself."""
    measured = line.find("not measured: ")
    return line[measured:] if measured >= 0 else f"skipped: {line.split('] ', 1)[1]}"


def added(text):
    """The lines, of pytest's last one: "3 failed, 40 passed, 1 skipped in 12.3s". Whatever else is counted there has failed."""
    lines = text.rstrip().splitlines() or [""]
    count = collections.Counter()
    for number, word in re.findall(r"(\d+) ([a-z]+)", lines[-1].split(" in ")[0]):
        if word not in NOT_COUNTED:
            count[word if word in ("passed", "skipped") else "failed"] += int(number)
    why = [f"figure: {said_of(line)}" for line in lines if line.startswith("SKIPPED [")]
    more = f", {count['skipped']} skipped" if count["skipped"] else ""
    return "\n".join([*why, f"{count['passed']} passed, {count['failed']} failed{more}"])


if __name__ == "__main__":
    output = pathlib.Path(sys.argv[1])
    said = output.read_text(errors="replace")
    output.write_text(f"{said.rstrip()}\n{added(said)}\n")
