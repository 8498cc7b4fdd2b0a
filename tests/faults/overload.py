"""The queue at twice the load that it can take: what is accepted stays at its peak, the rest is refused at once, and
nothing is lost.

The bottleneck is put where it does not depend on the machine: every fsync of the database takes DISK_MS, and a batch
holds few requests. So the processor, which clients and service share here, is not what is measured, but how the service
deals with a queue that cannot drain.

What is counted holds however slow the machine is: wrong() tells. Rates and times are of a machine that does nothing else: `others` tells.
"""
import dataclasses
import os
import resource
import time

from generator import Generator
from replica_set import SetStack
from stack import SETTINGS, SLOW_DATABASE, processor_s
from within import IDLE, WAITS_FOR_DISK, machine_s

DISK_MS = 50
BATCH = 64
PEAK_CONNECTIONS = 256
CONNECTIONS = 6000  # of the open loop: more than would ever wait if the rest is refused at once
TIMES = 2
QUEUE_MAX = 1024  # of the setting queue_max
OTHERS_MOST = 0.2  # of the processors' time, where rates and times are measured
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
    overtook: int  # accepted calls that were sent earlier: nine of ten refusals came before so many
    peak_batch: float  # takings in a batch
    batch: float
    others: float  # what neither the service and its database nor the clients had of the processors, and was not idle

    @property
    def peak(self):
        return (self.before + self.after) / 2

    def __str__(self):
        return (f"peak {self.peak:.0f}/s; offered {self.offered:.0f}/s: accepted {self.accepted:.0f}/s "
                f"({self.accepted / self.peak:.0%} of the peak, p99 {self.accepted_p99:.0f} ms), "
                f"refused {self.refused:.0f}/s (p50 {self.refused_p50:.0f} ms, p99 {self.refused_p99:.0f} ms, before {self.overtook} earlier calls); "
                f"{self.batch:.0f} in a batch, {self.peak_batch:.0f} at the peak; others had {self.others:.0%} of the processors")


def known_s(stack):
    """What the processors have spent so far on the stack, on being idle, and on the generator. What other machines take is not idle."""
    generator = resource.getrusage(resource.RUSAGE_CHILDREN)
    members = [member.pid for member in stack.replica_set.members]
    idle = machine_s(IDLE, WAITS_FOR_DISK) * os.cpu_count()
    return processor_s(stack.all_pids() + members) + idle + generator.ru_utime + generator.ru_stime


class Counted:
    """Runs of the generator, with the batches that their takings became, and the share of the processors' time that others had."""

    def __init__(self, stack):
        self.stack = stack
        self.generator, self.coupon, self.ledger = Generator(stack), stack.coupon(slots=1_000_000), stack.database.ledger

    def batches(self):
        return self.ledger.count_documents({"_id.c": self.coupon})

    def __call__(self, seconds, connections, **how):
        before, known, began = self.batches(), known_s(self.stack), time.monotonic()
        seen = self.generator(self.coupon, seconds, connections, **how)
        known, passed = known_s(self.stack) - known, time.monotonic() - began
        return {**seen, "others": 1 - known / passed / os.cpu_count(), "batch": seen["all_accepted"] / max(1, self.batches() - before)}


def measure(seconds, settings=""):
    """A peak, then twice of it, then a peak again: the figures."""
    stack = SetStack(1, interposed=True, settings=f"{SETTINGS}{SLOW_DATABASE}[worker]\nbatch_max = {BATCH}\n{settings}")
    try:
        stack.start()
        run = Counted(stack)
        stack.replica_set.interpose.set(stack.replica_set.members[0].pid, sync_us=DISK_MS * 1000)
        before = run(seconds / 2, PEAK_CONNECTIONS)
        over = run(seconds, CONNECTIONS, rate=TIMES * before["accepted_rate"])
        after = run(seconds / 2, PEAK_CONNECTIONS)
        said, redeemed = sum(seen["all_accepted"] for seen in (before, over, after)), stack.counts(run.coupon)["redeemed"]
        unknown = over["all_unknown"]
        assert said <= redeemed <= said + unknown, f"{said} takings were answered, {unknown} perhaps done, {redeemed} are there"
        stack.verify(run.coupon)
        return Figures(before["accepted_rate"], after["accepted_rate"], TIMES * before["accepted_rate"],
                       over["accepted_rate"], over["p99_ms"],
                       over["busy_rate"], over["busy_p50_ms"], over["busy_p99_ms"],
                       over["busy_overtook"], max(before["batch"], after["batch"]), over["batch"], over["others"])
    finally:
        stack.stop()
        stack.remove()


def wrong(seen):
    """What is not as it should be on any machine. Only what is refused at once comes before calls that were sent earlier, and wait."""
    found = []
    if seen.refused and seen.overtook < QUEUE_MAX / 4:
        found.append(f"nine of ten refusals came before {seen.overtook} accepted calls that were sent earlier")
    if seen.batch < 0.9 * seen.peak_batch:
        found.append("batches are not as full as at the peak")
    return found


def shortcomings(seen):
    """What is not as it should be where the machine has nothing else to do."""
    found = []
    if seen.accepted < 0.9 * seen.peak:
        found.append("less is accepted than at the peak")
    if seen.accepted + seen.refused < 0.9 * seen.offered:
        found.append("not all are answered")
    if seen.refused < 0.3 * seen.offered or seen.refused_p99 > FAST_MS:
        found.append("the rest is not refused at once")
    return found
