"""The queue at twice the load that it can take: what is accepted stays at its peak, the rest is refused at once, and
nothing is lost.

The bottleneck is put where it does not depend on the machine: every fsync of the database takes DISK_MS, and a batch
holds few requests. So the processor, which clients and service share here, is not what is measured, but how the service
deals with a queue that cannot drain.
"""
import dataclasses

from generator import Generator
from replica_set import SetStack
from stack import SETTINGS

DISK_MS = 50
BATCH = 64
PEAK_CONNECTIONS = 256
CONNECTIONS = 6000  # of the open loop: more than would ever wait if the rest is refused at once
TIMES = 2
FAST_MS = 500  # for a refusal, also on a busy machine; who is accepted waits for seconds


@dataclasses.dataclass
class Figures:
    """Rates a second, times in ms. The peak was measured twice, around the rest: the machine may have changed."""
    before: float
    after: float
    offered: float
    accepted: float
    accepted_p99: float
    refused: float
    refused_p50: float
    refused_p99: float

    @property
    def peak(self):
        return (self.before + self.after) / 2

    def __str__(self):
        return (f"peak {self.peak:.0f}/s; offered {self.offered:.0f}/s: accepted {self.accepted:.0f}/s "
                f"({self.accepted / self.peak:.0%} of the peak, p99 {self.accepted_p99:.0f} ms), "
                f"refused {self.refused:.0f}/s (p50 {self.refused_p50:.0f} ms, p99 {self.refused_p99:.0f} ms)")


def measure(seconds, settings=""):
    """A peak, then twice of it, then a peak again: the figures."""
    stack = SetStack(1, interposed=True, settings=f"{SETTINGS}[worker]\nbatch_max = {BATCH}\n{settings}")
    try:
        stack.start()
        generator, coupon = Generator(stack), stack.coupon(slots=1_000_000)
        stack.replica_set.interpose.set(stack.replica_set.members[0].pid, sync_us=DISK_MS * 1000)
        before = generator(coupon, seconds / 2, PEAK_CONNECTIONS)
        over = generator(coupon, seconds, CONNECTIONS, rate=TIMES * before["accepted_rate"])
        after = generator(coupon, seconds / 2, PEAK_CONNECTIONS)
        said, redeemed = sum(run["all_accepted"] for run in (before, over, after)), stack.counts(coupon)["redeemed"]
        assert said == redeemed, f"{said} takings were answered, {redeemed} are there"
        stack.verify(coupon)
        return Figures(before["accepted_rate"], after["accepted_rate"], TIMES * before["accepted_rate"],
                       over["accepted_rate"], over["p99_ms"],
                       over["busy_rate"], over["busy_p50_ms"], over["busy_p99_ms"])
    finally:
        stack.stop()
        stack.remove()


def shortcomings(seen):
    """What is not as it should be."""
    found = []
    if seen.accepted < 0.9 * seen.peak:
        found.append("less is accepted than at the peak")
    if seen.accepted + seen.refused < 0.9 * seen.offered:
        found.append("not all are answered")
    if seen.refused < 0.3 * seen.offered or seen.refused_p99 > FAST_MS:
        found.append("the rest is not refused at once")
    return found
