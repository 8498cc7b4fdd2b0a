"""The reporter's totals by day: equal to the ledger, in any zone, whatever happens to the reporter."""
import datetime
import itertools
import json
import random
import signal
import subprocess
import time
import zoneinfo

import pytest

import ledger
from effort import effort
from halves import asleep
from stack import WORKERS, Failing, wait_until
from swarm import Swarm, take, takers
from test_pages import scanned

ROW = {"start", "issued", "reserved", "redeemed", "cancelled", "expired", "reversed", "discount_minor", "money", "refused", "refusals"}
REFUSALS = ["too_many_attempts", "idempotency_key_reused", "coupon_not_active", "coupon_not_started", "coupon_ended", "code_not_found",
            "code_taken", "transaction_in_progress", "order_not_eligible", "user_cap_reached", "user_daily_cap_reached",
            "daily_cap_reached", "budget_reached", "sold_out", "reservation_expired", "invalid_transition"]
COUNTS = ["issued", "reserved", "redeemed", "cancelled", "expired", "reversed", "discount_minor"]
UTC = datetime.timezone.utc
QUARTER = datetime.timedelta(minutes=15)
DISCOUNT = {"kind": "amount", "amount_minor": 250, "currency": "EUR"}


def report(stack, coupon, query="period=day"):
    return stack.client("reporting").get(f"/coupons/{coupon}/reports?{query}").ok()


def await_names(reporting, coupons):
    """Until a report over several knows them: their stored definitions may be a moment behind."""
    wait_until("the coupons to be listed", lambda: reporting.get(f"/coupons/-/reports?coupon={','.join(coupons)}").status == 200)


def caught_up(stack, coupon, query="period=day"):
    """The report, once it holds everything up to the coupon's present seq."""
    seq = stack.counts(coupon)["seq"]
    last = {}

    def there():
        last.update(report(stack, coupon, query))
        return last["as_of"]["seq"] and min(last["as_of"]["seq"]) >= seq

    wait_until(lambda: f"the report to reach seq {seq}: {last.get('as_of')}", there)
    return last


def total(said, name):
    return sum(row[name] for row in said["items"])


def as_csv(items):
    """The rows of a report as CSV has them: money in columns of each currency that there is any of."""
    currencies = sorted({m["currency"] or "" for row in items for m in row["money"]})
    rows = []
    for row in items:
        plain = {name: "" if value is None else str(value) for name, value in row.items() if name not in ("refusals", "money")}
        of = {m["currency"] or "": m for m in row["money"]}
        money = {f"{name}_{c or 'none'}": str(of[c][name] if c in of else 0) for c in currencies for name in ("discount_minor", "order_minor")}
        rows.append({**plain, **{code: str(row["refusals"].get(code, 0)) for code in REFUSALS}, **money})
    return rows


def equals_ledger(stack, coupon):
    """The report's sums are the ledger's."""
    said, truth = caught_up(stack, coupon), ledger.LaneLedger(stack, coupon)
    money = sum(e["discount_minor"] for e in truth.redeemed) - sum(e["discount_minor"] for e in truth.reversed)
    seen = (total(said, "redeemed"), total(said, "reversed"), total(said, "discount_minor"))
    assert seen == (len(truth.redeemed), len(truth.reversed), money), f"{seen} in the report, {said}"


def test_a_day_is_counted_soon_after_it_happened(stack, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 5, "per_user": 5}, discount=DISCOUNT)
    ids = [storefront.take(coupon, "u").ok(201)["id"] for _ in range(3)]
    storefront.post(f"/coupons/{coupon}/redemptions/{ids[0]}/reverse").expect(200)
    said = caught_up(stack, coupon)
    assert len(said["items"]) == 30, "without from: the last 30 periods, zeros included"
    assert all(set(row) == ROW for row in said["items"]), said["items"][0]
    assert (total(said, "redeemed"), total(said, "reversed"), total(said, "discount_minor")) == (3, 1, 500), said
    assert max(row["start"] for row in said["items"] if row["redeemed"]) == max(row["start"] for row in said["items"])
    as_of = said["as_of"]
    assert isinstance(as_of["seq"], list) and as_of["lag_ms"] >= 0 and as_of["at"].endswith("Z"), as_of
    equals_ledger(stack, coupon)


def test_without_tz_the_coupons_zone_counts(stack):
    coupon = stack.coupon(slots=1, time_zone="Asia/Tokyo")
    assert all(row["start"].endswith("T00:00:00.000+09:00") for row in report(stack, coupon)["items"])


def test_csv_holds_the_same_rows(stack, storefront, reporting):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    said = caught_up(stack, coupon)
    for accept in ("text/csv", "text/csv, application/json;q=0.5"):
        reply = reporting.get(f"/coupons/{coupon}/reports?period=day", headers={"Accept": accept}).expect(200)
        assert reply.header("Content-Type").startswith("text/csv") and "accept" in reply.header("Vary").lower(), reply
        assert as_csv(said["items"]) == reply.rows()
    for accept in ("application/json", "*/*", "text/csv;q=0.1, application/json"):
        reply = reporting.get(f"/coupons/{coupon}/reports?period=day", headers={"Accept": accept}).expect(200)
        assert reply.header("Content-Type") == "application/json" and "accept" in reply.header("Vary").lower(), reply


# ---- totals of the past: put into the database as the reporter would have written them ----

@pytest.fixture
def seeded(stack):
    """A function that gives a coupon totals at these quarter hours; they are taken away again, for they are in no ledger."""
    coupons = []

    def seed(rows, coupon=None):
        coupon = coupon or stack.coupon()
        coupons.append(coupon)
        position = {"_id": {"c": coupon, "l": 0}}
        wait_until("the reporter to know the coupon", lambda: stack.database.totals_positions.find_one(position))
        stack.database.totals.insert_many(
            [{"_id": {"c": coupon, "l": 0, "at": at}, "seq": 1, "order_minor": 0, **counts} for at, counts in rows], ordered=False)
        return coupon

    yield seed
    stack.database.totals.delete_many({"_id.c": {"$in": coupons}, "seq": 1})


def random_rows(chance, start, end, count):
    """Counts at so many quarter hours; the first and the last are among them, and each edge of a day has more."""
    quarters = (end - start) // QUARTER
    chosen = {0, quarters - 1, *(chance.randrange(quarters) for _ in range(count))}
    return [(start + i * QUARTER, {name: chance.randrange(-50 if name == "discount_minor" else 0, 100) for name in COUNTS})
            for i in sorted(chosen)]


def period_of(at, period, place):
    """The moment at which the period that holds `at` begins, by Python's own calendar."""
    local = at.replace(tzinfo=UTC).astimezone(place)
    if period == "hour":
        return at - (datetime.timedelta(minutes=local.minute))
    day = local.date()
    if period == "week":
        day -= datetime.timedelta(day.weekday())
    if period == "month":
        day = day.replace(day=1)
    return datetime.datetime.combine(day, datetime.time(), place).astimezone(UTC).replace(tzinfo=None)


def moment(text):
    return datetime.datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)


def summed(rows, period, place):
    sums = {}
    for at, counts in rows:
        one = sums.setdefault(period_of(at, period, place), dict.fromkeys(COUNTS, 0))
        for name, n in counts.items():
            one[name] += n
    return sums


ZONES = [("UTC", 2024, 2), ("Europe/Berlin", 2026, 3), ("Europe/Berlin", 2026, 10), ("America/New_York", 2026, 11),
         ("Asia/Kathmandu", 2026, 3), ("America/St_Johns", 2021, 3), ("Pacific/Chatham", 2022, 4), ("Pacific/Chatham", 2022, 9),
         ("America/Havana", 2021, 11), ("America/Sao_Paulo", 2018, 11), ("America/Sao_Paulo", 2018, 2), ("Asia/Beirut", 2021, 10),
         ("Atlantic/Azores", 2022, 10), ("Africa/Casablanca", 2022, 4), ("Asia/Kolkata", 2026, 1), ("Pacific/Apia", 2011, 12),
         ("Pacific/Kiritimati", 2026, 3)]


@pytest.mark.parametrize("zone,year,month", ZONES, ids=lambda v: str(v))
def test_every_period_is_what_pythons_calendar_says(stack, seeded, zone, year, month):
    """Random totals over ten weeks around a change of clocks: each row, and no row too many or too few."""
    place, chance = zoneinfo.ZoneInfo(zone), random.Random(f"{zone}{year}{month}")
    start = datetime.datetime(year, month, 1) - datetime.timedelta(20)
    end = start + datetime.timedelta(70)
    rows = random_rows(chance, start, end, 1500)
    coupon, tz = seeded(rows), zone.replace("/", "%2F")
    for period in ("hour", "day", "week", "month"):
        said = report(stack, coupon, f"period={period}&from={start.isoformat()}Z&to={end.isoformat()}Z&tz={tz}")["items"]
        seen = {moment(row["start"]): {name: row[name] for name in COUNTS} for row in said}
        assert len(seen) == len(said) and list(seen) == sorted(seen), f"{period}: starts ascend"
        for row in said:
            offset = datetime.datetime.fromisoformat(row["start"]).utcoffset()
            assert offset == moment(row["start"]).replace(tzinfo=UTC).astimezone(place).utcoffset(), f"{period}: offset of {row}"
        expected = {period_of(start + i * QUARTER, period, place) for i in range((end - start) // QUARTER)}
        assert set(seen) == expected, f"{period}: {sorted(set(seen) ^ expected)}"
        for at, counts in summed(rows, period, place).items():
            assert seen[at] == counts, f"{period} from {at}Z"
        assert sum(row["redeemed"] for row in said) == sum(counts["redeemed"] for _, counts in rows), period


@pytest.mark.parametrize("zone,day,hours", [("Europe/Berlin", "2026-03-29", 23), ("Europe/Berlin", "2026-10-25", 25),
                                            ("Australia/Lord_Howe", "2022-04-03", 24.5), ("Australia/Lord_Howe", "2022-10-02", 23.5),
                                            ("America/Sao_Paulo", "2018-11-04", 23)])
def test_days_have_the_hours_that_the_clocks_give_them(stack, seeded, zone, day, hours):
    """One redemption in each quarter hour: a day has four an hour, and its hours add up to it."""
    first = datetime.datetime.fromisoformat(day) - datetime.timedelta(3)
    coupon = seeded([(first + i * QUARTER, {**dict.fromkeys(COUNTS, 0), "redeemed": 1}) for i in range(6 * 96)])
    span = f"from={first.isoformat()}Z&to={(first + datetime.timedelta(6)).isoformat()}Z&tz={zone}"
    said = next(row for row in report(stack, coupon, f"period=day&{span}")["items"] if row["start"].startswith(day))
    assert said["redeemed"] == hours * 4, said
    by_hour = [row for row in report(stack, coupon, f"period=hour&{span}")["items"] if row["start"].startswith(day)]
    assert sum(row["redeemed"] for row in by_hour) == hours * 4
    assert all(2 <= row["redeemed"] <= 6 for row in by_hour), by_hour


def test_a_total_counts_the_quarter_hours_in_its_range(stack, seeded):
    start = datetime.datetime(2026, 3, 1)
    rows = random_rows(random.Random(7), start, start + datetime.timedelta(3), 200)
    coupon = seeded(rows)
    for after, length in ((0, 96), (17, 1), (17, 100), (200, 9999)):
        a, b = start + after * QUARTER, start + (after + length) * QUARTER
        said = report(stack, coupon, f"period=total&from={a.isoformat()}Z&to={b.isoformat()}Z")["items"]
        assert len(said) == 1 and moment(said[0]["start"]) == a, said
        assert said[0]["redeemed"] == sum(counts["redeemed"] for at, counts in rows if a <= at < b), (after, length)
    inside = f"from={(start + datetime.timedelta(minutes=20)).isoformat()}Z&to={(start + datetime.timedelta(minutes=31)).isoformat()}Z"
    said = report(stack, coupon, f"period=total&{inside}")["items"]
    a, b = start + QUARTER, start + 3 * QUARTER
    assert moment(said[0]["start"]) == a, "cut outwards to whole quarter hours"
    assert said[0]["redeemed"] == sum(counts["redeemed"] for at, counts in rows if a <= at < b)
    whole = report(stack, coupon, "period=total")["items"]
    assert whole[0]["redeemed"] == sum(counts["redeemed"] for _, counts in rows) and moment(whole[0]["start"]) == rows[0][0]


def test_several_coupons_are_added_up_or_told_apart(stack, reporting, seeded):
    start, chance = datetime.datetime(2026, 5, 1), random.Random(3)
    end = start + datetime.timedelta(5)
    rows = {}
    for _ in range(3):
        some = random_rows(chance, start, end, 100)
        rows[seeded(some)] = some
    empty = stack.coupon()
    names, place = sorted([*rows, empty]), zoneinfo.ZoneInfo("Asia/Kathmandu")
    await_names(reporting, names)
    span = f"from={start.isoformat()}Z&to={end.isoformat()}Z&tz=Asia/Kathmandu"
    said = reporting.get(f"/coupons/-/reports?period=day&coupon={','.join(names)}&{span}").ok()
    expected = summed([row for some in rows.values() for row in some], "day", place)
    assert {moment(r["start"]): {n: r[n] for n in COUNTS} for r in said["items"]} == expected
    assert "seq" not in said["as_of"] and said["as_of"]["at"], said["as_of"]

    said = reporting.get(f"/coupons/-/reports?period=day&group=coupon&coupon={','.join(reversed(names))}&{span}").ok()["items"]
    assert [(r["coupon"], r["start"]) for r in said] == sorted((r["coupon"], r["start"]) for r in said)
    assert len(said) == len(names) * len(expected), "a row for each coupon and each day, zeros included"
    for name in names:
        seen = {moment(r["start"]): {n: r[n] for n in COUNTS} for r in said if r["coupon"] == name}
        sums = summed(rows.get(name, []), "day", place)
        assert {at: counts for at, counts in seen.items() if any(counts.values())} == sums
    everyone = reporting.get(f"/coupons/-/reports?period=day&group=coupon&{span}").ok()["items"]
    assert [r for r in everyone if r["coupon"] in names] == said, "all coupons, when none is named"
    reply = reporting.get(f"/coupons/-/reports?period=day&group=coupon&coupon={','.join(names)}&{span}",
                          headers={"Accept": "text/csv"}).expect(200)
    assert reply.rows() == as_csv(said)
    assert reply.header("Coupons-As-Of")


def test_money_is_told_by_currency(stack, storefront, reporting):
    """Euros and yen are never added up, nor what one coupon of any currency gave; orders need not name one."""
    def sell(discount, currencies, amounts):
        coupon = stack.coupon(slots=len(amounts), cap={"total": len(amounts), "per_user": 9}, discount=discount)
        taken = [storefront.take(coupon, "u", order={"amount_minor": n, "currency": c} if c else {"amount_minor": n}).ok(201)
                 for n, c in zip(amounts, itertools.cycle(currencies))]
        storefront.post(f"/coupons/{coupon}/redemptions/{taken[0]['id']}/reverse").expect(200)
        return coupon

    euros = sell({**DISCOUNT, "currency": "EUR"}, ["EUR"], [1000, 2000, 4000])
    yen = sell({"kind": "percent", "percent_bp": 1000, "currency": "JPY"}, ["JPY"], [50, 300])
    any_money = sell({"kind": "percent", "percent_bp": 1000}, ["USD", "GBP"], [10, 90, 70])
    unnamed = sell({"kind": "percent", "percent_bp": 1000}, [None], [10, 40])
    none = stack.coupon(slots=1)
    storefront.take(none, "u").expect(201)
    money = {euros: [{"currency": "EUR", "discount_minor": 500, "order_minor": 6000}],
             yen: [{"currency": "JPY", "discount_minor": 30, "order_minor": 300}],
             any_money: [{"currency": "GBP", "discount_minor": 9, "order_minor": 90}, {"currency": "USD", "discount_minor": 7, "order_minor": 70}],
             unnamed: [{"currency": None, "discount_minor": 4, "order_minor": 40}], none: []}

    def sum_of(of):
        return None if len(of) > 1 else of[0]["discount_minor"] if of else 0

    for coupon, want in money.items():
        row = caught_up(stack, coupon, "period=total")["items"][0]
        assert (row["money"], row["discount_minor"]) == (want, sum_of(want)), row
    await_names(reporting, list(money))
    at = f"/coupons/-/reports?period=total&coupon={','.join(money)}"
    [row] = said = reporting.get(at).ok()["items"]
    assert row["redeemed"] == 11 and row["reversed"] == 4 and row["discount_minor"] is None, row
    assert sorted(row["money"], key=str) == sorted((m for of in money.values() for m in of), key=str)
    by_coupon = reporting.get(at + "&group=coupon").ok()["items"]
    assert {r["coupon"]: (r["money"], r["discount_minor"]) for r in by_coupon} == \
        {c: (m, sum_of(m)) for c, m in money.items()}
    for more, rows in (("", said), ("&group=coupon", by_coupon)):
        assert reporting.get(at + more, headers={"Accept": "text/csv"}).expect(200).rows() == as_csv(rows)
    table = stack.couponctl("report", *money, "--period", "total").stdout.splitlines()
    assert "4 + 500 EUR + 9 GBP + 30 JPY + 7 USD" in table[1], table
    stack.verify(*money)


def test_what_was_redeemed_then_is_reversed_now(stack, storefront, seeded):
    """A reversal is of the period in which it happened: yesterday's row stays."""
    coupon = stack.coupon(slots=2, cap={"total": 2, "per_user": 2}, discount=DISCOUNT)
    yesterday = datetime.datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None) - QUARTER
    seeded([(yesterday, {**dict.fromkeys(COUNTS, 0), "redeemed": 5, "discount_minor": 1250})], coupon)
    before = caught_up(stack, coupon, "period=day&tz=UTC")["items"]
    taken = storefront.take(coupon, "u").ok(201)["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{taken}/reverse").expect(200)
    after = caught_up(stack, coupon, "period=day&tz=UTC")["items"]
    assert after[:-1] == before[:-1] and after[-2]["redeemed"] == 5
    assert (after[-1]["redeemed"], after[-1]["reversed"], after[-1]["discount_minor"]) == (1, 1, 0), after[-1]


def test_each_kind_of_entry_has_its_column(stack, storefront):
    coupon = stack.coupon(slots=9, cap={"total": 9, "per_user": 9}, discount=DISCOUNT)

    issued = storefront.take(coupon, "u", state="issued").ok(201)
    storefront.take(coupon, "u", state="issued").ok(201)
    storefront.step(issued, "redeem").expect(200)
    held = storefront.take(coupon, "u", state="reserved", order={"id": "o-1", "amount_minor": 900, "currency": "EUR"}).ok(201)
    storefront.step(held, "cancel").expect(200)
    storefront.take(coupon, "u", state="reserved", reserve_s=1).ok(201)
    storefront.step(storefront.take(coupon, "u").ok(201), "reverse").expect(200)
    wait_until("the hold to expire", lambda: stack.counts(coupon)["reserved"] == 0, every=0.2)

    def said():
        return {name: total(report(stack, coupon), name) for name in COUNTS[:6]}

    expected = {"issued": 2, "reserved": 2, "redeemed": 2, "cancelled": 1, "expired": 1, "reversed": 1}
    wait_until(lambda: f"the report to be {expected}: {said()}", lambda: said() == expected, every=0.2)


def test_each_answer_is_exact_for_its_seq_while_takings_come_in(stack):
    """Rows hold what the ledger says up to as_of.seq, no more and no less."""
    coupon = stack.coupon(slots=10_000, cap={"total": 10_000}, discount=DISCOUNT)
    seen, turns = {}, itertools.count(1)

    def looked():
        said = report(stack, coupon)
        seen[said["as_of"]["seq"][0]] = total(said, "redeemed")
        return next(turns) > 40 and len(seen) > 5

    with Swarm([stack.way()], takers(coupon), connections=16):
        wait_until(lambda: f"more than five of {seen}", looked, every=0.05)
    truth, upto = {0: 0}, 0
    for batch in ledger.LaneLedger(stack, coupon).batches:
        upto += sum(e["kind"] == "redeem" for e in batch["entries"])
        truth[batch["seq"]] = upto
    wrong = {seq: (n, truth[seq]) for seq, n in seen.items() if n != truth[seq]}
    assert not wrong, f"seq: (reported, ledger): {wrong}"


def test_totals_that_are_ahead_of_their_mark_are_not_told(stack, reporting):
    """As when a reporter dies between its two writes while a quarter hour ends: they would be more than as_of says."""
    coupon = stack.coupon()
    caught_up(stack, coupon)
    now = datetime.datetime.now(UTC).replace(tzinfo=None)
    later = now - (now - datetime.datetime.min) % QUARTER + 4 * QUARTER
    ahead = {"_id": {"c": coupon, "l": 0, "at": later}, "seq": 10**6}
    target = f"/coupons/{coupon}/reports?period=hour&from={now.isoformat()}Z&to="
    stack.database.totals.insert_one({**ahead, "order_minor": 1, **dict.fromkeys(COUNTS, 1)})
    try:
        reporting.get(f"{target}{(later + QUARTER).isoformat()}Z", may_fail=True).problem("busy")
        reporting.get(f"{target}{(now + datetime.timedelta(microseconds=1000)).isoformat()}Z").expect(200)
    finally:
        stack.database.totals.delete_one(ahead)
    assert total(reporting.get(f"{target}{(later + QUARTER).isoformat()}Z").ok(), "redeemed") == 0


def test_a_long_report_is_sent_whole(stack, reporting, seeded):
    """Longer than what is sent at once: as JSON, as CSV, and without body for HEAD."""
    coupon = seeded([(datetime.datetime(2026, 1, 1, 12), {**dict.fromkeys(COUNTS, 0), "redeemed": 3})])
    target = f"/coupons/{coupon}/reports?period=hour&from=2025-11-01T00:00:00Z&to=2026-11-01T00:00:00Z"
    said = reporting.get(target).ok()
    assert len(said["items"]) == 365 * 24 and total(said, "redeemed") == 3 and said["as_of"]["seq"]
    reply = reporting.get(target, headers={"Accept": "text/csv"}).expect(200)
    assert len(reply.body.splitlines()) == 365 * 24 + 1
    assert reporting.request("HEAD", target).expect(200).body == b""


def make_days(database, days):
    """Totals of a thousand coupons on each of the first days of 2024, which the database makes: to send them costs more than the reports.
    How much was redeemed."""
    day_ms, quarter_ms = 86_400_000, 900_000

    def up_to(number, unit):
        return {"$toLong": {"$multiply": [unit, {"$floor": {"$multiply": [number, {"$rand": {}}]}}]}}

    database.seed.insert_one({})
    database.seed.aggregate([
        {"$project": {"c": {"$range": [0, 1000]}, "day": {"$range": [0, days]}}}, {"$unwind": "$c"}, {"$unwind": "$day"},
        {"$project": {
            "_id": {"c": {"$concat": ["year-", {"$toString": "$c"}]}, "l": {"$literal": 0},
                    "at": {"$add": [datetime.datetime(2024, 1, 1), {"$multiply": ["$day", day_ms]}, up_to(96, quarter_ms)]}},
            "seq": {"$literal": 1}, "order_minor": {"$literal": 0}, **{name: {"$literal": 0} for name in COUNTS},
            "redeemed": {"$add": [1, up_to(49, 1)]}}},
        {"$out": "totals"}])
    database.seed.drop()
    return next(database.totals.aggregate([{"$group": {"_id": None, "all": {"$sum": "$redeemed"}}}]))["all"]


@pytest.mark.full
def test_days_of_a_thousand_coupons_are_read_once(another_stack, tmp_path, figure):
    """Summed, and each by itself: the database looks at each row and its key once. On a copy of its own: the shared one has more than a
    thousand coupons, and their rows would be too many. By curl: the answer is too long for the client here."""
    stack, days, coupons, path = another_stack(), 121, 1000, tmp_path / "report.json"
    key = stack.client("reporting").key

    def ask(url):
        """Seconds, and what was looked at; unless the machine has so much other work that it is `busy`."""
        before = scanned(stack)
        asked = subprocess.run(["curl", "-s", "-o", path, "-w", "%{http_code} %{time_total}", "-H", f"Authorization: Bearer {key}", url],
                               capture_output=True, timeout=120)
        status, took_s = asked.stdout.split()
        assert status in (b"200", b"503"), path.read_text()
        return status == b"200" and (float(took_s), scanned(stack) - before)

    redeemed = make_days(stack.database, days)
    target = "/coupons/-/reports?period=day&tz=UTC&from=2024-01-01T00:00:00Z&to=2024-05-01T00:00:00Z"
    for more, rows in (("", days), ("&group=coupon", days * coupons)):
        took_s, looked = wait_until("the report", lambda: ask(f"http://127.0.0.1:{stack.port}{target}{more}"))
        said = json.loads(path.read_bytes())
        assert len(said["items"]) == rows and total(said, "redeemed") == redeemed
        assert days * coupons <= looked < 2 * days * coupons + 100 * coupons, looked
        figure(f"a report of {rows:,} rows of {coupons:,} coupons: {took_s:.1f} s, {looked:,} documents and keys looked at")


# ---- bad questions ----

BAD = {
    "period=fortnight": "period", "period=": "period", "period=Day": "period", "from=yesterday": "from", "to=x": "to",
    "tz=Europe/Atlantis": "tz", "tz=": "tz", "tz=%C3%28": "tz", "tz=%24x": "tz", "from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z": "from",
    "from=2026-02-01T00:00:00Z&to=2026-02-01T00:00:00Z": "from", "from=2199-01-01T00:00:00Z": "from",
    "from=0001-01-01T00:00:00Z&to=9999-12-31T00:00:00Z": "1970", "from=1969-12-31T23:59:59Z": "1970", "to=2500-01-01T00:00:00Z": "2200",
    "period=total&from=0001-01-01T00:00:00Z": "1970", "period=hour&from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z": "10000 periods",
    "period=day&from=1970-01-01T00:00:00Z&to=2200-01-01T00:00:00Z": "10000 periods",
}


@pytest.mark.parametrize("query", BAD)
def test_bad_questions_are_refused_and_told_why(stack, reporting, query):
    coupon = stack.coupon()
    for whose in (coupon, "-"):
        said = reporting.get(f"/coupons/{whose}/reports?{query}").problem("bad_request")
        assert BAD[query] in said["detail"], said["detail"]


@pytest.mark.parametrize("query", ["tz=%00", "coupon=%zz"])
def test_addresses_that_are_none_are_refused(stack, reporting, query):
    reporting.get(f"/coupons/{stack.coupon()}/reports?{query}").problem("bad_request")


def test_a_report_of_too_many_rows_says_so(stack, reporting, seeded):
    coupons = [stack.coupon() for _ in range(60)]
    await_names(reporting, coupons)
    span = "period=hour&from=2025-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"
    said = reporting.get(f"/coupons/-/reports?{span}&group=coupon&coupon={','.join(coupons)}").problem("bad_request")
    assert "525600 rows" in said["detail"] and "500000" in said["detail"], said["detail"]


def test_a_report_of_nothing_is_not_found(stack, reporting, ops):
    coupon, gone = stack.coupon(), stack.coupon()
    ops.delete(f"/coupons/{gone}").expect(204)
    reporting.get("/coupons/never-made/reports?period=day").problem("coupon_not_found")
    said = reporting.get(f"/coupons/-/reports?coupon={coupon},never-made").problem("coupon_not_found")
    assert "never-made" in said["detail"]
    for names in (gone, "a%20b", "%2e", "-"):
        reporting.get(f"/coupons/-/reports?coupon={names}").problem("coupon_not_found")
    for query in ("coupon=", "coupon=a,", "coupon=,", f"coupon={coupon}&group=user", f"coupon={coupon}&group="):
        reporting.get(f"/coupons/-/reports?{query}").problem("bad_request")
    for query in ("coupon=a", "group=coupon"):
        reporting.get(f"/coupons/{coupon}/reports?{query}").problem("bad_request")
    assert reporting.get(f"/coupons/-/reports?coupon={coupon},{coupon}&group=coupon&period=total").ok()["items"][0]["coupon"] == coupon


def test_time_moves_on_over_several_quiet_coupons(stack, reporting):
    coupons = [stack.coupon() for _ in range(3)]
    await_names(reporting, coupons)
    names = ",".join(coupons)
    wait_until("as_of to be of now", lambda: (reporting.get(f"/coupons/-/reports?coupon={names}").ok()["as_of"]["lag_ms"] or 9999) < 3000,
               every=0.3)
    first = reporting.get(f"/coupons/-/reports?coupon={names}").ok()["as_of"]["at"]
    wait_until("as_of to move on again", lambda: reporting.get(f"/coupons/-/reports?coupon={names}").ok()["as_of"]["at"] > first,
               every=0.3)


def test_time_moves_on_though_a_coupon_was_archived(stack, reporting, ops):
    archived, other = stack.coupon(slots=1), stack.coupon()
    stack.client("storefront").take(archived, "u").expect(201)
    stack.patch(archived, {"state": "ended"})
    ops.post(f"/coupons/{archived}/archive").expect(204)
    last = caught_up(stack, archived)
    time.sleep(1)
    now = datetime.datetime.now(UTC).isoformat()
    for target in (f"/coupons/{archived}/reports?", f"/coupons/-/reports?coupon={archived},{other}"):
        wait_until("as_of to move on", lambda target=target: reporting.get(target).ok()["as_of"]["at"] > now, every=0.2)
    assert report(stack, archived)["as_of"]["seq"] == last["as_of"]["seq"] and total(report(stack, archived), "redeemed") == 1


@pytest.mark.full
def test_time_moves_on_over_many_coupons_a_few_at_a_time(beside):
    """However long nobody asked: one question has sixty at the most ticked, who stand farthest back, and none that are deleted."""
    stack = beside()
    ops, reporting = stack.client("ops"), stack.client("reporting")
    ledger_of = stack.database["ledger"]
    gone = [stack.coupon() for _ in range(70)]
    for coupon in gone:
        ops.delete(f"/coupons/{coupon}").expect(204)
    coupons = [stack.coupon() for _ in range(130)]

    def positions():
        return {m["_id"]["c"]: m["seq"] for m in stack.database["totals_positions"].find()}

    wait_until("all to be counted", lambda: len(positions()) == 200)
    time.sleep(3)  # longer than two ticks: of so many lanes, each has its turn every two
    made = ledger_of.count_documents({})
    reporting.get("/coupons/-/reports").expect(200)
    wait_until("the ticks", lambda: ledger_of.count_documents({}) >= made + 60)
    time.sleep(0.5)
    assert ledger_of.count_documents({}) == made + 60
    ticked = {batch["_id"]["c"] for batch in ledger_of.find({"e.k": "tick"})}
    assert len(ticked) == 60 and ticked <= set(coupons), ticked
    first = datetime.datetime.now(UTC).isoformat()
    wait_until("as_of to move on", lambda: reporting.get("/coupons/-/reports").ok()["as_of"]["at"] > first, every=0.2)
    assert {batch["_id"]["c"] for batch in ledger_of.find({"e.k": "tick"})} == set(coupons)
    stack.verify()


# ---- refusals ----

def refusals(stack, coupon, query=""):
    return stack.client("reporting").get(f"/coupons/{coupon}/refusals{query}").ok()


def await_refusals(stack, coupon, expected):
    wait_until(lambda: f"{expected} of {coupon}: {refusals(stack, coupon)['counts']}",
               lambda: refusals(stack, coupon)["counts"] == expected, every=0.1)


def test_refusals_are_counted_by_code_over_all_workers_and_their_deaths(stack, storefront, reporting):
    coupon, other = stack.coupon(slots=1), stack.coupon(slots=1)
    assert refusals(stack, coupon)["counts"] == {}
    storefront.take(coupon, "u").expect(201)
    for _ in range(3):
        storefront.take(coupon, "u").problem("user_cap_reached")
    for i in range(2):
        for user in ("v", "w"):
            stack.direct(i).take(coupon, user).problem("sold_out")
    storefront.post(f"/coupons/{coupon}/check", {"user": "u"}).expect(200)
    expected = {"user_cap_reached": 3, "sold_out": 4}
    await_refusals(stack, coupon, expected)
    said = refusals(stack, coupon)
    assert said["total"] == 7 and set(said) == {"since", "counts", "total"}, said
    ago = datetime.datetime.now(UTC) - datetime.datetime.fromisoformat(said["since"].replace("Z", "+00:00"))
    assert datetime.timedelta(89) < ago < datetime.timedelta(91), said
    stack.kill_workers()
    assert refusals(stack, coupon)["counts"] == expected, "they outlive the workers"
    storefront.take(coupon, "x").problem("sold_out")
    await_refusals(stack, coupon, {**expected, "sold_out": 5})
    assert refusals(stack, other)["counts"] == {}
    reporting.get("/coupons/never-made/refusals").problem("coupon_not_found")


def test_reports_hold_the_refusals_of_each_period(stack, storefront, reporting):
    coupon, other = stack.coupon(slots=1), stack.coupon()
    storefront.take(coupon, "u").expect(201)
    for user in ("u", "v", "w"):
        storefront.take(coupon, user)
    storefront.take(other, "v").problem("sold_out")
    expected = {"user_cap_reached": 1, "sold_out": 2}
    await_refusals(stack, coupon, expected)
    await_refusals(stack, other, {"sold_out": 1})
    await_names(reporting, [coupon, other])
    long_ago = datetime.datetime(2026, 3, 1, 12, 20)
    for i, counts in enumerate(({"sold_out": 4, "of_a_later_version": 9}, {"sold_out": 1, "code_taken": 2}, {"sold_out": "?"})):
        stack.database.refusals.insert_one({"_id": {"c": coupon, "at": long_ago.replace(minute=15 * i), "w": f"w-{i}"}, **counts})
    try:
        now = [row for row in report(stack, coupon, "period=day&tz=UTC")["items"] if row["refused"]]
        assert sum(row["refused"] for row in now) == 3 and 1 <= len(now) <= 2, now
        (hour,) = report(stack, coupon, "period=hour&from=2026-03-01T12:00:00Z&to=2026-03-01T13:00:00Z&tz=UTC")["items"]
        assert (hour["refused"], hour["refusals"]) == (7, {"sold_out": 5, "code_taken": 2}), "what cannot be read is passed over"
        (whole,) = report(stack, coupon, "period=total")["items"]
        assert whole["refusals"] == expected and whole["redeemed"] == 1, whole
        query = f"/coupons/-/reports?period=total&coupon={coupon},{other}"
        (both,) = reporting.get(query).ok()["items"]
        assert both["refusals"] == {**expected, "sold_out": 3}, both
        said = {row["coupon"]: row["refusals"] for row in reporting.get(f"{query}&group=coupon").ok()["items"]}
        assert said == {coupon: expected, other: {"sold_out": 1}}
        assert refusals(stack, coupon, "?from=2026-03-01T12:10:00Z&to=2026-03-01T12:15:00Z")["counts"] == {"sold_out": 4}
        assert refusals(stack, coupon, "?from=2026-03-01T12:10:00Z&to=2026-03-01T12:15:00.001Z")["total"] == 7
    finally:
        stack.database.refusals.delete_many({"_id.c": coupon, "_id.at": {"$lt": datetime.datetime(2026, 3, 2)}})
    for query in ("?from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z", "?from=yesterday"):
        reporting.get(f"/coupons/{coupon}/refusals{query}").problem("bad_request")


def test_a_worker_that_stops_writes_what_it_refused(beside):
    stack = beside()
    coupon = stack.coupon(slots=1)
    for i in range(WORKERS):
        stack.direct(i).take(coupon, f"u-{i}")
    stack.direct(0).take(coupon, "last").problem("sold_out")
    stack.rest()
    assert sum(row.get("sold_out", 0) for row in stack.database.refusals.find({"_id.c": coupon})) == WORKERS


def test_what_was_refused_is_counted_once_however_often_it_is_written(beside):
    """It takes what is written, and says that this may not last: the same is written again."""
    stack = beside()
    coupon = stack.coupon(slots=1)
    storefront = stack.direct(0)
    storefront.take(coupon, "u").expect(201)
    seen = len(stack.log())
    with Failing(stack, "refusals", "update", writeConcernError={"code": 64, "errmsg": "waiting for replication timed out"}):
        storefront.take(coupon, "v").problem("sold_out")
        wait_until("two writings of unknown outcome", lambda: stack.log()[seen:].count("store.unknown code=64") >= 2)
    storefront.take(coupon, "w").problem("sold_out")
    await_refusals(stack, coupon, {"sold_out": 2})


def test_what_was_refused_is_forgotten_after_so_many_days(beside):
    stack = beside("[refusals]\nkeep_days = 3\n")
    coupon = stack.coupon()
    now = datetime.datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    stack.database.refusals.insert_many([{"_id": {"c": coupon, "at": now - datetime.timedelta(days), "w": "w"}, "sold_out": days}
                                         for days in (2, 4, 5)])
    stack.kill("runner")  # whose successor begins with all that is to be done
    wait_until("what is older to be gone", lambda: stack.database.refusals.count_documents({"_id.c": coupon}) == 1)
    assert refusals(stack, coupon)["counts"] == {"sold_out": 2}


# ---- couponctl report ----

def test_couponctl_prints_tables_and_csv(stack, seeded):
    start = datetime.datetime(2026, 5, 1)
    coupon = seeded([(start + datetime.timedelta(i), {**dict.fromkeys(COUNTS, 0), "redeemed": n, "discount_minor": 50 - n})
                     for i, n in enumerate((100, 50, 0))])
    span = ["--from", "2026-05-01T00:00:00Z", "--to", "2026-05-04T00:00:00Z"]

    def lines(*arguments, status=0):
        return stack.ctl("report", *arguments, status=status).splitlines()

    table = lines(coupon, *span)
    assert table[0].split() == ["START", "ISSUED", "RESERVED", "REDEEMED", "CANCELLED", "EXPIRED", "REVERSED", "DISCOUNT", "REFUSED"]
    assert table[1].split() == ["2026-05-01T00:00:00.000+00:00", "0", "0", "100", "0", "0", "0", "-50", "0"]
    assert table[-1].startswith("complete up to ") and len(table) == 5
    assert lines(coupon, *span, "--csv")[1] == "2026-05-01T00:00:00.000+00:00,0,0,100,0,0,0,-50" + ",0" * (1 + len(REFUSALS)) + ",-50,0"
    other = stack.coupon()
    await_names(stack.client("reporting"), [coupon, other])
    grouped = lines(coupon, other, "--group", *span)
    assert grouped[0].split()[0] == "COUPON" and len(grouped) == 8 and {row.split()[0] for row in grouped[1:7]} == {coupon, other}
    assert lines(coupon, other, *span, "--period", "total")[1].split()[3] == "150"
    assert lines("-", "--period", "total")[0].split()[0] == "START"
    stack.client("storefront").take(coupon, "u").problem("sold_out")
    await_refusals(stack, coupon, {"sold_out": 1})
    assert lines(coupon, "--period", "total")[2] == "refused: 1 sold_out"
    lines(coupon, "-", status=2)
    lines(coupon, "--tz", "Mars/Olympus", status=1)


# ---- the reporter itself ----

def test_time_moves_on_in_a_quiet_coupon_while_somebody_reads(stack, storefront):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    first = caught_up(stack, coupon)["as_of"]["at"]
    wait_until(lambda: f"as_of to move on from {first}", lambda: report(stack, coupon)["as_of"]["at"] > first, every=0.2)
    stack.verify(coupon)


def test_a_batch_that_cannot_be_read_holds_up_its_own_coupon_alone(beside):
    """A newer version's, or damage: neither those whose batches come in nor those that a new reporter has to look through."""
    stack = beside()
    storefront, batches = stack.direct(0), stack.database["ledger"]
    damaged, begun, other = (stack.coupon(slots=9, id=name, cap={"per_user": 9}) for name in ("a-damaged", "b-begun", "c-other"))
    for coupon in (damaged, begun):
        caught_up(stack, coupon)
    stack.signal("reporter", signal.SIGSTOP)
    storefront.take(damaged, "u").expect(201)
    unread = [batches.find_one({"_id.c": damaged, "e.k": "redeem"}), batches.find_one({"_id": {"c": begun, "l": 0, "seq": 1}})]
    for batch in unread:
        batches.update_one({"_id": batch["_id"]}, {"$set": {"e.0.k": "future"}})
    for taken in (1, 2):
        stack.kill("reporter")
        storefront.take(damaged, "u").expect(201)
        storefront.take(other, "u").expect(201)
        assert total(caught_up(stack, other), "redeemed") == taken
    position = stack.database["totals_positions"].find_one({"_id": {"c": damaged, "l": 0}})
    assert position["seq"] < unread[0]["_id"]["seq"], "more is reported than was read"
    for batch in unread:
        batches.replace_one({"_id": batch["_id"]}, batch)
    assert total(caught_up(stack, damaged), "redeemed") == 3
    stack.verify()


def test_batches_of_a_stream_whose_history_is_lost_are_read_from_the_ledger(beside):
    """The reporter sleeps while they are appended; the stream then begins anew, after them."""
    stack = beside()
    coupon, quiet = (stack.coupon(slots=9, cap={"per_user": 9}) for _ in range(2))
    assert stored(stack, coupon) == stored(stack, quiet) == 0
    with asleep(stack, ["reporter"]):
        for taken in (coupon, quiet, coupon):
            stack.direct(0).take(taken, "u").expect(201)
        Failing(stack, "ledger", "getMore", mode={"times": 1}, errorCode=286)
    wait_until("the history to be lost", lambda: "event=feed.history_lost" in stack.log())
    assert (stored(stack, coupon), stored(stack, quiet)) == (2, 1)
    stack.direct(0).take(coupon, "u").expect(201)
    assert stored(stack, coupon) == 3
    stack.verify()


@pytest.mark.full
def test_checkpoints_that_the_database_does_not_give_are_asked_for_as_often_as_before(beside):
    """That is no lane's failure: none is left alone for longer and longer, and all are looked after once it answers again."""
    stack = beside("[worker]\ncheckpoint_ms = 1\n")
    coupon = stack.coupon(slots=9)
    stack.direct(0).take(coupon, "before").expect(201)
    before = len(stack.log())

    def looks():
        return [line for line in stack.log()[before:].splitlines() if "role=reporter" in line and "store.failed command=find" in line]

    with Failing(stack, "lanes", "find", "update"):
        stack.direct(0).take(coupon, "u").expect(201)
        wait_until("the tenth look, after which it would be alone for minutes", lambda: len(looks()) >= 10)
    wait_until("the checkpoint", lambda: stack.is_written(coupon))
    stack.verify()


def stored(stack, coupon):
    """What the rows of the coupon's totals say was redeemed, once they hold all of it; a report would add what is missing."""
    seq = stack.counts(coupon)["seq"]
    reached = {"_id": {"c": coupon, "l": 0}, "seq": {"$gte": seq}}
    wait_until(f"the totals of {coupon} to reach seq {seq}", lambda: stack.database["totals_positions"].find_one(reached))
    return sum(row.get("redeemed", 0) for row in stack.database["totals"].find({"_id.c": coupon}))


@pytest.mark.full
def test_totals_that_cannot_be_read_hold_up_their_own_coupon_alone(beside):
    """Damage in a row of totals: those coupons wait, which the log says once; repaired or removed, they are counted on."""
    left_s = QUARTER.total_seconds() - time.time() % QUARTER.total_seconds()
    stack = beside(clock_offset_s=0 if left_s > 300 else int(left_s) + 1)  # its quarter hour lasts a while yet
    storefront, rows = stack.direct(0), stack.database["totals"]
    damages = {"a-seq": {"seq": "?"}, "b-count": {"redeemed": "?"}, "c-removed": {"seq": "?"}}
    for coupon in (*damages, "d-other"):
        stack.coupon(slots=9, id=coupon, cap={"per_user": 9})
        storefront.take(coupon, "u").expect(201)
        assert stored(stack, coupon) == 1
    whole = {coupon: rows.find_one({"_id.c": coupon}) for coupon in damages}
    for coupon, row in whole.items():
        rows.update_one({"_id": row["_id"]}, {"$set": damages[coupon]})
        storefront.take(coupon, "u").expect(201)
    storefront.take("d-other", "u").expect(201)
    assert stored(stack, "d-other") == 2
    before = len(stack.log())
    stack.kill("reporter")
    storefront.take("d-other", "u").expect(201)
    assert stored(stack, "d-other") == 3
    wait_until("the log to tell of each", lambda: stack.log()[before:].count("event=totals.unreadable ") == 3)
    for coupon, row in whole.items():
        position = stack.database["totals_positions"].find_one({"_id": {"c": coupon, "l": 0}})
        assert position["seq"] <= row["seq"], "more is reported than was counted"
        if coupon == "c-removed":
            rows.delete_one({"_id": row["_id"]})
        else:
            rows.update_one({"_id": row["_id"]}, {"$set": {name: row[name] for name in damages[coupon]}})
        assert stored(stack, coupon) == (1 if coupon == "c-removed" else 2), "of the removed row the second alone is left"
    said = [line for line in stack.log()[before:].splitlines() if "event=totals.unreadable " in line]
    assert len(said) == 3, f"reported more than once: {said}"
    stack.verify("a-seq", "b-count", "d-other")


def test_counts_add_up_over_two_coupons_side_by_side(stack, storefront):
    """The reporter folds batches of many coupons at once; none gets another's."""
    coupons = [stack.coupon(slots=20, cap={"total": 20, "per_user": 20}, discount=DISCOUNT) for _ in range(5)]
    for i, coupon in enumerate(coupons):
        storefront.take_each(coupon, ["u"] * (i + 1))
    for i, coupon in enumerate(coupons):
        said = caught_up(stack, coupon)
        assert (total(said, "redeemed"), total(said, "discount_minor")) == (i + 1, 250 * (i + 1))


@pytest.mark.heavy
def test_a_reporter_that_is_killed_again_and_again_counts_every_batch_once(stack):
    """kill -9 at random moments under load: the totals equal the ledger."""
    chance = random.Random(5)
    coupons = [stack.coupon(slots=50_000, cap={"total": 50_000}, discount=DISCOUNT) for _ in range(4)]
    calls = (take(coupons[i % 4], f"u-{i}", f"k-{i}") for i in range(1_000_000))
    with Swarm([stack.way()], calls, connections=32) as crowd:
        for _ in range(effort(3, 6, 20)):
            stack.kill("reporter")
            crowd.more(chance.randrange(50, 600))
        assert crowd.is_alive(), "the load ended before the reporter was disturbed"
    for coupon in coupons:
        equals_ledger(stack, coupon)
        stack.verify(coupon)
