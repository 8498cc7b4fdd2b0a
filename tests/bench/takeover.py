"""tests/bench/takeover: kill -9 of all workers while no checkpoint has been written since the start, and how soon each coupon takes again."""
import argparse
import concurrent.futures
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "service"))

from stack import WORKERS, Failing, Stack, wait_until  # noqa: E402

COUPONS = 6  # of each worker: five redo logs of 100,000 entries are its bound
BATCH = 1000


def fill(way, coupon):
    """Take until the redo log is full: then appends wait, and callers hear busy. How many were taken."""
    taken = 0
    while True:
        items = [{"key": f"{taken + i}", "user": f"{coupon}-{taken + i}"} for i in range(BATCH)]
        said = way.post(f"/coupons/{coupon}/redemptions/batch", {"items": items})
        if said.status != 200:
            return taken
        statuses = [item["status"] for item in said.json()["items"]]
        taken += statuses.count(201)
        if 503 in statuses:
            return taken


def until_taken(stack, coupon, began):
    """Seconds until somebody got one."""
    client = stack.client("storefront")
    wait_until(f"a taking of {coupon}", lambda: client.request(
        "POST", f"/coupons/{coupon}/redemptions", {"user": "after"}, idempotency_key="after", may_fail=True).status in (200, 201))
    return time.monotonic() - began


def measure(stack):
    coupons = {f"c-{worker}-{i}": worker for worker in range(WORKERS) for i in range(COUPONS)}
    for coupon, worker in coupons.items():
        stack.direct(worker, "ops").post("/coupons", {
            "id": coupon, "title": "t", "state": "active", "cap": {"policy": "none"}}).expect(201)
    checkpoints = Failing(stack, "lanes", "insert", "update")
    with concurrent.futures.ThreadPoolExecutor(len(coupons) + 1) as pool:
        taken = sum(pool.map(lambda c: fill(stack.direct(coupons[c]), c), coupons))
        waits = stack.metric("coupons_redo_entries")
        pids = [stack.pid(f"worker-{i}") for i in range(WORKERS)]
        checkpoints.end()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        seconds = sorted(pool.map(lambda c: until_taken(stack, c, began), coupons))
    print(f"{taken} taken, {waits} of them in redo logs; seconds until a coupon took again, {len(seconds)} coupons at once: "
          f"first {seconds[0]:.2f}, median {seconds[len(seconds) // 2]:.2f}, last {seconds[-1]:.2f}")


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/takeover")
    parser.add_argument("--entries", type=int, default=500_000, help="in all; redo_max is a fifth (default, and at most: %(default)s)")
    asked = parser.parse_args()
    with Stack(f"[worker]\nredo_max = {asked.entries // 5}\nrequest_deadline_ms = 10000\n") as stack:
        measure(stack)
        stack.verify()


if __name__ == "__main__":
    main()
