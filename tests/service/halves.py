"""Checkpoints of which one half is written: a worker dies in the midst of one (COUPONS_CRASH_POINT=parts:N), and what it leaves is
looked at before anybody writes the rest."""
import contextlib
import itertools
import os
import signal
import time

from client import Direct
from stack import PATIENCE_S, state_of, wait_until

SLOTS = 50_000  # enough for all who take one until it dies
ITEMS = 200     # of a batch: slots of several buckets
BUCKET_SLOTS = 64
DEATHS = 20     # until one is seen that came in the midst of such a checkpoint
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


def parts_of(stack, coupon):
    """(buckets that are written, buckets that are not) of the newest checkpoint of which any bucket is written."""
    written = {row["_id"]["b"]: row["view"]["seq"] for row in stack.database.buckets.find({"_id.c": coupon}, {"view.seq": 1})}
    newest = {}
    for batch in stack.database.ledger.find({"_id.c": coupon, "_id.seq": {"$lte": max(written.values(), default=0)}}, {"e": 1}):
        for n in (entry["n"] for entry in batch["e"] if "g" in entry):
            newest[n // BUCKET_SLOTS] = max(newest.get(n // BUCKET_SLOTS, 0), batch["_id"]["seq"])
    there = sum(written.get(bucket, 0) >= seq for bucket, seq in newest.items())
    return there, len(newest) - there


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
    """How many buckets of a checkpoint were written, and how many not, once a worker has died so. Workers that die elsewhere, as in the
    midst of other coupons' checkpoints, are not it."""
    for _ in range(DEATHS):
        pid = wait_until("worker-0", lambda: (pid := stack.pid("worker-0")) and state_of(pid) and pid)
        with asleep(stack, REPAIR):
            feed_until_it_dies(stack, coupon, pid)
            half = parts_of(stack, coupon)
        if all(half):
            return half
        wait_until("a successor", lambda: stack.pid("worker-0") not in (None, pid))
    raise AssertionError(f"{DEATHS} workers died, none with half of a checkpoint written:\n{stack.log()[-2000:]}")
