"""A database with very many coupons: a few are made by the service, and their documents are multiplied."""
import copy
import datetime
import itertools
import secrets

import bson

from stack import wait_until

LEDGERS = ("ledger", "buckets", "totals", "lanes", "totals_positions", "code_buckets", "codes")  # by _id.c
AT_ONCE = 5000
DAY = datetime.timedelta(days=1)


class Template:
    """A coupon's documents, {collection: [document]}, once all of it is written."""

    def __init__(self, stack, coupon, age):
        self.coupon, self.age = coupon, age
        wait_until(f"the checkpoint and totals of {coupon}", lambda: stack.is_written(coupon))
        self.documents = {c: list(stack.database[c].find({"_id.c": coupon}).sort("_id")) for c in LEDGERS}
        self.documents["coupons"] = list(stack.database.coupons.find({"_id": coupon}))
        self.documents["jobs"] = list(stack.database.jobs.find({"coupon": coupon}))

    def copies(self, collection, names):
        for name, document in itertools.product(names, self.documents[collection]):
            made = copy.copy(document)
            if collection == "coupons":
                made["_id"] = name
                made["created"] = document["created"] - self.age
            elif collection == "jobs":
                made["_id"], made["coupon"] = secrets.token_hex(8), name
            else:
                made["_id"] = {**document["_id"], "c": name}
                if collection == "users":
                    made["_id"]["h"] = secrets.token_bytes(16)  # of somebody else each
                elif collection == "totals":
                    made["_id"]["at"] = document["_id"]["at"] - self.age
                elif collection == "ledger":
                    arrived = document["arrived"]
                    made["arrived"] = bson.Timestamp(arrived.time - int(self.age.total_seconds()), arrived.inc)
            yield made


def start_service(stack):
    stack.script("run", "--detach", status=0)


def watermark(stack):
    """Everything that arrived before it is written."""
    return stack.database.watermarks.find_one({"_id": "reporter"})["arrived"]


class Many:
    """Fills a copy of the service with ended and active coupons, by and by."""

    def __init__(self, stack):
        self.stack, self.filled = stack, {"ended": 0, "active": 0}
        self.templates = {  # the active ones are the oldest: they are not to be found by their age
            "ended": Template(stack, self.ended(), DAY), "active": Template(stack, self.taken(self.active()), 2 * DAY)}
        made = stack.database.ledger.find_one({}, sort=[("arrived", -1)])["arrived"]
        wait_until("the watermark to pass what is copied", lambda: watermark(stack) > bson.Timestamp(made.time - int(DAY.total_seconds()), 0))

    def active(self, **members):
        return self.stack.coupon(slots=3, cap={"per_user": 2}, cleanup_after_s=0, **members)

    def taken(self, coupon):
        self.stack.client("storefront").take(coupon, "someone").ok(201)
        return coupon

    def ended(self):
        """One that is over, and cleaned up."""
        coupon = self.taken(self.active())
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.stack.patch(coupon, {"ends_at": now})
        wait_until("the cleanup", lambda: self.stack.database.jobs.find_one({"coupon": coupon, "kind": "cleanup", "state": "done"}))
        return coupon

    def fill(self, ended, active):
        """So many there are then; while the service is stopped."""
        for kind, count in (("ended", ended), ("active", active)):
            names = [f"{kind}-{i}" for i in range(self.filled[kind], count)]
            for collection in self.templates[kind].documents:
                copies = self.templates[kind].copies(collection, names)
                while some := list(itertools.islice(copies, AT_ONCE)):
                    self.stack.database[collection].insert_many(some, ordered=False)
            self.filled[kind] = max(count, self.filled[kind])
