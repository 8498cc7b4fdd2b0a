"""Faults at a worker's clocks. Its time is the primary's, carried on by its own monotonic clock."""
from fault import Fault, NotNow, Row
from interpose import HOUR_NS, Interpose
from processes import grown_up
from stack import wait_until


# Two jumps of an hour may add up: the primary's clock, of which a worker then has the hour that its own has gone.
SLACK_MS = 2 * HOUR_NS // 10**6 + 300_000


class WorkerJumps(Fault):
    """The wall clock of one worker jumps by so many hours, as when somebody sets it, and later back; with `all_clocks` the
    monotonic one jumps too, as when a machine has slept: that one never goes back."""

    def __init__(self, stack, hours, all_clocks=False):
        super().__init__(stack)
        self.hours, self.all_clocks, self.pid = hours, all_clocks, None
        self.interpose = Interpose(stack.var)

    def start(self, chance):
        ready = grown_up(self.stack, "worker")
        if not ready:
            raise NotNow
        name, self.pid = chance.choice(ready)
        hours = chance.choice(self.hours)
        mono_ns = self.interpose.get(self.pid, "mono_skew_ns") + (hours * HOUR_NS if self.all_clocks else 0)
        self.interpose.set(self.pid, skew_ns=hours * HOUR_NS, mono_skew_ns=mono_ns)

        def looked():
            return self.interpose.count(self.pid) or self.pid != self.stack.pid(name)

        wait_until(f"{name} to look at its clock", looked, 10)
        if self.interpose.count(self.pid):
            self.happened(f"{name} {hours:+} h")

    def heal(self):
        self.interpose.set(self.pid, skew_ns=0)


def listening(var):
    return Interpose(var).environment


def jump(*hours, **how):
    return Row(WorkerJumps, {"hours": hours, **how}, (2, 5), frozenset(["worker"]), environment=listening)


ROWS = {
    "a worker's wall clock jumps": jump(-1, 1),
    "a worker's clocks all jump": jump(1, all_clocks=True),
}
