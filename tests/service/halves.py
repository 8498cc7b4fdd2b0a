"""Checkpoints of which one half is written: a worker dies in the midst of one (COUPONS_CRASH_POINT=views:N), and what it leaves is
looked at before anybody repairs it."""
import contextlib
import itertools
import os
import signal
import time

from client import Direct
from stack import PATIENCE_S, state_of, wait_until

SLOTS = 50_000  # enough for all who take one until it dies
ITEMS = 190     # of a batch: those of some buckets
BUCKET = 64     # slots
DEATHS = 20     # until one is seen that came in the midst of a batch's buckets
REPAIR = ("worker-1", "reporter", "runner", "coupond")  # a successor, too, writes what it finds missing
serial = itertools.count(1)


@contextlib.contextmanager
def asleep(stack, names):
    pids = []
    try:
        for name in names:
            pids.append(stack.signal(name, signal.SIGSTOP))
        for pid in pids:
            wait_until(f"{pid} to stand still", lambda: state_of(pid) in ("T", None))
        yield
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def buckets_of(batch):
    """The buckets in which the batch, as it is stored, changes a slot by its number."""
    return {entry["n"] // BUCKET for entry in batch["e"] if "g" in entry and entry["n"] >= 0}


def views_of(stack, coupon):
    """{seq: (how many of the buckets that the batch changes are written, and how many are not)}"""
    written = {row["_id"]["b"]: row["view"]["seq"] for row in stack.database.buckets.find({"_id.c": coupon}, {"view.seq": 1})}
    seen = {}
    for batch in stack.database.ledger.find({"_id.c": coupon}, {"e": 1}):
        seq, buckets = batch["_id"]["seq"], buckets_of(batch)
        there = sum(written.get(b, 0) >= seq for b in buckets)
        seen[seq] = there, len(buckets) - there
    return seen


def feed_until_it_dies(stack, coupon, pid):
    """Batches, one after the other, each with users of its own."""
    worker = Direct(stack.var / "run" / "worker-0.sock", stack.key("storefront"), patience_s=1)
    end = time.monotonic() + PATIENCE_S
    while state_of(pid):
        assert time.monotonic() < end, f"worker-0 does not die:\n{stack.log()[-2000:]}"
        items = [{"key": "k", "user": f"half-{next(serial)}"} for _ in range(ITEMS)]
        with contextlib.suppress(AssertionError, OSError):
            worker.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}, may_fail=True)


def dies_half_way(stack, coupon):
    """How many buckets of a batch were written, and how many not, once a worker has died so. Workers that die elsewhere, as in the
    midst of what no batch has both halves of, are not it."""
    for _ in range(DEATHS):
        pid = wait_until("worker-0", lambda: (pid := stack.pid("worker-0")) and state_of(pid) and pid)
        with asleep(stack, REPAIR):
            feed_until_it_dies(stack, coupon, pid)
            halves = [half for half in views_of(stack, coupon).values() if all(half)]
        if halves:
            return halves[-1]
        wait_until("a successor", lambda: stack.pid("worker-0") not in (None, pid))
    raise AssertionError(f"{DEATHS} workers died, none with half of a batch's buckets written:\n{stack.log()[-2000:]}")
