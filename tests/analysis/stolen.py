#!/usr/bin/env python3
"""How much of this machine's processors other machines on the same hardware take: what /proc/stat calls steal.

stolen.py watch    until it is killed, or its parent is gone: every ten seconds a line, what share they took of the time
                   that was wanted of them, in per cent
stolen.py await S  ends when they leave a busy processor alone, or after S seconds
"""
import os
import pathlib
import sys
import time

LINE_S = 10
TRY_S = 2  # of work, to see how much of it is held up
PAUSE_S = 20  # between two tries
LEFT_ALONE = 15  # per cent


def ticks():
    """(taken by others, wanted)"""
    user, nice, system, _idle, _iowait, irq, softirq, stolen = (
        int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return stolen, user + nice + system + irq + softirq + stolen


def share(before):
    """Of the time that was wanted."""
    stolen, wanted = (now - then for now, then in zip(ticks(), before))
    return 100 * stolen // wanted if wanted else 0


def watch():
    parent = os.getppid()
    while os.getppid() == parent:
        before = ticks()
        time.sleep(LINE_S)
        print(share(before), flush=True)


def wait(seconds):
    end = time.monotonic() + seconds
    while True:
        before, work = ticks(), time.monotonic() + TRY_S
        while time.monotonic() < work:
            pass
        if share(before) < LEFT_ALONE or time.monotonic() + PAUSE_S > end:
            return
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    if sys.argv[1:] == ["watch"]:
        watch()
    elif len(sys.argv) == 3 and sys.argv[1] == "await":
        wait(float(sys.argv[2]))
    else:
        sys.exit(__doc__)
