"""Two fronts on one database, without a load balancer; and faults at one of them."""
import contextlib
import functools
import os
import signal
import time

from fault import Fault, NotNow, Row
from processes import GONE_S, SLEEP_S, Kill, Reload
from stack import SLOW_DATABASE, Stack, children, state_of, wait_until, write_settings

BACK_S = 120
OTHER_SETTINGS = {"batch_max": (1, 16, 1000), "checkpoint_ms": (1, 100, 3000), "io_threads": (1, 4), "lanes_max": (8, 10000),
                  "redo_max": (1000, 100_000), "users_mb": (0, 64), "filters_mb": (0, 64)}


class Front(Stack):
    """On the database of another one, with its keys."""

    def __init__(self, first, settings, **how):
        super().__init__(SLOW_DATABASE + settings, **how)
        self.first = first

    def start(self):
        self.environment["MONGODB_URI"] = (self.first.var / "run" / "mongodb_uri").read_text().strip()
        if not (self.var / "keys").exists():
            (self.var / "keys").symlink_to(self.first.var / "keys")
        return super().start()


class Pair(Stack):
    """The first of two fronts, and the other one in `fronts`."""

    def __init__(self, settings, **how):
        super().__init__(SLOW_DATABASE + settings, **how)
        self.fronts = [self, Front(self, settings, **how)]

    def start(self):
        super().start()
        self.fronts[1].start()
        return self

    def stop(self):
        with contextlib.ExitStack() as undo:
            undo.callback(super().stop)
            undo.callback(self.fronts[1].stop)

    def remove(self):
        super().remove()
        self.fronts[1].remove()


class AtOne(Fault):
    """A fault of another kind, at the front that chance chooses."""

    def __init__(self, stack, kind, **options):
        super().__init__(stack)
        self.each, self.chosen = [kind(front, **options) for front in stack.fronts], None
        for number, fault in enumerate(self.each, 1):
            fault.happened = functools.partial(self.happened_at, number)

    def happened_at(self, number, note="", at=None):
        self.happened(f"front {number} {note}".strip(), at)

    def start(self, chance):
        self.chosen = chance.choice(self.each)
        self.chosen.start(chance)

    def heal(self):
        self.chosen.heal()

    def end(self):
        for fault in self.each:
            fault.end()


class End(Fault):
    """nginx or coupond of a front ends, with all its processes, and is started again later."""

    def __init__(self, stack, master, number):
        super().__init__(stack)
        self.master, self.number = master, number

    def start(self, chance):
        pid = self.stack.pid(self.master)
        if not pid:
            raise NotNow
        pids = [pid, *children(pid)]
        at = time.monotonic()
        for one in pids if self.number == signal.SIGKILL else [pid]:
            with contextlib.suppress(ProcessLookupError):  # its master has gone, and it with it
                os.kill(one, self.number)
        wait_until(f"{self.master} to be gone", lambda: not any(map(state_of, pids)), GONE_S)
        self.happened(at=at)

    def heal(self):
        done = self.stack.script("run", "--detach")
        assert done.returncode == 0, f"scripts/run --detach: exit {done.returncode}\n{done.stdout}"


class Sleep(Fault):
    """SIGSTOP of all processes of a front, the masters first, so that none is started meanwhile; then all go on. Also where all is
    healed early, it sleeps longer than holds live."""

    def start(self, chance):
        masters = [self.stack.pid(name) for name in ("nginx", "coupond")]
        if not all(masters):
            raise NotNow
        at, self.pids = time.monotonic(), []
        self.until = at + SLEEP_S[0]
        for master in masters:
            self.stop([master])
            self.stop(children(master))
        self.happened(at=at)

    def stop(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has died of another fault
                os.kill(pid, signal.SIGSTOP)
        wait_until(f"{pids} to stand still", lambda: all(state_of(pid) in ("T", None) for pid in pids), GONE_S, every=0.001)
        self.pids += pids

    def heal(self):
        time.sleep(max(0, self.until - time.monotonic()))
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class OtherSettings(Reload):
    """coupond of a front gets settings that the other one has not, and later its own again."""

    def __init__(self, stack):
        super().__init__(stack, "coupond")
        self.path = stack.var / "coupond.ini"
        self.own = self.path.read_text()

    def start(self, chance):
        other = [f"{name} = {chance.choice(values)}\n" for name, values in OTHER_SETTINGS.items()]
        write_settings(self.path, "".join([self.own, "[worker]\n", *other]))
        try:
            at = self.reload()
        except NotNow:
            self.path.write_text(self.own)
            raise
        self.happened(" ".join(line.replace(" ", "").strip() for line in other), at)

    def heal(self):
        self.path.write_text(self.own)
        wait_until("the settings of before", self.is_reloaded, BACK_S, every=0.2)

    def is_reloaded(self):
        try:
            return self.reload()
        except NotNow:
            return None


def at_one(kind, lasts_s=(0, 0), **options):
    return Row(AtOne, {"kind": kind, **options}, lasts_s, frozenset(["a front"]))


ROWS = {
    "a front's nginx is killed": at_one(End, (1, 4), master="nginx", number=signal.SIGKILL),
    "a front's coupond is killed": at_one(End, (1, 4), master="coupond", number=signal.SIGKILL),
    "a front's coupond is stopped": at_one(End, (1, 4), master="coupond", number=signal.SIGTERM),
    "a front's worker is killed": at_one(Kill, group="worker"),
    "a front sleeps": at_one(Sleep, SLEEP_S),
    "a front has other settings": at_one(OtherSettings, (2, 5)),
}
