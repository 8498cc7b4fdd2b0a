"""What a call, a chore and a process cost where there are many coupons, by what the database examined, and by memory: never all of them."""
import collections
import datetime
import pathlib
import time

import bson
import pytest

from effort import effort
from many import DAY, Many, Template, start_service, watermark
from profiler import examined, profiled, shape
from receiver import Receiver
from stack import WEBHOOKS, processor_s, wait_until

FEW, MANY = effort((100, 5000), (100, 5000), (1000, 100_000))
ACTIVE = 20  # one of so many is
PAGE = 100   # of a list
REPORT = "a report over all"
# Keys and documents that a call may examine: a page or two, whatever there is; and all commands of one kind in a start, which
# finds what reports have ticked. To look at each of MANY coupons takes many times that.
MOST, MOST_IN_A_START = 500, 4000
OVER = ("coupons", "query", "cleaned view.cleanup")  # the sweeper's look for what is over
DOORBELL = ("ledger", "getmore", "$changeStream")  # looks at whatever anybody writes, for as long as it is watched


def costs(entries):
    """What each shape cost, all of them together; of the doorbell, the dearest one."""
    total = collections.Counter()
    for entry in entries:
        kind, cost = shape(entry), examined(entry)
        total[kind] = max(total[kind], cost) if kind == DOORBELL else total[kind] + cost
    return total


def calls(stack):
    """Each kind of call that is not about one coupon alone."""
    ops, shop, reporting = stack.client("ops"), stack.client("storefront"), stack.client("reporting")
    today = time.strftime("%Y-%m-%dT00:00:00.000Z", time.gmtime())
    return {
        "the active ones": lambda: shop.get("/coupons?active=true"),
        "a list": lambda: ops.get(f"/coupons?limit={PAGE}"),
        "drafts": lambda: ops.get(f"/coupons?state=draft&limit={PAGE}"),
        "a wallet": lambda: shop.get("/coupons/-/users/nobody"),
        "jobs": lambda: ops.get("/coupons/-/jobs"),
        "a code": lambda: shop.post("/coupons/-/resolve", {"code": "ABCDEFGH", "user": "u"}),
        "metrics": lambda: ops.get("/coupons/-/metrics"),
        REPORT: lambda: reporting.get(f"/coupons/-/reports?from={today}"),
        "an erasure": lambda: ops.delete("/coupons/-/users/nobody"),
    }


def cost_of_calls(stack, size):
    """What each examined, with what chores did meanwhile."""
    costs = {}
    for what, call in calls(stack).items():
        with profiled(stack.database) as entries:
            start = time.monotonic()
            reply = call()
            took = time.monotonic() - start
        assert reply.status in (200, 204), reply
        costs[what] = sum(map(examined, entries))
        print(f"figure: of {size} coupons: {what}: {took * 1000:.0f} ms, {costs[what]} keys and documents")
    return costs


def start_filled(stack, many, size, chores=frozenset()):
    """Start the service with so many coupons: each chore runs once, these among them. What its commands were."""
    stack.rest()
    many.fill(size - size // ACTIVE, size // ACTIVE)
    looks = stack.log().count("event=reporter.caught_up")
    with profiled(stack.database) as entries:
        start = time.monotonic()
        start_service(stack)
        wait_until("the reporter to catch up", lambda: stack.log().count("event=reporter.caught_up") > looks, seconds=900)
        print(f"figure: of {size} coupons: started, and caught up, after {time.monotonic() - start:.1f} s")
        profile = stack.database["system.profile"]

        def missing():
            return {OVER, *chores} - {shape(entry) for entry in profile.find({"appName": "coupons"})}

        wait_until(lambda: f"each chore: {missing()}", lambda: not missing(), every=0.5)
    return entries


@pytest.fixture
def receiver():
    with Receiver() as one:
        yield one


@pytest.mark.full
@pytest.mark.heavy
def test_no_command_looks_at_all_coupons(another_stack, receiver):
    """Neither those of calls nor those of chores. A start runs each chore."""
    stack = another_stack(WEBHOOKS)
    stack.client("ops").post("/coupons/-/webhooks", {"url": receiver.url}).expect(201)
    many = Many(stack)
    few = costs(start_filled(stack, many, FEW)), cost_of_calls(stack, FEW)
    chores, asked = costs(start_filled(stack, many, MANY, set(few[0]))), cost_of_calls(stack, MANY)
    assert {what: cost for what, cost in chores.items() if cost > MOST_IN_A_START} == {}
    # a report looks at the definition and the position of each, and at nothing else of those that had no takings in its time
    assert asked.pop(REPORT) <= MOST + 4 * MANY
    # the active ones are sorted by when they were made
    assert {what: cost for what, cost in asked.items() if cost > MOST + 4 * MANY // ACTIVE} == {}


ENDED, COMING = 100_000, 4000  # coupons that were there before a start; that get their ledgers while it runs, each time
WAVES = 5                      # what grows, grows with each; an allocator may keep what it had at most
GROWTH_MIB = 2                 # of a process: less than a row of the deliverer for each of COMING
WORK_S = 4                     # how long the processor's time is taken


def memory_mib(pid):
    fields = pathlib.Path(f"/proc/{pid}/status").read_text().split()
    return int(fields[fields.index("RssAnon:") + 1]) / 1024


def more_work(before, after):
    return {name: s for name, s in after.items() if s > before[name] + 0.02 * WORK_S}


def standing(stack, few=None):
    """Memory of each process, and the processor time of each in a while in which nothing is asked; the least of three. Of more, as long
    as it is more than of the few: what a slow machine adds, it does not add each time."""
    pids = stack.pids()
    work = dict.fromkeys(pids, WORK_S)
    for turn in range(6):
        if turn >= 3 and not (few and more_work(few, work)):
            break
        before = {name: processor_s([pid]) for name, pid in pids.items()}
        time.sleep(WORK_S)
        work = {name: min(work[name], processor_s([pid]) - before[name]) for name, pid in pids.items()}
    return {name: memory_mib(pid) for name, pid in pids.items()}, work


def positions(hook, names):
    """What an older deliverer would have left: of each it has delivered all."""
    return [{"_id": {"h": hook, "c": name, "l": 0}, "at": {"seq": 99, "event": 0}, "attempts": 0,
             "not_before": datetime.datetime.fromtimestamp(0, datetime.timezone.utc)} for name in names]


def grown(before, after):
    return {name: now for name, now in after.items() if now > before[name] + GROWTH_MIB}


def come(stack, many, hook, names):
    """Each gets its ledger now: the server gives its time of arrival. Until all of it is done, and below the watermarks."""
    template = many.templates["ended"]
    for collection in ("coupons", "lanes"):
        stack.database[collection].insert_many(list(template.copies(collection, names)), ordered=False)
    ledger = [{**document, "arrived": bson.Timestamp(0, 0)} for document in template.copies("ledger", names)]
    stack.database.ledger.insert_many(ledger)
    newest = stack.database.ledger.find_one({}, sort=[("arrived", -1)])["arrived"]
    prefix = {"_id.c": {"$regex": f"^{names[0][:-1]}"}}
    wait_until("their totals", lambda: stack.database.totals_positions.count_documents(prefix) == len(names), every=0.5)
    many.taken(many.active())  # or no watermark would come past them
    wait_until("the watermarks to pass them", lambda: min(
        watermark(stack), stack.database.webhooks.find_one({"_id": hook})["arrived"]) > newest, every=0.5)
    wait_until("their positions to go", lambda: not stack.database.webhook_positions.find_one(prefix), every=0.5)


@pytest.mark.full
@pytest.mark.heavy
@pytest.mark.timed
def test_nothing_grows_with_coupons_that_have_ended(another_stack, receiver):
    """Neither memory nor work: whatever arrived before the watermarks is known to nobody, whether a process has seen it or not."""
    stack = another_stack(WEBHOOKS)
    hook = stack.client("ops").post("/coupons/-/webhooks", {"url": receiver.url, "events": ["coupon.low_stock"]}).expect(201).json()["id"]
    many = Many(stack)
    few = standing(stack)
    stack.rest()
    names = [f"gone-{i}" for i in range(ENDED)]
    template = many.templates["ended"]
    for start in range(0, ENDED, 5000):
        some = names[start:start + 5000]
        for collection in ("ledger", "totals_positions", "lanes", "coupons"):
            stack.database[collection].insert_many(list(template.copies(collection, some)), ordered=False)
        stack.database.webhook_positions.insert_many(positions(hook, some), ordered=False)
    looks = stack.log().count("event=reporter.caught_up")
    start_service(stack)
    wait_until("the reporter to catch up", lambda: stack.log().count("event=reporter.caught_up") > looks, seconds=900)
    wait_until("a deliverer", lambda: stack.database.webhooks.find_one({"_id": hook}).get("owner"))
    ended = standing(stack, few[1])
    after = []
    for wave in range(WAVES):
        come(stack, many, hook, [f"coming-{wave}-{i}" for i in range(COMING)])
        after.append(standing(stack, few[1]))
        if wave and not grown(*(mib for mib, _ in after[-2:])):
            break
    for what, (mib, work) in (("before", few), (f"with {ENDED} ended", ended), *((f"and {COMING} more", one) for one in after)):
        print(f"figure: {what}: " + ", ".join(f"{name} {mib[name]:.1f} MiB {work[name] / WORK_S * 100:.1f} %" for name in mib))
    for (mib, _), (then_mib, then_s) in ((few, ended), after[-2:]):
        assert grown(mib, then_mib) == {}
        assert more_work(few[1], then_s) == {}


@pytest.mark.heavy
def test_a_page_of_a_wallet_ends_after_so_many_coupons(beside):
    """Of most, here, the definition is gone: there is nothing to show of them."""
    stack = beside()
    shown = stack.coupon(slots=3)
    stack.client("storefront").take(shown, "someone").expect(201)
    template, names = Template(stack, shown, DAY), [f"{chr(97 + i % 3)}-{i}" for i in range(2500)]
    stack.rest()
    stack.database.ledger.insert_many(template.copies("ledger", names), ordered=False)
    start_service(stack)
    wallet, position, pages = stack.client("storefront"), "", []
    while not pages or position:
        page = wallet.get(f"/coupons/-/users/someone?limit=1000{position}").ok()
        pages.append([item["coupon"] for item in page["items"]])
        position = f"&cursor={page['next']}" if page["next"] else ""
    assert [] in pages[:-1] and 3 <= len(pages) <= 5, pages
    assert sum(pages, []).count(shown) == 1, pages
    stack.database.ledger.delete_many({"_id.c": {"$in": names}})
