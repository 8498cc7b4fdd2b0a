"""A long time at 70 % of what the service can do: memory and latency stay flat, nothing is lost.

What it can do is measured with millions of users and a small cache of MongoDB, as at the end of a long sale: what a new user
costs shall depend on the coupons that sell now, not on all that ever did (see Part in store/terms.h). There is a new coupon
every minute, as in a shop that starts one sale after another.

Flat: the median slope over the last two thirds of the time (the first fills our own caches) adds, over the whole time, no
more than the table below allows. MongoDB's memory is shown and not judged.
"""
import itertools
import math
import pathlib
import statistics
import subprocess
import threading
import time

from generator import Generator
from stack import PROCESSES, SETTINGS, Stack, children

SHARE = 0.7
CACHE_MIB = 512  # of MongoDB
FILL_USERS = 3_000_000
FILL_MOST_S = 900
RATE_MOST = 20_000  # takings/s for which there are slots
TOLD_SLICES = 30  # between two lines that tell how it goes
CONNECTIONS = 256
MORE_CONNECTIONS = 2000  # of the open loop
SLICE_S = 10  # of time, with one latency
COUPON_S = 60  # with takings of one coupon
SAMPLE_S = 2  # between looks at memory
CARRIED = 0.95  # at least, of the load
SETTLED = 1 / 3  # of the time, after which it is judged
GROWTH = {"rss_mib": (0.10, 8), "p50_ms": (0.25, 5), "p99_ms": (0.5, 50)}  # of the median, or so much: what is more


def slope(points):
    """The median of the slopes between all pairs of (time, value): single bad moments do not change it (Theil and Sen)."""
    pairs = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2) if b[0] > a[0]]
    return statistics.median(pairs) if pairs else 0.0


def grown(points, kind, seconds):
    """(by how much it grows over the time, how much it may)."""
    points = points[:: max(1, len(points) // 300)]
    settled = [point for point in points if point[0] >= seconds * SETTLED]
    share, least = GROWTH[kind]
    return slope(settled) * seconds, max(share * statistics.median(value for _, value in settled), least)


def rss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Memory(threading.Thread):
    """Samples the resident memory of every process: series {name: [(seconds, MiB)]}."""

    def __init__(self, stack):
        super().__init__(daemon=True)
        self.stack, self.series, self.ending = stack, {}, threading.Event()
        self.pids = {name: stack.pid(name) for name in [*PROCESSES, "coupond", "nginx", "mongod"]}
        self.pids.update({f"nginx worker {i}": pid for i, pid in enumerate(children(self.pids["nginx"]))})

    def run(self):
        began = time.monotonic()
        while not self.ending.wait(SAMPLE_S):
            for name, pid in self.pids.items():
                try:
                    self.series.setdefault(name, []).append((time.monotonic() - began, rss_mib(pid)))
                except FileNotFoundError:
                    pass  # reported by died()

    def died(self):
        return [name for name, pid in self.pids.items() if not pathlib.Path(f"/proc/{pid}").exists()]

    def end(self):
        self.ending.set()
        self.join()
        return self.series


def load(generator, coupons, rate, seconds, say):
    """Slices of load until the time is over: [what load.c printed], each with the middle of its time as `t`."""
    slices, began = [], time.monotonic()
    while (t := time.monotonic() - began) < seconds:
        seen = generator(coupons[int(t // COUPON_S)], SLICE_S, MORE_CONNECTIONS, rate=rate, warmup=0)
        slices.append({**seen, "t": t + SLICE_S / 2})
        if len(slices) % TOLD_SLICES == 0:
            last = slices[-TOLD_SLICES:]
            p50, p99 = (statistics.median(s[kind] for s in last) for kind in ("p50_ms", "p99_ms"))
            say(f"after {t + SLICE_S:.0f} s: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {sum(s['all_busy'] for s in last)} busy")
    return slices


def carried(slices, rate):
    """What there is to complain of where less than such a rate was accepted."""
    meant, accepted = rate * SLICE_S * len(slices), sum(s["all_accepted"] for s in slices)
    return [] if accepted >= CARRIED * meant else [f"of {meant:.0f} takings that were due, {accepted} were accepted"]


def judge(slices, memory, seconds):
    """(lines that tell, lines that complain)"""
    said, complaints = [], []
    series = [(f"memory of {name}", "rss_mib", "MiB", memory[name], name != "mongod") for name in sorted(memory)]
    for kind in ("p50_ms", "p99_ms"):
        series.append((f"latency, {kind[:3]}", kind, "ms", [(s["t"], s[kind]) for s in slices], True))
    for name, kind, unit, points, judged in series:
        by, may = grown(points, kind, seconds)
        values = [value for _, value in points]
        line = (f"{name}: {values[0]:.1f} at first, median {statistics.median(values):.1f}, {values[-1]:.1f} at last, "
                f"most {max(values):.1f} {unit}; grows by {by:+.1f}" + (f" (may by {may:.1f})" if judged else ""))
        said.append(line)
        if judged and by > may:
            complaints.append(f"not flat: {line}")
    return said, complaints


def sustained_peak(stack, generator, say):
    """(takings/s in the median of the slices of one more coupon, after so many users; all takings)"""
    taken = []

    def a_coupon(may_fail=False):
        """The rate of each of its slices."""
        coupon, rates = stack.coupon(slots=RATE_MOST * (COUPON_S + SLICE_S)), []
        while len(rates) < COUPON_S / SLICE_S:
            seen = generator(coupon, SLICE_S, CONNECTIONS, may_fail=may_fail)
            taken.append(seen["all_accepted"])
            rates.append(seen["accepted_rate"])
        return rates

    first, began = a_coupon(may_fail=True)[0], time.monotonic()
    while sum(taken) < FILL_USERS:
        assert time.monotonic() - began < FILL_MOST_S, "the database is too slow for a soak"
        a_coupon(may_fail=True)
    peak = statistics.median(a_coupon())
    indexes = stack.database.command("collStats", "ledger")["totalIndexSize"] / 2**20
    say(f"{first:.0f} takings/s at first, {peak:.0f} in the median of {COUPON_S} s with {FILL_USERS:,} users in a ledger whose "
        f"indexes have {indexes:.0f} MiB, at a cache of {CACHE_MIB} MiB")
    return peak, sum(taken)


def drifts(stack, timeout, say):
    """What `verify` has to complain of."""
    began = time.monotonic()
    try:
        stack.verify(timeout=timeout)
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        return [str(failure)]
    say(f"verified in {time.monotonic() - began:.0f} s")
    return []


def soak(minutes, say):
    """What there is to complain of; the figures are said as they come."""
    seconds, stack = minutes * 60, Stack(SETTINGS)
    try:
        stack.start()
        generator = Generator(stack)
        stack.mongo.admin.command("setParameter", 1, wiredTigerEngineRuntimeConfig=f"cache_size={CACHE_MIB}MB")
        peak, before = sustained_peak(stack, generator, say)
        coupons = [stack.coupon(slots=int(peak * (COUPON_S + SLICE_S))) for _ in range(math.ceil(seconds / COUPON_S))]
        stack.mongo.admin.command("fsync")  # what is left of making so many slots is no part of what is measured
        memory = Memory(stack)
        memory.start()
        slices = load(generator, coupons, SHARE * peak, seconds, say)
        said, complaints = judge(slices, memory.end(), seconds)
        accepted, busy = (sum(s[name] for s in slices) for name in ("all_accepted", "all_busy"))
        say(f"{minutes:g} minutes at {SHARE:.0%} of {peak:.0f} takings/s: {accepted} accepted, {busy} busy")
        for line in said:
            say(line)
        complaints += carried(slices, SHARE * peak)
        redeemed = sum(stack.counts(row["_id"])["redeemed"] for row in stack.database.coupons.find({}, {"_id": 1}))
        if redeemed != before + accepted:
            complaints.append(f"{before + accepted} takings were acknowledged, {redeemed} are there")
        complaints += [f"{name} died" for name in memory.died()]
        return complaints + drifts(stack, 600 + seconds, say)
    finally:
        stack.stop()
        stack.remove()
