"""Faults at the service's own processes: they are killed, sleep, die at named points, get successors under load."""
import contextlib
import datetime
import os
import pathlib
import re
import signal
import time

import pymongo
import pymongo.errors

from fault import Fault, NotNow, Row
from halves import SLOTS, dies_half_way
from stack import ROOT, age_s, children, state_of, wait_until

GONE_S = 180  # for the kernel to do it, on a busy machine
LIVED_S = 1.1  # who lived so long is replaced at once when it dies
SLEEP_S = (2.5, 6.0)  # longer than the workload's holds live
GROUPS = ("worker", "reporter", "runner", "deliverer")
POINTS = re.findall(r'X\(\w+, "(\w+)"\)', (ROOT / "app/base/crash.h").read_text())
SELDOM = {"parts": (3, 20), "checkpoint": (2, 8)}  # passed once for many batches
OFTEN = (20, 120)  # a worker dies the so many-th time that it passes a point
PASSED_S = 60
RELOAD_S = 15
CLAIMED_S = 10  # for a job to come, of those that the workload gives
OFTEN_WRITTEN = "[worker]\ncheckpoint_ms = 50\n"


def grown_up(stack, group):
    """[(name, pid)] of those of this group that have lived for a while."""
    found = []
    for path in sorted((stack.var / "run").glob(f"{group}*.pid")):
        pid = stack.pid(path.stem)
        try:
            if pid and state_of(pid) not in ("T", None) and age_s(pid) > LIVED_S:
                found.append((path.stem, pid))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just died
    return found


class ProcessFault(Fault):
    """One at processes of the service, which may die of another fault at any moment."""

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError as e:
            raise NotNow from e


class Kill(ProcessFault):
    """kill -9 of one, or all, of a group."""

    def __init__(self, stack, group, every=False):
        super().__init__(stack)
        self.group, self.every = group, every

    def start(self, chance):
        ready = grown_up(self.stack, self.group)
        if not ready:
            raise NotNow
        chosen = ready if self.every else [chance.choice(ready)]
        at = time.monotonic()
        for _, pid in chosen:
            with contextlib.suppress(ProcessLookupError):  # it has died of another fault
                os.kill(pid, signal.SIGKILL)
        for name, pid in chosen:
            wait_until(f"{name} to be gone", lambda: state_of(pid) is None, GONE_S, every=0.001)
            self.happened(name, at)


class KillAtWork(Kill):
    """kill -9 of the job runner in the middle of a job: it had claimed one, and neither ended it nor put it off."""

    def start(self, chance):
        ready = grown_up(self.stack, self.group)
        if not ready:
            raise NotNow
        _, pid = ready[0]
        log = self.stack.var / "log" / "coupond.log"
        read = log.stat().st_size

        def said(event):
            with log.open("rb") as lines:
                lines.seek(read)
                return re.findall(rf"pid={pid} event=job\.{event} job=(\S+)".encode(), lines.read())

        try:
            wait_until("a job to be claimed", lambda: said("claimed"), CLAIMED_S, every=0.002)
        except AssertionError as e:
            raise NotNow from e
        at = time.monotonic()
        self.signal(pid, signal.SIGKILL)
        wait_until("the job runner to be gone", lambda: state_of(pid) is None, GONE_S, every=0.001)
        for job in set(said("claimed")) - set(said("finished")) - set(said("lost")):
            if self.was_put_off(job.decode()) is False:
                self.happened(f"in job {job.decode()}", at)

    def was_put_off(self, job):
        """None: the database is away."""
        try:
            with pymongo.timeout(30):
                return self.stack.database.jobs.find_one({"_id": job, "state": "queued"}) is not None
        except pymongo.errors.PyMongoError:
            return None


class Sleep(ProcessFault):
    """SIGSTOP of one of a group; it wakes, by SIGCONT, when others have long taken over what it was about to do."""

    def __init__(self, stack, group):
        super().__init__(stack)
        self.group, self.pid, self.until = group, None, 0

    def start(self, chance):
        ready = grown_up(self.stack, self.group)
        if not ready:
            raise NotNow
        name, self.pid = chance.choice(ready)
        self.signal(self.pid, signal.SIGSTOP)
        at = time.monotonic()
        self.until = at + SLEEP_S[0]
        wait_until(f"{name} to stand still", lambda: state_of(self.pid) in ("T", None), GONE_S, every=0.001)
        if state_of(self.pid) == "T":
            self.happened(name, at)

    def heal(self):
        """Also where all is healed early, it sleeps longer than holds live."""
        if state_of(self.pid) == "T":
            time.sleep(max(0, self.until - time.monotonic()))
            os.kill(self.pid, signal.SIGCONT)


def is_leaving(pid):
    """nginx's worker is gone, or ends when it has answered."""
    try:
        return state_of(pid) is None or b"shutting down" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return True


class Reload(Fault):
    """SIGHUP to nginx's or coupond's master: successors come, who is busy ends in peace. It happened when all of nginx's
    workers have been asked to end, or coupond says so: it may refuse, where no database answers just then."""

    def __init__(self, stack, master):
        super().__init__(stack)
        self.master = master

    def start(self, chance):
        self.happened(at=self.reload())

    def reload(self):
        """The moment of it."""
        pid = self.stack.pid(self.master)
        before, read = children(pid), len(self.stack.log())

        def turned():
            if self.master == "nginx":
                return before and all(map(is_leaving, before)) and "done"
            said = re.search(r"event=reload\.(done|refused)", self.stack.log()[read:])
            return said and said[1]

        at = time.monotonic()
        os.kill(pid, signal.SIGHUP)
        try:
            how = wait_until(f"{self.master} to reload", turned, RELOAD_S, every=0.02)
        except AssertionError as e:
            raise NotNow from e
        if how != "done":
            raise NotNow
        return at


class KillFront(ProcessFault):
    """kill -9 of one of nginx's workers: its clients lose their connections, and do not learn what they got."""

    def start(self, chance):
        master = self.stack.pid("nginx")
        before = children(master)
        serving = [pid for pid in before if not is_leaving(pid)]
        if not serving:
            raise NotNow
        pid = chance.choice(serving)
        at = time.monotonic()
        self.signal(pid, signal.SIGKILL)
        wait_until("a worker of nginx to be gone", lambda: state_of(pid) is None, GONE_S, every=0.001)
        wait_until("its successor", lambda: set(children(master)) - set(before), GONE_S, every=0.001)
        self.happened(at=at)


class Restart(Fault):
    """scripts/restart: another coupond takes over while all goes on."""

    def start(self, chance):
        before = self.stack.pid("coupond")
        at = time.monotonic()
        done = self.stack.script("restart")
        assert done.returncode == 0, f"scripts/restart: exit {done.returncode}\n{done.stdout}"
        assert self.stack.pid("coupond") not in (None, before), "it is the old one"
        self.happened(at=at)


class KillMaster(Fault):
    """kill -9 of coupond itself: all its processes go with it. scripts/run starts it again."""

    def start(self, chance):
        at, pids = self.again()
        for name, pid in pids.items():
            assert self.stack.pid(name) != pid, f"{name} outlived its master"
        self.happened(at=at)

    def again(self):
        """The moment, and who lived until then."""
        master, pids = self.stack.pid("coupond"), self.stack.pids()
        at = time.monotonic()
        os.kill(master, signal.SIGKILL)
        everybody = [pid for pid in (master, *pids.values()) if pid]
        wait_until("all of coupond to be gone", lambda: not any(map(state_of, everybody)), GONE_S)
        done = self.stack.script("run", "--detach")
        assert done.returncode == 0, f"scripts/run --detach: exit {done.returncode}\n{done.stdout}"
        return at, pids


class CrashPoint(KillMaster):
    """Workers die when they have passed a point so often, and so do their successors, until coupond does."""

    def __init__(self, stack, point):
        super().__init__(stack)
        self.point, self.read = point, 0

    def start(self, chance):
        self.read = len(self.stack.log())
        self.stack.environment["COUPONS_CRASH_POINT"] = f"{self.point}:{chance.randint(*SELDOM.get(self.point, OFTEN))}"
        self.again()

    def heal(self):
        """Not before it happened: on a busy machine it takes its time until workers have passed the point so often."""
        with contextlib.suppress(AssertionError):  # then it is another spell's turn
            wait_until(f"a worker to die at {self.point}", self._deaths, PASSED_S, every=0.05)
        self.stack.environment.pop("COUPONS_CRASH_POINT", None)
        self.again()
        now, wall = time.monotonic(), time.time()
        for text in self._deaths():
            self.happened(at=now - (wall - datetime.datetime.fromisoformat(text).timestamp()))

    def _deaths(self):
        """Their times, since it was started."""
        return re.findall(rf"^(\S+) .*event=crash\.point .*name={self.point}$", self.stack.log()[self.read:], re.M)


class HalfWritten(CrashPoint):
    """Where a checkpoint is half written, that is seen from outside: everybody who would write the rest sleeps meanwhile."""

    def __init__(self, stack, point):
        super().__init__(stack, point)
        self.coupon = None

    def start(self, chance):
        try:
            self.coupon = self.coupon or self.stack.coupon(slots=SLOTS)
        except (AssertionError, OSError) as e:
            raise NotNow from e
        super().start(chance)
        dies_half_way(self.stack, self.coupon)  # or fails; the moment is in the log


ROWS = {
    "kill a worker": Row(Kill, {"group": "worker"}),
    "kill all workers": Row(Kill, {"group": "worker", "every": True}),
    "kill the reporter": Row(Kill, {"group": "reporter"}),
    "kill the job runner": Row(KillAtWork, {"group": "runner"}),
    "kill the webhook sender": Row(Kill, {"group": "deliverer"}),
    "a worker sleeps": Row(Sleep, {"group": "worker"}, SLEEP_S, frozenset(["worker"])),
    "the reporter sleeps": Row(Sleep, {"group": "reporter"}, SLEEP_S, frozenset(["reporter"])),
    "the job runner sleeps": Row(Sleep, {"group": "runner"}, SLEEP_S, frozenset(["runner"])),
    "the webhook sender sleeps": Row(Sleep, {"group": "deliverer"}, SLEEP_S, frozenset(["deliverer"])),
    "coupond reloads": Row(Reload, {"master": "coupond"}, holds=frozenset(GROUPS)),  # it waits for each of them
    "nginx reloads": Row(Reload, {"master": "nginx"}),
    "kill a worker of nginx": Row(KillFront),
    "kill coupond": Row(KillMaster, holds=frozenset(GROUPS)),
    "coupond is replaced": Row(Restart, holds=frozenset(GROUPS)),
}
CRASHES = {f"a worker dies at point {point}":
           Row(HalfWritten if point == "parts" else CrashPoint, {"point": point}, (5, 9), frozenset(GROUPS),
               settings=OFTEN_WRITTEN) for point in POINTS}
