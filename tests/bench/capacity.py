"""tests/bench/capacity: what one of each costs. Processor time is what was used beyond that of a service at rest."""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "service"))

from receiver import Receiver  # noqa: E402
from stack import Stack, children, processor_s, wait_until  # noqa: E402

CONNECTIONS = 64  # takings that come together are one batch
REST_S = 10
SETTINGS = "[webhooks]\nhttp = allowed\nnetworks = 127.0.0.0/8\n"
KINDS = ("mongod", "workers", "nginx", "others")
Cost = collections.namedtuple("Cost", "documents stored indexes oplog used")


def pids(stack):
    """Processes by what they are."""
    def of(name):
        return int((stack.var / "run" / f"{name}.pid").read_text())
    service = stack.pids()
    workers = [pid for name, pid in service.items() if name.startswith("worker-")]
    return dict(zip(KINDS, ([of("mongod")], workers, children(of("nginx")), [p for p in service.values() if p not in workers])))


def sizes(stack):
    """Bytes of documents, of what is stored of them, and of indexes; and all that the oplog has ever got."""
    stack.mongo.admin.command("fsync")
    stats = [stack.database.command("collstats", name) for name in stack.database.list_collection_names()]
    return (sum(s["size"] for s in stats), sum(s["storageSize"] - s["freeStorageSize"] for s in stats),
            sum(s["totalIndexSize"] - sum(d["block-manager"]["file bytes available for reuse"] for d in s["indexDetails"].values())
                for s in stats),
            stack.mongo["local"].command("collstats", "oplog.rs")["size"])


class Meter:
    def __init__(self, stack):
        self.stack, self.rest = stack, dict.fromkeys(KINDS, 0.0)
        _, used, seconds = self.run(lambda: time.sleep(REST_S))
        self.rest = {kind: value / seconds for kind, value in used.items()}

    def used(self):
        return {kind: processor_s(of) for kind, of in pids(self.stack).items()}

    def run(self, act):
        """What it cost in bytes, and in seconds of processors; how long it took."""
        bytes_before, before, start = sizes(self.stack), self.used(), time.monotonic()
        act()
        seconds = time.monotonic() - start
        used = {kind: after - before[kind] - self.rest[kind] * seconds for kind, after in self.used().items()}
        return [after - was for was, after in zip(bytes_before, sizes(self.stack))], used, seconds

    def cost(self, count, act):
        """Of one of so many; what is negative is too little to be seen."""
        grown, used, _ = self.run(act)
        return Cost(*(max(0.0, n / count) for n in grown), {kind: max(0.0, s * 1e6 / count) for kind, s in used.items()})


class Load:
    """The load generator; every run has users and keys of its own."""

    def __init__(self, stack):
        self.stack, self.seed = stack, 0
        self.program = stack.var / "load"
        subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-o", self.program, HERE / "load.c"], check=True)

    def take(self, coupon, count, *how, connections=CONNECTIONS):
        """So many are accepted, and in the checkpoint and the totals."""
        self.seed += 1
        done = subprocess.run([self.program, "--port", str(self.stack.port), "--connections", str(connections), "--seed", str(self.seed),
                               "--requests", str(count), "--key", self.stack.key("storefront"), *how,
                               "--path", f"/coupons/{coupon}/redemptions"], stdout=subprocess.PIPE, check=True)
        seen = json.loads(done.stdout)
        assert seen["all_accepted"] == count, seen
        self.settle(coupon)

    def settle(self, coupon):
        tail = self.stack.counts(coupon)["seq"]
        database = self.stack.database

        def written():
            return (database.lanes.count_documents({"_id.c": coupon, "view.seq": {"$gte": tail}}) and
                    database.totals_positions.count_documents({"_id.c": coupon, "seq": {"$gte": tail}}))

        wait_until(f"checkpoint and totals of {coupon}", written, every=0.1)


def measure(stack, times):
    load, meter, takings = Load(stack), Meter(stack), 20_000 * times
    rows = {}
    for what, how in (("a taking", ()), ("a taking with an order", ("--orders",)), ("a hold", ("--state", "reserved")), ("a hold, and its redemption", ("--pairs",))):
        coupon = stack.coupon(slots=takings)
        load.settle(coupon)
        rows[what] = meter.cost(takings, lambda c=coupon, h=how: load.take(c, takings, *h))
    coded = stack.coupon(cap={"total": 100_000 * times}, codes={"source": "generated"})
    rows["a code"] = meter.cost(100_000 * times, lambda: (stack.generate(coded, 100_000 * times), load.settle(coded)))
    rows["a coupon"] = meter.cost(200 * times, lambda: make_coupons(stack, load, 200 * times))
    rows["a taking alone"], rows["a webhook's event"] = said(stack, meter, load, 1000 * times)
    stack.verify()
    return rows


def make_coupons(stack, load, count):
    """One after the other, each with a slot."""
    ops = stack.client("ops")
    members = {"title": "one of many", "state": "active", "cap": {"total": 1, "per_user": 1}, "generate": True}
    made = [ops.post("/coupons", {"id": f"many-{number}", **members}).ok(201)["id"] for number in range(count)]
    for coupon in made:
        load.settle(coupon)


def said(stack, meter, load, count):
    """What a batch of one taking costs; and what it costs more where a webhook gets it."""
    alone, heard = stack.coupon(slots=count), stack.coupon(slots=count)
    load.settle(alone)
    load.settle(heard)
    without = meter.cost(count, lambda: load.take(alone, count, connections=1))
    with Receiver() as receiver:
        stack.client("ops").post("/coupons/-/webhooks", {"url": receiver.url, "coupons": [heard]}).expect(201)

        def delivered():
            position = stack.database.webhook_positions.find_one({"_id.c": heard})
            return position and position["at"]["seq"] >= stack.counts(heard)["seq"]

        both = meter.cost(count, lambda: (load.take(heard, count, connections=1), wait_until("the deliveries", delivered, every=0.2)))
    more = {kind: max(0.0, used - without.used[kind]) for kind, used in both.used.items()}
    return without, Cost(*(max(0.0, b - w) for b, w in zip(both[:4], without[:4])), more)


def table(rows):
    print("| what | documents | stored | indexes | oplog | mongod | workers | nginx | others |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for what, cost in rows.items():
        numbers = (*cost[:4], *cost.used.values())
        print(f"| {what} | {' | '.join(f'{number:,.0f}' for number in numbers)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=1)
    asked = parser.parse_args()
    with Stack(SETTINGS) as stack:
        table(measure(stack, asked.times))


if __name__ == "__main__":
    main()
