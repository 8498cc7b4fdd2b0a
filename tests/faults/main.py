"""tests/faults/run, after its packages are there: plays mixes, overloads, soaks; checks what came of it, prints the figures."""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "service")]

from check import INVARIANTS, check  # noqa: E402
from evidence import Violation  # noqa: E402
from figures import LOOKED_AT, added_up, figures_of, table  # noqa: E402
from history import History  # noqa: E402
from mixes import FAULTS, MIXES  # noqa: E402
from overload import measure, shortcomings, wrong  # noqa: E402
from rounds import play  # noqa: E402
from soak import soak  # noqa: E402

SHOWN = 20  # violations of a mix
OVERLOAD_S, SOAK_MINUTES = 8, 30  # of --long


def arguments():
    parser = argparse.ArgumentParser(
        prog="tests/faults/run",
        description="Break a loaded service in many ways at once, and check that its promises hold.")
    parser.add_argument("--long", action="store_true",
                        help=f"every mix at full length, an overload, and a soak of {SOAK_MINUTES} minutes: about two hours")
    parser.add_argument("--mix", action="append", choices=sorted(MIXES), help="this one; may be repeated")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="NAME",
                        help="instead of the mix's, this one; may be repeated")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6),
                        help="of everything random, but for time itself")
    parser.add_argument("--minutes", type=float, help="of faults in each mix")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead: at 70 %% of the peak, with memory and latency flat")
    parser.add_argument("--overload", type=float, metavar="SECONDS", help="instead: the queue at twice the load that it can take")
    parser.add_argument("--json", metavar="FILE", help="write the figures of the mixes there")
    parser.add_argument("--keep", metavar="DIRECTORY", help="keep the histories there")
    parser.add_argument("--check", nargs="+", metavar="HISTORY", help="check these histories again instead")
    parser.add_argument("--sum", nargs="+", metavar="FILE", help="add up figures of earlier runs instead")
    asked = parser.parse_args()
    if asked.mix and (asked.soak or asked.overload):
        parser.error("--mix, or --soak and --overload")
    return asked


def seconds_of(mix, asked):
    if asked.minutes:
        return asked.minutes * 60
    return mix.long if asked.long or not mix.short else mix.short


def judge(path):
    """Check a history, and print what was found. Its figures, how many checks passed, and how many failed."""
    history = History.read(path)
    violations = check(history)
    figures = figures_of(history, violations)
    violations += [Violation(name, None, "there was nothing to look at") for name in LOOKED_AT if not figures[name]]
    print("\n".join(table(figures)))
    for violation in violations[:SHOWN]:
        print(f"VIOLATION {violation}"[:2000])
    if len(violations) > SHOWN:
        print(f"and {len(violations) - SHOWN} more")
    failed = len({violation.invariant for violation in violations})
    return figures, len(INVARIANTS) - failed, failed


def attempt(name, run):
    """What run() returns: (figures, passed, failed). An accident on the way counts as a failure too."""
    try:
        return run()
    except Exception as e:  # reported, and the next one comes
        print(f"ACCIDENT {name}: {type(e).__name__}: {str(e)[:3000]}")
        traceback.print_exc(limit=-8, file=sys.stdout)
        return None, 0, 1


def play_and_judge(name, asked, folder):
    """One mix."""
    mix, seconds = MIXES[name], seconds_of(MIXES[name], asked)
    mix = dataclasses.replace(mix, faults=tuple(asked.fault)) if asked.fault else mix
    path = folder / f"{name.replace(' ', '-')}-{asked.seed}.jsonl"
    began = time.monotonic()

    def say(text):
        if os.environ.get("COUPONS_FAULTS_VERBOSE"):
            print(f"  {time.monotonic() - began:7.2f} {text}", flush=True)

    tell(f"== {name}, {seconds:.0f} s, seed {asked.seed}")
    play(name, mix, asked.seed, seconds, path, say)
    return judge(path)


def tell(line):
    print(line, flush=True)


def counted(complaints):
    for complaint in complaints:
        print(f"VIOLATION {complaint}"[:2000])
    return None, int(not complaints), len(complaints)


def overload(seconds):
    tell(f"== twice the load that the queue takes, {seconds:.0f} s")
    seen = measure(seconds)
    tell(str(seen))
    return counted(wrong(seen) + shortcomings(seen))


def long_load(minutes):
    tell(f"== soak, {minutes:g} minutes")
    return counted(soak(minutes, tell))


def all_asked(asked, folder):
    """Do what is asked for: [(figures of a mix, passed, failed)]"""
    if asked.check:
        return [judge(path) for path in asked.check]
    whole = asked.long and not (asked.mix or asked.fault or asked.minutes or asked.overload or asked.soak)
    names = asked.mix or [name for name, mix in MIXES.items() if asked.long or mix.short]
    if asked.overload or asked.soak:
        names = []
    results = [attempt(name, lambda name=name: play_and_judge(name, asked, folder)) for name in names]
    if asked.overload or whole:
        results.append(attempt("overload", lambda: overload(asked.overload or OVERLOAD_S)))
    if asked.soak or whole:
        results.append(attempt("soak", lambda: long_load(asked.soak or SOAK_MINUTES)))
    return results


def end(*_):
    """As an exception, so that what was started is stopped; whoever asks twice does not keep it from that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("ended")


def main():
    signal.signal(signal.SIGTERM, end)
    asked = arguments()
    if asked.sum:
        total = added_up([run for file in asked.sum for run in json.loads(pathlib.Path(file).read_text())])
        print("\n".join(table(total)))
        return bool(total["violations"])
    if asked.keep:
        pathlib.Path(asked.keep).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="coupons-faults-") as folder:
        results = all_asked(asked, pathlib.Path(asked.keep or folder))
    runs = [figures for figures, _, _ in results if figures]
    if len(runs) > 1:
        print("== all of them")
        print("\n".join(table(added_up(runs))))
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(runs))
    passed, failed = (sum(result[i] for result in results) for i in (1, 2))
    print(f"{passed} passed, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
