#!/usr/bin/env python3
"""How much of this machine's processors other machines on the same hardware take: what /proc/stat calls steal.

Until it is killed, or its parent is gone: every ten seconds a line, what share they took of the time that was wanted of them, in
per cent.
"""
import os
import pathlib
import sys
import time

LINE_S = 10


def ticks():
    """(taken by others, wanted)"""
    user, nice, system, _idle, _iowait, irq, softirq, stolen = (
        int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return stolen, user + nice + system + irq + softirq + stolen


def share(before):
    """Of the time that was wanted."""
    stolen, wanted = (now - then for now, then in zip(ticks(), before))
    return 100 * stolen // wanted if wanted else 0


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    parent = os.getppid()
    while os.getppid() == parent:
        before = ticks()
        time.sleep(LINE_S)
        print(share(before), flush=True)
