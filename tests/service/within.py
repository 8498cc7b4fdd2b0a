"""What is promised within seconds is held to them, on time that the machine gave: what passed, less what it withheld.

Withheld is what other machines took of the processors (steal in /proc/stat, an average of them), and how long threads of the
processes in question were ready and had to wait for one (/proc/PID/task/TID/schedstat), added up: at most so much. Where it is more
than WITHHELD_MOST of what passed, nothing was measured: the test goes on, and in the end counts as skipped, not as passed.
What is wrong stays wrong: only lateness is excused.
"""
import contextlib
import os
import pathlib
import time

WITHHELD_MOST = 0.5  # of the time that passed
IDLE, WAITS_FOR_DISK, STOLEN = 4, 5, 8  # fields of /proc/stat

not_measured = []  # by the test that runs; conftest.py looks here


def machine_s(*fields):
    """What /proc/stat counts in these, so far: of each processor, on average."""
    counted = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(counted[field]) for field in fields) / os.sysconf("SC_CLK_TCK") / os.cpu_count()


def stolen_s():
    """By other machines."""
    return machine_s(STOLEN)


def delays_s(pids):
    """How long each thread of these has waited for a processor, so far."""
    found = {}
    for pid in pids:
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


def verdict(seconds, passed_s, withheld_s):
    """in time, late, or None: not measured."""
    if passed_s <= seconds:
        return "in time"
    if withheld_s > WITHHELD_MOST * passed_s:
        return None
    return "in time" if passed_s - withheld_s <= seconds else "late"


@contextlib.contextmanager
def within(seconds, what, pids=list):
    """The block ends within so many seconds that the machine gave; pids() are the processes that do the work, beside this one."""
    def seen():
        return time.monotonic(), stolen_s(), delays_s([os.getpid(), *pids()])

    began, stolen, delays = seen()
    yield
    now, stolen_now, delays_now = seen()
    passed_s = now - began
    withheld_s = stolen_now - stolen + sum(waited - delays.get(thread, 0) for thread, waited in delays_now.items())
    said = f"{what} took {passed_s:.2f} s, of which the machine withheld {withheld_s:.2f}; {seconds} are promised"
    found = verdict(seconds, passed_s, withheld_s)
    if found is None:
        not_measured.append(said)
    assert found != "late", said
