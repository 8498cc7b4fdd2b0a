"""The reporter's totals by day: equal to the ledger, in any zone, whatever happens to the reporter."""
import csv
import datetime
import io
import random
import zoneinfo

import pytest

import ledger
from stack import wait_until
from swarm import Swarm, take

ROW = {"start", "issued", "reserved", "redeemed", "cancelled", "expired", "reversed", "discount_minor"}
DISCOUNT = {"kind": "amount", "amount_minor": 250, "currency": "EUR"}


def report(stack, coupon, query="period=day"):
    return stack.client("reporting").get(f"/coupons/{coupon}/reports?{query}").ok()


def caught_up(stack, coupon, query="period=day", seconds=30):
    """The report, once it holds everything up to the coupon's present seq."""
    seq = stack.counts(coupon)["seq"]
    last = {}

    def there():
        last.update(report(stack, coupon, query))
        return last["as_of"]["seq"] and min(last["as_of"]["seq"]) >= seq

    wait_until(lambda: f"the report to reach seq {seq}: {last.get('as_of')}", there, seconds)
    return last


def total(told, name):
    return sum(row[name] for row in told["items"])


def equals_ledger(stack, coupon):
    """The report's sums are the ledger's."""
    told, truth = caught_up(stack, coupon), ledger.Told(stack, coupon)
    money = sum(e["discount_minor"] for e in truth.redeemed) - sum(e["discount_minor"] for e in truth.reversed)
    seen = (total(told, "redeemed"), total(told, "reversed"), total(told, "discount_minor"))
    assert seen == (len(truth.redeemed), len(truth.reversed), money), f"{seen} in the report, {told}"


def test_a_day_is_counted_soon_after_it_happened(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 5}, discount=DISCOUNT)
    ids = [storefront.take(coupon, "u").ok(201)["id"] for _ in range(3)]
    storefront.post(f"/coupons/{coupon}/redemptions/{ids[0]}/reverse").expect(200)
    told = caught_up(stack, coupon, seconds=5)
    assert len(told["items"]) == 30, "without from: the last 30 periods, zeros included"
    assert all(set(row) == ROW for row in told["items"]), told["items"][0]
    assert (total(told, "redeemed"), total(told, "reversed"), total(told, "discount_minor")) == (3, 1, 500), told
    assert max(row["start"] for row in told["items"] if row["redeemed"]) == max(row["start"] for row in told["items"])
    as_of = told["as_of"]
    assert isinstance(as_of["seq"], list) and as_of["lag_ms"] >= 0 and as_of["at"].endswith("Z"), as_of
    equals_ledger(stack, coupon)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"])
def test_days_begin_at_the_zones_midnight_and_tell_its_offset(stack, zone):
    coupon = stack.coupon(slots=1)
    place = zoneinfo.ZoneInfo(zone)
    told = report(stack, coupon, f"period=day&from=2026-03-20T00:00:00Z&to=2026-04-05T12:00:00Z&tz={zone.replace('/', '%2F')}")
    starts = [datetime.datetime.fromisoformat(row["start"]) for row in told["items"]]
    first = datetime.datetime(2026, 3, 20, tzinfo=datetime.timezone.utc).astimezone(place)
    last = datetime.datetime(2026, 4, 5, 12, tzinfo=datetime.timezone.utc).astimezone(place)
    days = [datetime.datetime.combine(first.date() + datetime.timedelta(i), datetime.time(), place)
            for i in range((last.date() - first.date()).days + 1)]
    days = [d for d in days if d < last]
    assert sorted(s.isoformat() for s in starts) == sorted(d.isoformat() for d in days), "each with the offset that it has"
    assert total(told, "redeemed") == 0


def test_without_tz_the_coupons_zone_counts(stack):
    coupon = stack.coupon(slots=1, time_zone="Asia/Tokyo")
    assert all(row["start"].endswith("T00:00:00.000+09:00") for row in report(stack, coupon)["items"])


def test_csv_holds_the_same_rows(stack, storefront, reporting):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    told = caught_up(stack, coupon)
    for accept in ("text/csv", "text/csv, application/json;q=0.5"):
        reply = reporting.get(f"/coupons/{coupon}/reports?period=day", headers={"Accept": accept}).expect(200)
        assert reply.header("Content-Type").startswith("text/csv") and "accept" in reply.header("Vary").lower(), reply
        rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
        assert [{n: str(v) for n, v in row.items()} for row in told["items"]] == rows
    for accept in ("application/json", "*/*", "text/csv;q=0.1, application/json"):
        reply = reporting.get(f"/coupons/{coupon}/reports?period=day", headers={"Accept": accept}).expect(200)
        assert reply.header("Content-Type") == "application/json" and "accept" in reply.header("Vary").lower(), reply


@pytest.mark.parametrize("query", ["period=fortnight", "period=", "from=yesterday", "to=x", "tz=Europe/Atlantis", "tz=",
                                   "from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", "tz=%00", "tz=%C3%28",
                                   "from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z"])
def test_bad_questions_are_refused(stack, reporting, query):
    coupon = stack.coupon()
    reporting.get(f"/coupons/{coupon}/reports?{query}").problem("bad_request")


def test_a_report_of_nothing_is_not_found(reporting):
    reporting.get("/coupons/never-made/reports?period=day").problem("coupon_not_found")


def test_time_moves_on_in_a_quiet_coupon_while_somebody_reads(stack, storefront):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    first = caught_up(stack, coupon)["as_of"]["at"]
    wait_until(lambda: f"as_of to move on from {first}", lambda: report(stack, coupon)["as_of"]["at"] > first, 15, every=0.2)
    stack.verify(coupon)


def test_counts_add_up_over_two_coupons_side_by_side(stack, storefront):
    """The reporter folds batches of many coupons at once; none gets another's."""
    coupons = [stack.coupon(slots=20, cap={"total": 20, "per_user": 20}, discount=DISCOUNT) for _ in range(5)]
    for i, coupon in enumerate(coupons):
        for _ in range(i + 1):
            storefront.take(coupon, "u").expect(201)
    for i, coupon in enumerate(coupons):
        told = caught_up(stack, coupon)
        assert (total(told, "redeemed"), total(told, "discount_minor")) == (i + 1, 250 * (i + 1))


@pytest.mark.heavy
def test_a_reporter_that_is_killed_again_and_again_counts_every_batch_once(stack):
    """kill -9 at random moments under load: the totals equal the ledger."""
    chance = random.Random(5)
    coupons = [stack.coupon(slots=10_000, cap={"total": 10_000}, discount=DISCOUNT) for _ in range(4)]
    calls = (take(coupons[i % 4], f"u-{i}", f"k-{i}") for i in range(100_000))
    crowd = Swarm([stack.way()], calls, connections=32)
    crowd.start()
    killed = 0
    while crowd.is_alive() and killed < 8:
        stack.kill("reporter")
        killed += 1
        target = len(crowd.done) + chance.randrange(50, 600)
        wait_until("more answers", lambda: len(crowd.done) >= target or not crowd.is_alive())
    assert crowd.is_alive(), "the load ended before the reporter was disturbed"
    crowd.end()
    for coupon in coupons:
        equals_ledger(stack, coupon)
        stack.verify(coupon)
