"""tests/bench/failover: clients take all the time, each under its key until it is answered; the primary goes, and another one is elected."""
import argparse
import bisect
import contextlib
import itertools
import pathlib
import sys
import threading
import time

import pymongo.errors

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "service"), str(HERE.parent / "faults")]

from replica_set import ELECTION_MS, SetStack  # noqa: E402
from stack import wait_until  # noqa: E402

CLIENTS = 16
PAUSE_S = 0.1  # of a client that got no answer
AFTER = 200    # takings after each fail-over, before the next


class Takers:
    """Threads that take; `times` of all takings that were acknowledged."""

    def __init__(self, stack, coupon):
        self.stack, self.coupon = stack, coupon
        self.times, self.asked_again, self.ends, self.refused = [], 0, False, None
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self._take) for _ in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        for thread in self.threads:
            thread.join()
        assert not self.refused, self.refused

    def _take(self):
        client = self.stack.client("storefront")
        while not self.ends:
            user = f"u-{next(self.numbers)}"
            while not self._is_taken(client, user) and not self.refused:
                self.asked_again += 1
                time.sleep(PAUSE_S)
            self.times.append(time.monotonic())

    def _is_taken(self, client, user):
        reply = client.post(f"/coupons/{self.coupon}/redemptions", {"user": user}, idempotency_key=user, may_fail=True)
        if reply.status != 201 and reply.status < 500:
            self.refused = reply
        return reply.status == 201

    def gap_since(self, at):
        """Seconds: the longest time without a taking, from the last one before `at` on."""
        times = sorted(self.times[-100_000:])
        return max(later - earlier for earlier, later in itertools.pairwise(times[max(0, bisect.bisect_left(times, at) - 1):]))


def kill(replica_set, primary):
    replica_set.kill(primary)


def step_down(replica_set, primary):
    with contextlib.suppress(pymongo.errors.AutoReconnect):  # it closes connections of clients
        primary.admin("replSetStepDown", 5, secondaryCatchUpPeriodSecs=1, force=True)


def fail_over(takers, replica_set, how):
    replica_set.settle()
    primary, at = replica_set.primary(), time.monotonic()
    how(replica_set, primary)
    replica_set.another_primary(primary)
    enough = len(takers.times) + AFTER
    wait_until("takings after the fail-over", lambda: len(takers.times) >= enough)
    gap = takers.gap_since(at)
    replica_set.heal()
    return gap


def line(what, gaps):
    gaps = sorted(gaps)
    at = {"p50": len(gaps) // 2, "p99": min(len(gaps) - 1, len(gaps) * 99 // 100)}
    print(f"{what:>12}: {len(gaps):>3} fail-overs, seconds without a taking: lowest {gaps[0]:.2f}, p50 {gaps[at['p50']]:.2f}, "
          f"p99 {gaps[at['p99']]:.2f}, longest {gaps[-1]:.2f}", flush=True)


def measure(stack, count):
    coupon = stack.coupon(cap={"policy": "none", "total": None})
    gaps = {kill: [], step_down: []}
    with Takers(stack, coupon) as takers:
        wait_until("takings", lambda: len(takers.times) >= AFTER)
        for i in range(count):
            how = (kill, step_down)[i % 2]
            gaps[how].append(fail_over(takers, stack.replica_set, how))
    for how, seconds in gaps.items():
        if seconds:
            line(how.__name__.replace("_", " "), seconds)
    line("all", [s for seconds in gaps.values() for s in seconds])
    counted = stack.counts(coupon)["redeemed"]
    print(f"{len(takers.times)} takings acknowledged, {counted} in the ledger; {takers.asked_again} requests were asked again; an election "
          f"begins after {ELECTION_MS} ms without a primary")
    assert counted == len(takers.times)


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/failover")
    parser.add_argument("--failovers", type=int, default=100, help="how many (default: %(default)s)")
    asked = parser.parse_args()
    with SetStack(nodes=3) as stack:
        measure(stack, asked.failovers)
        stack.verify()


if __name__ == "__main__":
    main()
