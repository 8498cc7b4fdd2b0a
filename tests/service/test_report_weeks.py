"""Reports of weeks in which clocks change, in ten zones: the reporter folds them from a ledger, and Python counts that ledger by
its own calendar."""
import datetime
import random
import zoneinfo

import pytest

from effort import in_full
from ledger import LaneLedger
from stack import SETTINGS, SLOW_DATABASE, Stack, wait_until
from test_reports import COUNTS, DISCOUNT, QUARTER, UTC, caught_up, moment, period_of, summed

ZONES = ["Europe/Berlin", "Europe/London", "America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "Asia/Kathmandu",
         "Asia/Jerusalem", "Asia/Beirut", "Pacific/Chatham"]
WEEKS = 9
BEGINNINGS = [datetime.datetime(2026, 2, 20), datetime.datetime(2025, 9, 5)]  # clocks go forward or back in all zones but one
ACTIONS = 240
COLUMN = {"issue": "issued", "reserve": "reserved", "hold": "reserved", "redeem": "redeemed", "spend": "redeemed",
          "cancel": "cancelled", "expire": "expired", "reverse": "reversed"}
MONEY = {"redeem": 1, "spend": 1, "reverse": -1}
STEPS = {"issued": ["cancel", "redeem", "reserve"], "reserved": ["cancel", "redeem"], "redeemed": ["reverse"]}


class Shop:
    """Takes, holds, spends and gives back at random; every call is a batch of its own."""

    def __init__(self, stack, coupon, chance):
        self.stack, self.coupon, self.chance = stack, coupon, chance
        self.client = stack.client("storefront")
        self.standing = {state: [] for state in STEPS}

    def take(self, n):
        state = self.chance.choice(list(STEPS))
        body = self.client.take(self.coupon, f"u-{self.chance.randrange(20)}", f"take-{n}", state=state).ok(201)
        self.standing[state].append(body["id"])

    def step(self, n, state):
        redemption = self.standing[state].pop(self.chance.randrange(len(self.standing[state])))
        verb = self.chance.choice(STEPS[state])
        key = None if verb in ("cancel", "reverse") else f"step-{n}"
        reply = self.client.post(f"/coupons/{self.coupon}/redemptions/{redemption}/{verb}", idempotency_key=key)
        if verb == "reserve":
            self.standing["reserved"].append(reply.ok(201)["id"])
        elif reply.ok(200)["state"] == "redeemed":
            self.standing["redeemed"].append(redemption)

    def act(self, n):
        state = self.chance.choice(list(STEPS))
        if self.standing[state] and self.chance.random() < 0.5:
            self.step(n, state)
        else:
            self.take(n)

    def live(self):
        for n in range(ACTIONS):
            self.act(n)
        for n in range(5):
            self.client.take(self.coupon, "late", f"late-{n}", state="reserved", reserve_s=1).expect(201)
        held = len(self.standing["reserved"])
        wait_until("the holds to expire", lambda: self.stack.counts(self.coupon)["reserved"] == held)


def changes(beginning):
    """The quarter hours in these weeks in which the clocks of a zone change."""
    quarters = [beginning.replace(tzinfo=UTC) + i * QUARTER for i in range(WEEKS * 7 * 96)]
    return [after for zone in map(zoneinfo.ZoneInfo, ZONES) for before, after in zip(quarters, quarters[1:])
            if before.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset()]


def random_times(chance, beginning, count):
    """So many moments, the earliest first: half of them within hours of a change of clocks."""
    near = changes(beginning)
    assert len(near) >= 9, near
    moments = [chance.choice(near) + datetime.timedelta(milliseconds=chance.randrange(-10**7, 10**7)) if i % 2
               else beginning.replace(tzinfo=UTC) + datetime.timedelta(seconds=chance.randrange(WEEKS * 7 * 86400)) for i in range(count)]
    return sorted(moments)


def lay(stack, coupon, name, chance, beginning):
    """The coupon's ledger once more, as another coupon's, and as if it had come in these weeks."""
    batches = list(stack.database.ledger.find({"_id.c": coupon}).sort("_id.seq"))
    for batch, at in zip(batches, random_times(chance, beginning, len(batches))):
        batch["_id"] = {"c": name, "l": 0, "seq": batch["_id"]["seq"]}
        batch["at"] = at
    stack.database.ledger.insert_many(batches)


def counted(said):
    """The ledger's entries by quarter hour: [(moment, counts)]."""
    rows = {}
    for batch in said.batches:
        at = moment(batch["at"])
        row = rows.setdefault(at - (at - datetime.datetime.min) % QUARTER, dict.fromkeys(COUNTS, 0))
        for entry in batch["entries"]:
            if entry["kind"] in COLUMN:
                row[COLUMN[entry["kind"]]] += 1
            row["discount_minor"] += MONEY.get(entry["kind"], 0) * entry.get("discount_minor", 0)
    return list(rows.items())


@pytest.fixture(scope="module")
def weeks(stack):
    """A stack, and [(beginning, coupon)]. No verify: hashes are of other times."""
    with Stack(SETTINGS + SLOW_DATABASE, beside=stack) as stack:
        chance = random.Random(20260329)
        coupon = stack.coupon(slots=ACTIONS + 5, cap={"total": ACTIONS + 5, "per_user": 1000}, discount=DISCOUNT)
        Shop(stack, coupon, chance).live()
        for i, beginning in enumerate(BEGINNINGS):
            lay(stack, coupon, f"weeks-{i}", chance, beginning)
        yield stack, [(beginning, f"weeks-{i}") for i, beginning in enumerate(BEGINNINGS)]


@pytest.mark.parametrize("zone", [zone if zone == ZONES[0] else in_full(zone) for zone in ZONES])
def test_each_period_is_what_python_counts_in_the_ledger(weeks, zone):
    stack, coupons = weeks
    place = zoneinfo.ZoneInfo(zone)
    for beginning, coupon in coupons:
        rows, end = counted(LaneLedger(stack, coupon)), beginning + datetime.timedelta(weeks=WEEKS)
        assert {name for _, row in rows for name in COUNTS if row[name]} == set(COUNTS), "every column has something to show"
        for period in ("hour", "day", "week", "month"):
            said = caught_up(stack, coupon, f"period={period}&from={beginning.isoformat()}Z&to={end.isoformat()}Z&tz={zone}")["items"]
            seen = {moment(row["start"]): {name: row[name] for name in COUNTS} for row in said}
            assert set(seen) == {period_of(beginning + i * QUARTER, period, place) for i in range((end - beginning) // QUARTER)}, period
            full = {start: row for start, row in seen.items() if any(row.values())}
            truth = {start: row for start, row in summed(rows, period, place).items() if any(row.values())}
            wrong = [start for start in full.keys() | truth.keys() if full.get(start) != truth.get(start)]
            assert not wrong, f"{coupon}, {period}, from {wrong[0]}Z: {full.get(wrong[0])}, and the ledger says {truth.get(wrong[0])}"
