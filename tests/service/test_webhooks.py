"""Webhooks: what is sent, in which order, how often, to whom, and to whom not."""
import base64
import contextlib
import json
import random
import re
import signal
import socket
import ssl
import threading
import time

import pytest

from ledger import LaneLedger
from own_nginx import certificate
from ports import free_port
from receiver import Receiver, assert_signed, is_signed
from stack import PATIENCE_S, WEBHOOKS, WORKERS, Failing, wait_until
from swarm import Swarm, by_code, take, takers
from test_coupons import walk

HOOKS = "/coupons/-/webhooks"
TYPES = ["redemption.batch", "coupon.low_stock", "coupon.sold_out", "coupon.refilled", "coupon.changed"]
FIELDS = {"id", "url", "events", "coupons", "state", "reason", "failing_since", "old_secret_until", "created_at", "changed_at"}


@pytest.fixture
def hook(ops):
    """A function that makes a webhook; they are deleted after the test."""
    made = []

    def make(receiver, **members):
        url = receiver if isinstance(receiver, str) else receiver.url
        made.append(ops.post(HOOKS, {"url": url, **members}).ok(201))
        return made[-1]

    yield make
    for one in made:
        assert ops.delete(f"{HOOKS}/{one['id']}").status in (204, 404)


@pytest.fixture
def receiver():
    with Receiver() as one:
        yield one


def ids_of_ledger(stack, coupon):
    """(seq, id, kind) of every entry of a redemption, as the ledger has it."""
    return [(e["seq"], f"{e['n']}-{e['g']}", e["kind"]) for e in LaneLedger(stack, coupon).entries() if "g" in e]


def received(receiver, coupon):
    return [(event.data["seq"], entry["id"], entry["kind"]) for event in receiver.of("redemption.batch", coupon=coupon)
            for entry in event.data["entries"]]


def wait_for_all(stack, receiver, coupon):
    """Everything that the ledger has, once, in its order; nothing else."""
    def all_there():
        return len(received(receiver, coupon)) >= len(ids_of_ledger(stack, coupon))

    wait_until(lambda: f"{len(ids_of_ledger(stack, coupon))} entries, {len(received(receiver, coupon))} came", all_there)
    assert received(receiver, coupon) == ids_of_ledger(stack, coupon)


def deliveries(ops, hook, **query):
    words = "&".join(f"{k}={v}" for k, v in query.items())
    return walk(ops, f"{HOOKS}/{hook['id']}/deliveries?limit=100&{words}")[0]


# ---- subscriptions ----

def test_a_subscription_is_made_shown_listed_changed_and_deleted(ops, hook):
    made = hook("http://127.0.0.1:1/x", events=["coupon.sold_out", "coupon.changed"], coupons=["a", "b"])
    assert set(made) == FIELDS | {"secret"}, made
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]+=*", made["secret"]) and len(base64.b64decode(made["secret"][6:])) >= 24
    secret = made.pop("secret")
    assert made["events"] == ["coupon.sold_out", "coupon.changed"] and made["coupons"] == ["a", "b"]
    assert (made["state"], made["reason"], made["failing_since"]) == ("enabled", None, None)
    at = f"{HOOKS}/{made['id']}"
    reply = ops.get(at).expect(200)
    assert reply.json() == made and secret.encode() not in reply.body
    listed = ops.get(HOOKS)
    assert made in listed.ok()["items"] and secret.encode() not in listed.body
    changed = ops.patch(at, {"url": "http://127.0.0.1:2/y", "events": ["redemption.batch"], "state": "disabled"}, match=None).ok()
    assert (changed["url"], changed["events"], changed["state"]) == ("http://127.0.0.1:2/y", ["redemption.batch"], "disabled")
    assert changed["reason"] == "asked" and changed["changed_at"] > made["changed_at"] and set(changed) == FIELDS
    assert ops.patch(at, {"state": "enabled"}, match=None).ok()["reason"] is None
    ops.delete(at).expect(204)
    for reply in (ops.get(at), ops.delete(at), ops.patch(at, {}, match=None), ops.post(f"{at}/rotate"), ops.get(f"{at}/deliveries")):
        reply.problem("not_found")


def test_a_subscription_without_more_is_of_all_types_and_coupons(hook):
    made = hook("http://127.0.0.1:1/")
    assert made["events"] == TYPES and made["coupons"] is None


def test_a_secret_may_be_brought_along(hook):
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    assert hook("http://127.0.0.1:1/", secret=secret)["secret"] == secret


@pytest.mark.parametrize("body, at", [
    ({}, "/url"), ({"url": 7}, "/url"), ({"url": "nowhere"}, "/url"), ({"url": "ftp://127.0.0.1/"}, "/url"),
    ({"url": "http://"}, "/url"), ({"url": "http://user:pw@127.0.0.1/"}, "/url"), ({"url": "http://127.0.0.1/#here"}, "/url"),
    ({"url": "http://127.0.0.1/a b"}, "/url"), ({"url": "http://127.0.0.1/ü"}, "/url"),
    ({"url": "http://127.0.0.1/" + "x" * 2000}, "/url"), ({"url": "http://10.0.0.1/"}, "/url"),
    ({"url": "http://127.0.0.1/", "events": []}, "/events"), ({"url": "http://127.0.0.1/", "events": "redemption.batch"}, "/events"),
    ({"url": "http://127.0.0.1/", "events": ["coupon.sold_out", "nothing"]}, "/events/1"),
    ({"url": "http://127.0.0.1/", "events": ["coupon.changed", "coupon.changed"]}, "/events/1"),
    ({"url": "http://127.0.0.1/", "coupons": []}, "/coupons"), ({"url": "http://127.0.0.1/", "coupons": ["a", "-b"]}, "/coupons/1"),
    ({"url": "http://127.0.0.1/", "coupons": ["a"] * 101}, "/coupons"),
    ({"url": "http://127.0.0.1/", "secret": "whsec_short"}, "/secret"), ({"url": "http://127.0.0.1/", "secret": "x" * 40}, "/secret"),
    ({"url": "http://127.0.0.1/", "colour": "red"}, "/colour"), ({"url": "http://127.0.0.1/", "state": "enabled"}, "/state"),
])
def test_a_bad_subscription_is_refused_with_where_and_why(ops, body, at):
    before = ops.get(HOOKS).ok()["items"]
    ops.post(HOOKS, body).problem("bad_request", at=at)
    assert ops.get(HOOKS).ok()["items"] == before


def test_bad_changes_are_refused(ops, hook):
    at = f"{HOOKS}/{hook('http://127.0.0.1:1/')['id']}"
    for body, where in (({"coupons": ["a"]}, "/coupons"), ({"url": "http://10.1.1.1/"}, "/url"), ({"state": "on"}, "/state"),
                        ({"secret": None}, "/secret"), ({"id": "x"}, "/id")):
        ops.patch(at, body, match=None).problem("bad_request", at=where)
    ops.post(f"{at}/rotate", {"keep_s": -1}).problem("bad_request", at="/keep_s")
    ops.post(f"{at}/rotate", {"secret": "whsec_"}).problem("bad_request", at="/secret")
    ops.get(f"{at}/deliveries?state=maybe").problem("bad_request")
    ops.get(f"{at}/deliveries?cursor=AAAA").problem("bad_cursor")
    ops.post(f"{at}/deliveries/none/redeliver").problem("not_found")
    ops.post(f"{HOOKS}/none/test").problem("not_found")


# ---- what is sent ----

def test_every_kind_of_entry_of_a_redemption_comes_signed_and_in_order(stack, storefront, receiver, hook):
    coupon = stack.coupon(20, cap={"per_user": 9}, reserve_s=60)
    made = hook(receiver, coupons=[coupon])
    order = {"id": "o-\"1\"\n", "amount_minor": 1000, "currency": "EUR"}
    storefront.take(coupon, "u-ä\"").expect(201)
    held = storefront.take(coupon, "h", state="reserved", order=order).ok(201)
    path = f"/coupons/{coupon}/redemptions"
    storefront.post(f"{path}/{held['id']}/reserve", {"order": order, "reserve_s": 120}, idempotency_key="x1").ok()
    storefront.post(f"{path}/{held['id']}/redeem", {"order": order}, idempotency_key="x2").ok()
    storefront.post(f"{path}/{held['id']}/reverse").ok()
    issued = storefront.take(coupon, "i", state="issued").ok(201)
    over = storefront.post(f"{path}/{issued['id']}/reserve", {"order": order}, idempotency_key="x3").ok(201)
    storefront.post(f"{path}/{over['id']}/cancel").ok()
    short = storefront.take(coupon, "e", state="reserved", reserve_s=1).ok(201)
    wait_until("the hold to expire", lambda: "expire" in [kind for _, _, kind in ids_of_ledger(stack, coupon)])
    wait_for_all(stack, receiver, coupon)  # before the name goes
    stack.client("ops").delete("/coupons/-/users/i").expect(204)
    wait_for_all(stack, receiver, coupon)
    entries = receiver.entries(coupon)
    assert {e["kind"] for e in entries} == {"redeem", "reserve", "extend", "spend", "reverse", "issue", "hold", "cancel", "expire"}
    assert entries[0]["user"] == "u-ä\"" and entries[0]["slot"] == 0 and entries[0]["ordinal"] == 1
    spend = next(e for e in entries if e["kind"] == "spend")
    assert (spend["id"], spend["order"], spend["was"]) == (held["id"], order["id"], "reserved")
    hold = next(e for e in entries if e["kind"] == "hold")
    assert (hold["id"], hold["from"], hold["user"]) == (over["id"], issued["id"], "i")
    assert [e["id"] for e in entries if e["kind"] == "expire"] == [short["id"]]
    events = receiver.of(coupon=coupon)
    for event in events:
        assert_signed(event, made["secret"])
        assert event.id == f"evt_{coupon}_0_{event.data['seq']}_{event.id.rsplit('_', 1)[1]}"
        assert event.type != "redemption.batch" or set(event.data) == {"coupon", "lane", "seq", "entries"}


def test_stock_and_changes_are_told(stack, ops, storefront, receiver, hook):
    hook(receiver, events=TYPES[1:])
    coupon = stack.coupon(0, cap={"total": 10}, low_stock=1)
    stack.generate(coupon, 4)
    storefront.take_each(coupon, (f"u{i}" for i in range(4)))
    storefront.take(coupon, "late").problem("sold_out")
    stack.generate(coupon, 3)
    stack.patch(coupon, {"state": "paused"})
    other = ops.post("/coupons", {"title": "short-lived", "cap": {"policy": "none"}}).ok(201)["id"]
    ops.delete(f"/coupons/{other}").expect(204)
    wait_until("both", lambda: len(receiver.of(coupon=coupon)) >= 5 and len(receiver.of(coupon=other)) >= 2)
    events = receiver.of(coupon=coupon)
    assert [e.type for e in events] == ["coupon.changed", "coupon.low_stock", "coupon.sold_out", "coupon.refilled", "coupon.changed"]
    assert events[1].data["free"] <= 1 and events[3].data["added"] == 3
    assert events[0].data["definition"]["id"] == coupon and events[0].data["version"] == 1 and events[0].data["by"]
    assert events[4].data["definition"]["state"] == "paused" and events[4].data["version"] == 2
    assert [e.data["deleted"] for e in receiver.of(coupon=other)] == [False, True]
    assert receiver.of(coupon=other)[1].data["definition"] is None


def test_what_was_before_the_subscription_is_not_sent_and_all_after_it_is(stack, storefront, receiver, hook):
    coupon = stack.coupon(50)
    storefront.take_each(coupon, (f"before-{i}" for i in range(20)))
    hook(receiver, coupons=[coupon])
    hook(receiver.url + "/all")
    after = [storefront.take(coupon, f"after-{i}").ok(201)["id"] for i in range(20)]

    def of(path):
        """By id, so that what was sent twice counts once."""
        return {event.id: event for event in receiver.events if event.path == path and event.data["coupon"] == coupon}

    wait_until("all", lambda: len(of("/hook")) + len(of("/hook/all")) >= 40)
    time.sleep(0.3)
    for path in ("/hook", "/hook/all"):
        assert [e["id"] for event in of(path).values() for e in event.data["entries"]] == after, path


def test_a_batch_of_a_thousand_is_cut_into_events_of_at_most_20_kB(stack, storefront, receiver, hook):
    coupon = stack.coupon(1000, cap={"per_user": 1})
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    order = "\x01" * 128
    items = [{"key": f"k{i}", "user": "\"" * 120 + str(i), "order": {"id": order, "amount_minor": 1, "currency": "EUR"}}
             for i in range(1000)]
    storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).expect(200)
    wait_for_all(stack, receiver, coupon)
    events = receiver.of(coupon=coupon)
    assert max(e.size for e in events) <= 20000 < sum(e.size for e in events)
    assert len({e.id for e in events}) == len(events) and any(e.id.endswith("_1") for e in events)
    assert receiver.entries(coupon)[17]["order"] == order
    for event in events:
        assert_signed(event, made["secret"])
    seqs = [(e.data["seq"], int(e.id.rsplit("_", 1)[1])) for e in events]
    assert seqs == sorted(seqs)


def test_an_erased_user_is_not_named_again(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(5)
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    storefront.take(coupon, "to-be-erased").expect(201)
    wait_for_all(stack, receiver, coupon)
    first = receiver.of(coupon=coupon)[0]
    assert first.data["entries"][0]["user"] == "to-be-erased"
    ops.delete("/coupons/-/users/to-be-erased").expect(204)
    wait_until("the note of it", lambda: deliveries(ops, made))
    done = next(d for d in deliveries(ops, made) if d["event"] == first.id)

    def came():
        return [e for e in receiver.events if e.id == first.id]

    before = len(came())
    ops.post(f"{HOOKS}/{made['id']}/deliveries/{done['id']}/redeliver").expect(202)
    wait_until("the repeat", lambda: len(came()) > before)
    again = came()[-1]
    assert again.data["entries"][0]["user"] is None and again.data["entries"][0]["id"] == first.data["entries"][0]["id"]
    for collection in ("deliveries", "webhook_positions", "webhooks"):
        assert "to-be-erased" not in str(list(stack.database[collection].find())), collection


@pytest.mark.parametrize("echo", [lambda body: body, lambda body: json.dumps(json.loads(body)).encode(), lambda body: body.upper(),
                                  lambda body: body.replace(b"/", b"\\/"), lambda body: b"x" * 1018 + b"echoed-me/\xc3\xbc is unknown",
                                  lambda body: b"no such order: ORDER-OF-ECHOED-ME"],
                         ids=["as it is", "in ASCII", "upper case", "slashes escaped", "across the end", "an order"])
def test_an_answer_that_repeats_a_name_is_not_kept(stack, ops, storefront, receiver, hook, echo):
    coupon = stack.coupon(5)
    receiver.answer = lambda event: (200, {}, echo(event.body))
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    storefront.take(coupon, "echoed-me/ü", order={"id": "order-of-echoed-me"}).expect(201)
    one = wait_until("the note of it", lambda: next((d for d in deliveries(ops, made) if d["status"] == 200), None))
    assert one["response"] == "(not kept: it repeats a name that was sent)", one
    assert "echoed-me" not in str(list(stack.database.deliveries.find())).lower()


# ---- at least once, in order ----

def test_kills_of_the_deliverer_lose_nothing(stack, receiver, hook):
    """Under load, with a receiver that fails now and then."""
    chance = random.Random(7)
    receiver.answer = lambda event: chance.choice((200, 200, 200, 200, 500))
    coupons = [stack.coupon(2000, cap={"per_user": 1}) for _ in range(3)]
    hook(receiver, coupons=coupons)
    calls = (take(coupons[i % 3], f"u-{i}", f"k-{i}") for i in range(6000))
    with Swarm([stack.way()], calls, connections=3, pause_s=0.002) as crowd:
        for _ in range(6):
            stack.kill("deliverer")
            crowd.more(3 * chance.randrange(20, 60))
    receiver.answer = lambda event: 200
    assert {call.reply.status for call in crowd.done} == {201}, by_code(crowd.done)
    for coupon in coupons:
        wait_for_all(stack, receiver, coupon)
        taken = [call for call in crowd.done if call.target == f"/coupons/{coupon}/redemptions"]
        assert len([e for e in receiver.entries(coupon) if e["kind"] == "redeem"]) == len(taken)


def two_delivered(stack, receiver, stuck):
    """Two coupons, and the webhook that has delivered everything of them; its deliverer has stopped."""
    made = stack.client("ops").post(HOOKS, {"url": receiver.url}).ok(201)
    coupons = [stack.coupon(slots=9, id=name, cap={"per_user": 9}) for name in (stuck, "b-other")]
    for coupon in coupons:
        stack.direct(0).take(coupon, "u").expect(201)
        wait_for_all(stack, receiver, coupon)
    stack.signal("deliverer", signal.SIGSTOP)
    return made, coupons


def watermark(stack, made):
    return stack.database["webhooks"].find_one({"_id": made["id"]}).get("arrived")


@pytest.mark.full
def test_what_came_while_there_was_no_deliverer_is_found_above_the_watermark(stack, storefront, receiver, hook):
    """Which has passed what was delivered; one of before has none, and every coupon is looked at."""
    coupons = [stack.coupon(9, cap={"per_user": 9}) for _ in range(2)]
    made = hook(receiver)
    first = watermark(stack, made)
    for of_before in (False, True):
        for coupon in coupons:
            storefront.take(coupon, "u").expect(201)
            wait_for_all(stack, receiver, coupon)
        newest = stack.database["ledger"].find_one({"_id.c": coupons[1]}, sort=[("_id", -1)])["arrived"]
        storefront.take(coupons[0], "u").expect(201)  # the watermark comes as far as the last but one
        wait_until("the watermark to move", lambda: watermark(stack, made) > max(first, newest))
        stack.signal("deliverer", signal.SIGSTOP)
        storefront.take(coupons[1], "u").expect(201)
        if of_before:
            stack.database["webhooks"].update_one({"_id": made["id"]}, {"$unset": {"arrived": 1}})
        stack.kill("deliverer")
        wait_for_all(stack, receiver, coupons[1])
    wait_until("a watermark again", lambda: watermark(stack, made))
    stack.verify()


@pytest.mark.full
@pytest.mark.parametrize("how", ["unreadable", "refused"])
def test_the_watermark_goes_on_without_a_lane_that_cannot(beside, receiver, how):
    """Its batch cannot be read, or its receiver refuses it: the watermark names the lane, and whoever comes next begins there, too."""
    stack = beside(WEBHOOKS)
    storefront, batches, hooks = stack.direct(0), stack.database["ledger"], stack.database["webhooks"]
    made, coupons = two_delivered(stack, receiver, "a-stuck")
    stuck, other = coupons
    for coupon in coupons:
        storefront.take(coupon, "u").expect(201)
    last = batches.find_one({"_id.c": stuck}, sort=[("_id", -1)])
    if how == "unreadable":
        batches.update_one({"_id": last["_id"]}, {"$set": {"e.0.k": "future"}})
    else:
        receiver.answer = lambda event: 503 if event.data["coupon"] == stuck else 200
    stack.kill("deliverer")
    wait_for_all(stack, receiver, other)
    newest = batches.find_one({}, sort=[("arrived", -1)])["arrived"]
    storefront.take(other, "u").expect(201)
    wait_until("the watermark to pass them", lambda: watermark(stack, made) > newest)
    assert hooks.find_one({"_id": made["id"]})["behind"] == [{"c": stuck, "l": 0}]

    stack.signal("deliverer", signal.SIGSTOP)
    if how == "unreadable":
        batches.replace_one({"_id": last["_id"]}, last)
    receiver.answer = lambda event: 200
    stack.kill("deliverer")
    wait_for_all(stack, receiver, stuck)
    wait_until("the lane to leave the list", lambda: hooks.find_one({"_id": made["id"]})["behind"] == [])
    stack.verify()


@pytest.mark.full
def test_a_sweep_that_could_not_begin_looks_at_the_held_lanes_when_it_can(beside, receiver):
    """Its first read fails: it may not take for its own what the sweep before it was to look at."""
    stack = beside(WEBHOOKS)
    ops, storefront = stack.client("ops"), stack.direct(0)
    stuck, other = stack.coupon(slots=9), stack.coupon(slots=9)
    made = ops.post(HOOKS, {"url": receiver.url, "coupons": [stuck]}).ok(201)
    always = ops.post(HOOKS, {"url": receiver.url, "coupons": ["never"]}).ok(201)  # for it the doorbell stays open
    receiver.answer = lambda event: 503
    storefront.take(stuck, "u").expect(201)
    newest = stack.database["ledger"].find_one({"_id.c": stuck}, sort=[("_id", -1)])["arrived"]
    storefront.take(other, "u").expect(201)
    wait_until("the watermarks to pass the lane, which one holds", lambda: all(watermark(stack, h) > newest for h in (made, always)))
    before = stack.log().count("event=webhook.taken")
    stack.kill("deliverer")
    wait_until("a new deliverer to take both", lambda: stack.log().count("event=webhook.taken") >= before + 2)
    tried = len(receiver.attempts)
    wait_until("it to have looked around", lambda: len(receiver.attempts) > tried + 3)

    at, left = f"{HOOKS}/{made['id']}", f"event=webhook.released webhook={made['id']}"
    before = stack.log().count(left)
    ops.patch(at, {"state": "disabled"}, match=None).ok()
    wait_until("it to be left", lambda: stack.log().count(left) > before)
    receiver.answer = lambda event: 200
    with Failing(stack, "watermarks", "find", mode={"times": 1}) as failing:
        ops.patch(at, {"state": "enabled"}, match=None).ok()
        failing.has_begun()
    wait_for_all(stack, receiver, stuck)
    stack.verify()


@pytest.mark.full
def test_a_sweep_of_all_coupons_ends_though_one_cannot_be_read(beside, receiver):
    """A webhook of before has no watermark: it gets one, which holds the lane."""
    stack = beside(WEBHOOKS)
    storefront, batches, hooks = stack.direct(0), stack.database["ledger"], stack.database["webhooks"]
    made, (damaged, _) = two_delivered(stack, receiver, "a-damaged")
    storefront.take(damaged, "u").expect(201)
    unread = batches.find_one({"_id.c": damaged}, sort=[("_id", -1)])
    batches.update_one({"_id": unread["_id"]}, {"$set": {"e.0.k": "future"}})
    hooks.update_one({"_id": made["id"]}, {"$unset": {"arrived": 1, "behind": 1}})
    stack.kill("deliverer")
    wait_until("a watermark", lambda: watermark(stack, made))
    assert hooks.find_one({"_id": made["id"]})["behind"] == [{"c": damaged, "l": 0}]
    batches.replace_one({"_id": unread["_id"]}, unread)
    wait_for_all(stack, receiver, damaged)
    stack.verify()


@pytest.mark.full
def test_two_deliverers_for_a_while_keep_the_order(stack, receiver, hook):
    """A restart without a gap, and a reload: the next one is at work before the last one is gone."""
    coupon = stack.coupon(3000)
    hook(receiver, coupons=[coupon])
    with Swarm([stack.way()], takers(coupon, 3000), connections=1, pause_s=0.005) as crowd:
        crowd.more(50)
        before = stack.pid("deliverer")
        stack.signal("coupond", signal.SIGHUP)
        wait_until("the successor", lambda: stack.pid("deliverer") not in (before, None))
        crowd.more(100)
        stack.script("restart", status=0)
        crowd.more(51)
    assert {call.reply.status for call in crowd.done} == {201}, by_code(crowd.done)
    wait_for_all(stack, receiver, coupon)
    assert len(receiver.entries(coupon)) == len(crowd.done) > 200


@pytest.mark.full
def test_when_a_reload_returns_every_worker_has_the_new_settings(beside):
    """Each round another answer, from the first request on, of all workers and of nginx with its kept connections."""
    stack = beside(WEBHOOKS)
    config, coupon = stack.var / "coupond.ini", stack.coupon(slots=1)
    text = config.read_text()
    body = {"url": "http://127.0.0.1:9/hook", "coupons": [coupon]}
    for http in ("refused", "allowed", "refused"):
        config.write_text(text.replace("http = allowed", f"http = {http}"))
        done = stack.script("reload")
        assert done.returncode == 0 and not done.stdout, done
        doors = [stack.direct(worker, "ops") for worker in range(WORKERS)] + [stack.client("ops")] * 20
        replies = {door.post("/coupons/-/webhooks", body).status for door in doors}
        assert replies == {201 if http == "allowed" else 400}, f"http = {http}: {replies}"
    before = stack.pids()
    config.write_text(text.replace("http = allowed", "http = perhaps"))
    refused = stack.script("reload")
    assert refused.returncode == 78 and "webhooks.http" in refused.stdout and "refused|allowed" in refused.stdout.replace(", ", "|"), refused
    assert stack.pids() == before
    config.write_text(text)


def test_a_failing_delivery_is_repeated_and_holds_back_its_stream_alone(stack, ops, storefront, receiver, hook):
    bad, good = stack.coupon(9), stack.coupon(9)
    stuck = threading.Event()
    receiver.answer = lambda event: 503 if event.data["coupon"] == bad and not stuck.is_set() else 200
    made = hook(receiver, coupons=[bad, good])
    for i in range(4):
        storefront.take(bad, f"u{i}").expect(201)
        storefront.take(good, f"u{i}").expect(201)
    wait_for_all(stack, receiver, good)
    wait_until("some repeats", lambda: len([e for e in receiver.attempts if e.data["coupon"] == bad]) >= 3)
    assert len({e.id for e in receiver.attempts if e.data["coupon"] == bad}) == 1, "the next one must wait for the first"
    assert received(receiver, bad) == []
    stuck.set()
    wait_for_all(stack, receiver, bad)
    seen = [d for d in deliveries(ops, made) if d["coupon"] == bad][::-1]
    assert [d["attempt"] for d in seen][:3] == [1, 2, 3] and (seen[0]["state"], seen[0]["status"]) == ("failed", 503)
    gaps = [b.at - a.at for a, b in zip(receiver.attempts, receiver.attempts[1:]) if a.id == b.id]
    assert gaps == [] or min(gaps) < 5, gaps


def test_retry_after_is_waited_for(stack, storefront, receiver, hook):
    coupon = stack.coupon(2)
    receiver.answer = lambda event: (429, {"Retry-After": "1"}, b"") if len(receiver.attempts) == 1 else 200
    hook(receiver, coupons=[coupon])
    storefront.take(coupon, "u").expect(201)
    wait_for_all(stack, receiver, coupon)
    first, second = receiver.attempts[:2]
    assert first.id == second.id and second.at - first.at >= 0.9, (first.at, second.at)


@pytest.mark.timed
def test_slow_and_dead_receivers_delay_nobody(stack, storefront, receiver, hook):
    slow = Receiver(answer=lambda event: time.sleep(30) or 200)
    silent = socket.socket()  # takes connections, and never answers
    silent.bind(("127.0.0.1", 0))
    silent.listen(64)
    with contextlib.closing(silent):
        coupon = stack.coupon(100)
        for url in (slow.url, f"http://127.0.0.1:{silent.getsockname()[1]}/", f"http://127.0.0.1:{free_port()}/",
                    "http://name.invalid/"):
            hook(url, coupons=[coupon])
        hook(receiver, coupons=[coupon])
        took = []
        for i in range(50):
            storefront.take(coupon, f"u{i}").expect(201)
            taken = time.time()
            wait_until("it", lambda: len(received(receiver, coupon)) > i, every=0.002)
            took.append(time.time() - taken)
        wait_for_all(stack, receiver, coupon)
        assert sorted(took)[len(took) // 2] < 7, f"who waits for the others waits 15 s for each; it came after {took} s"
    slow.close()


def test_a_receiver_that_disappears_and_comes_back_gets_all(stack, ops, storefront, hook):
    coupon = stack.coupon(30)
    first = Receiver(port=free_port())  # which nobody else gets while it is away
    made = hook(first, coupons=[coupon])
    storefront.take(coupon, "u0").expect(201)
    wait_for_all(stack, first, coupon)
    wait_until("its answer to have come", lambda: deliveries(ops, made))
    first.close()
    storefront.take_each(coupon, (f"u{i}" for i in range(1, 20)))
    with Receiver(port=first.port) as second:
        wait_until("the rest", lambda: len(received(second, coupon)) >= 19)
        assert received(first, coupon) + received(second, coupon) == ids_of_ledger(stack, coupon)


def test_redirects_are_not_followed(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(2)
    with Receiver() as elsewhere:
        receiver.answer = lambda event: (307, {"Location": elsewhere.url}, b"")
        made = hook(receiver, coupons=[coupon])
        storefront.take(coupon, "u").expect(201)
        wait_until("it to fail twice", lambda: len(receiver.attempts) >= 2)
        wait_until("the list", lambda: deliveries(ops, made))
        assert elsewhere.attempts == [] and deliveries(ops, made)[-1]["status"] == 307


def test_410_disables_and_enabling_goes_on_where_it_stopped(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(9)
    receiver.answer = lambda event: 410
    made = hook(receiver, coupons=[coupon])
    at = f"{HOOKS}/{made['id']}"
    storefront.take(coupon, "u0").expect(201)
    wait_until("it to be disabled", lambda: ops.get(at).ok()["state"] == "disabled")
    assert ops.get(at).ok()["reason"] == "gone"
    attempts = len(receiver.attempts)
    storefront.take_each(coupon, (f"u{i}" for i in range(1, 5)))
    time.sleep(0.5)
    assert len(receiver.attempts) == attempts and len({e.id for e in receiver.attempts}) == 1
    receiver.answer = lambda event: 204
    assert ops.patch(at, {"state": "enabled"}, match=None).ok()["reason"] is None
    wait_for_all(stack, receiver, coupon)


@pytest.mark.parametrize("late_s", [0, 1])
def test_what_the_old_url_answers_late_is_no_word_of_the_new_one(stack, ops, storefront, receiver, hook, late_s):
    """Before the deliverer has looked, mostly; and after it."""
    coupon, moved = stack.coupon(9), threading.Event()

    def gone(_):
        moved.wait(PATIENCE_S)
        time.sleep(late_s)
        return 410

    with Receiver(answer=gone) as old:
        made = hook(old, coupons=[coupon])
        at = f"{HOOKS}/{made['id']}"
        storefront.take(coupon, "u").expect(201)
        wait_until("it to be under way", lambda: old.attempts)
        ops.patch(at, {"url": receiver.url}, match=None).ok()
        attempts = len(old.attempts)  # more than one, if that took longer than a receiver may take
        moved.set()
        wait_for_all(stack, receiver, coupon)
        assert (ops.get(at).ok()["state"], len(old.attempts)) == ("enabled", attempts)


def test_who_fails_for_too_long_is_disabled(beside):
    stack = beside(WEBHOOKS + "give_up_s = 1\n")
    ops, coupon = stack.client("ops"), stack.coupon(2)
    made = ops.post(HOOKS, {"url": f"http://127.0.0.1:{free_port()}/", "coupons": [coupon]}).ok(201)
    stack.client("storefront").take(coupon, "u").expect(201)
    wait_until("it to fail", lambda: ops.get(f"{HOOKS}/{made['id']}").ok()["failing_since"])
    wait_until("it to be disabled", lambda: ops.get(f"{HOOKS}/{made['id']}").ok()["state"] == "disabled")
    assert ops.get(f"{HOOKS}/{made['id']}").ok()["reason"] == "failing"
    assert all(d["status"] is None and d["error"] for d in deliveries(ops, made))
    stack.verify()


def test_rotation_signs_with_both_for_a_while(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(cap={"policy": "none", "total": None, "per_user": 1000})
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    at = f"{HOOKS}/{made['id']}"

    def next_event():
        before = len(receiver.of(coupon=coupon))
        storefront.take(coupon, "u").expect(201)
        wait_until("it", lambda: len(receiver.of(coupon=coupon)) > before)
        return receiver.of(coupon=coupon)[-1]

    def become_signed(*secrets):
        """Events are, as soon as the deliverer has looked."""
        wait_until(f"events that are signed by {secrets}", lambda: is_signed(next_event(), *secrets), every=0.05)

    assert_signed(next_event(), made["secret"])
    rotated = ops.post(f"{at}/rotate", {"keep_s": 600}).ok()
    assert rotated["secret"] != made["secret"] and rotated["old_secret_until"] > rotated["changed_at"]
    become_signed(rotated["secret"], made["secret"])
    for keep_s in (1, 0):
        rotated = ops.post(f"{at}/rotate", {"keep_s": keep_s}).ok()
        assert (rotated["old_secret_until"] is None) is (keep_s == 0), rotated
        become_signed(rotated["secret"])


# ---- the list, and once more ----

def test_deliveries_tell_what_was_answered_and_can_be_made_again(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(9)
    receiver.answer = lambda event: (200, {"Content-Type": "text/plain"}, b"thanks\x00\x1b[31m " + b"\xff" + b"x" * 5000)
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    for i in range(3):
        storefront.take(coupon, f"u{i}").expect(201)
        wait_for_all(stack, receiver, coupon)
    wait_until("the notes", lambda: len(deliveries(ops, made)) == 3)
    listed = deliveries(ops, made)
    assert [d["event"] for d in listed] == [e.id for e in receiver.of(coupon=coupon)][::-1]
    one = listed[0]
    assert (one["state"], one["status"], one["attempt"], one["type"]) == ("succeeded", 200, 1, "redemption.batch")
    assert one["response"].startswith("thanks??[31m ") and 500 < len(one["response"]) <= 1024 and one["error"] is None
    assert ops.get(f"{HOOKS}/{made['id']}/deliveries?state=failed").ok()["items"] == []
    pages = ops.get(f"{HOOKS}/{made['id']}/deliveries?limit=2").ok()
    assert [d["id"] for d in pages["items"]] == [d["id"] for d in listed[:2]] and pages["next"]
    again = f"{HOOKS}/{made['id']}/deliveries/{listed[2]['id']}/redeliver"
    assert ops.post(again).ok(202)["redelivery_asked_at"]
    wait_until("the repeat's note", lambda: len(deliveries(ops, made)) == 4)
    repeat = deliveries(ops, made)[0]
    assert repeat["redelivery_of"] == listed[2]["id"] and repeat["event"] == listed[2]["event"]
    same = [e for e in receiver.events if e.id == listed[2]["event"]]
    assert len(same) == 2 and same[0].body == same[1].body
    wait_until("the request to be over", lambda: deliveries(ops, made)[-1]["redelivery_asked_at"] is None)
    storefront.take(coupon, "u9").expect(201)
    wait_for_all(stack, receiver, coupon)


def test_a_request_survives_a_kill_and_reaches_a_disabled_one_too(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(9)
    made = hook(receiver, events=["redemption.batch"], coupons=[coupon])
    storefront.take(coupon, "u").expect(201)
    wait_until("the note", lambda: deliveries(ops, made))
    ops.patch(f"{HOOKS}/{made['id']}", {"state": "disabled"}, match=None).ok()
    one = deliveries(ops, made)[0]
    ops.post(f"{HOOKS}/{made['id']}/deliveries/{one['id']}/redeliver").ok(202)
    stack.kill("deliverer")
    wait_until("the repeat", lambda: len([e for e in receiver.events if e.id == one["event"]]) >= 2)


def test_a_test_event_reaches_whoever_subscribes_to_something_else_and_a_disabled_one(stack, ops, receiver, hook):
    made = hook(receiver, events=["coupon.changed"], coupons=[stack.coupon()])
    for state in ("enabled", "disabled"):
        ops.patch(f"{HOOKS}/{made['id']}", {"state": state}, match=None).ok()
        event = ops.post(f"{HOOKS}/{made['id']}/test").ok(202)["event"]
        noted = wait_until("its note", lambda event=event: [d for d in deliveries(ops, made) if d["event"] == event])[0]
        assert (noted["type"], noted["coupon"], noted["state"], noted["status"]) == ("webhook.test", "-", "succeeded", 200), noted
        sent = next(e for e in receiver.events if e.id == event)
        assert_signed(sent, made["secret"])
        assert json.loads(sent.body)["type"] == "webhook.test"
        wait_until("the request to be over", lambda: "test" not in stack.database.webhooks.find_one({"_id": made["id"]}))
    again = f"{HOOKS}/{made['id']}/deliveries/{noted['id']}/redeliver"
    ops.post(again).ok(202)
    wait_until("the same once more", lambda: len([e.body for e in receiver.events if e.id == event]) >= 2)


def test_a_test_that_fails_is_told_and_neither_repeated_nor_held_against_the_webhook(stack, ops, receiver, hook):
    """Asked for twice before it is sent, it is one."""
    receiver.answer = lambda event: (410, {}, b"gone")
    made = hook(receiver, events=["coupon.sold_out"])
    stack.signal("deliverer", signal.SIGSTOP)
    try:
        first, second = (ops.post(f"{HOOKS}/{made['id']}/test").ok(202) for _ in range(2))
    finally:
        stack.signal("deliverer", signal.SIGCONT)
    assert first == second
    wait_until("its note", lambda: [d for d in deliveries(ops, made) if (d["state"], d["status"]) == ("failed", 410)])
    wait_until("the request to be over", lambda: "test" not in stack.database.webhooks.find_one({"_id": made["id"]}))
    third = ops.post(f"{HOOKS}/{made['id']}/test").ok(202)
    wait_until("another", lambda: third["event"] in [d["event"] for d in deliveries(ops, made)])
    assert {d["event"] for d in deliveries(ops, made)} == {first["event"], third["event"]}
    hook = ops.get(f"{HOOKS}/{made['id']}").ok()
    assert (hook["state"], hook["failing_since"]) == ("enabled", None)


def test_couponctl_webhooks(stack, storefront, receiver):
    coupon = stack.coupon(9)
    done = stack.ctl("webhooks", "create", receiver.url, "--events", "redemption.batch", coupon)
    made = re.search(r"^(\w{16}) (whsec_\S+)$", done, re.M)
    assert made, done
    storefront.take(coupon, "u").expect(201)
    wait_for_all(stack, receiver, coupon)
    assert_signed(receiver.of(coupon=coupon)[0], made[2])
    listed = stack.couponctl("webhooks", "list")
    assert listed.returncode == 0 and made[1] in listed.stdout and receiver.url in listed.stdout and made[2] not in listed.stdout
    wait_until("the note", lambda: "succeeded" in stack.couponctl("webhooks", "deliveries", made[1]).stdout)
    row = stack.couponctl("webhooks", "deliveries", made[1]).stdout.splitlines()[1].split()
    stack.ctl("webhooks", "redeliver", made[1], row[0])
    wait_until("the repeat", lambda: len(receiver.events) >= 2)
    rotated = stack.couponctl("webhooks", "rotate", made[1])
    assert rotated.returncode == 0 and re.search(r"whsec_\S+", rotated.stdout) and made[2] not in rotated.stdout, rotated.stdout
    assert stack.couponctl("webhooks", "delete", made[1]).returncode == 0
    assert made[1] not in stack.couponctl("webhooks", "list").stdout
    assert stack.couponctl("webhooks", "delete", made[1]).returncode == 1
    assert stack.couponctl("webhooks", "create", "http://10.0.0.1/").returncode == 1


def test_deleting_leaves_nothing_behind(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(9)
    made = ops.post(HOOKS, {"url": receiver.url, "coupons": [coupon]}).ok(201)
    storefront.take(coupon, "u").expect(201)
    wait_for_all(stack, receiver, coupon)
    wait_until("its position", lambda: stack.database["webhook_positions"].find_one({"_id.h": made["id"]}))
    ops.delete(f"{HOOKS}/{made['id']}").expect(204)
    with Receiver() as another:  # what it gets was sent by a deliverer that has looked since
        hook(another, coupons=[coupon])
        for user in ("looks", "v"):
            storefront.take(coupon, user).expect(201)
            wait_until(f"{user} at the other", lambda: user in [e["user"] for e in another.entries(coupon)])
            wait_until("it to be gone", lambda: not stack.database["webhook_positions"].find_one({"_id.h": made["id"]}))
    assert "v" not in [e["user"] for e in receiver.entries(coupon)]


# ---- to whom not ----

# One of each kind; test_address.c has their many forms.
FORBIDDEN = ["https://2130706433/", "https://LOCALHOST./", "https://169.254.169.254/latest/meta-data/", "https://[::ffff:127.0.0.1]/",
             "http://8.8.8.8/", "file:///etc/passwd", "https://u@8.8.8.8/", "//8.8.8.8/"]


def test_what_is_not_public_is_not_called(beside):
    """With the settings that ship; also where a name leads there, and where it is found out only when it is connected to."""
    stack = beside("[webhooks]\nretry_first_ms = 50\n")
    ops, coupon = stack.client("ops"), stack.coupon(9)
    taken = [url for url in FORBIDDEN if ops.post(HOOKS, {"url": url}).status != 400]
    assert taken == [], "these were accepted"
    made = ops.post(HOOKS, {"url": "https://hooks.example.com/", "coupons": [coupon]}).ok(201)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(1)
        port = server.getsockname()[1]
        stack.database["webhooks"].update_one({"_id": made["id"]}, {"$set": {"url": f"https://localhost:{port}/"}, "$currentDate":
                                                                     {"changed": True}})
        stack.client("storefront").take(coupon, "u").expect(201)
        wait_until("an attempt at the name", lambda: [d for d in deliveries(ops, made) if "not public" in (d["error"] or "")])
        with pytest.raises(TimeoutError):
            server.accept()
    assert ops.get(f"{HOOKS}/{made['id']}").ok()["failing_since"]
    stack.verify()


def test_https_with_a_certificate_that_is_trusted_and_one_that_is_not(beside, tmp_path):
    for name in ("trusted", "unknown"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name, "IP:127.0.0.1")
    stack = beside(WEBHOOKS.replace("http = allowed", "http = refused") + f"ca_file = {tmp_path}/trusted/fullchain.pem\n")
    ops, coupon = stack.client("ops"), stack.coupon(9)
    with Receiver() as good, Receiver() as bad:
        for receiver, name in ((good, "trusted"), (bad, "unknown")):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / name / "fullchain.pem", tmp_path / name / "privkey.pem")
            receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
        made = [ops.post(HOOKS, {"url": f"https://127.0.0.1:{r.port}/", "coupons": [coupon]}).ok(201) for r in (good, bad)]
        stack.client("storefront").take(coupon, "u").expect(201)
        wait_for_all(stack, good, coupon)
        wait_until("the refusal", lambda: [d for d in deliveries(ops, made[1]) if "certificate" in (d["error"] or "").lower()])
        assert bad.attempts == []


def test_secrets_stay_out_of_the_log(stack, ops, storefront, receiver, hook):
    coupon = stack.coupon(2)
    made = hook(receiver.url + "?token=very-secret", coupons=[coupon])
    storefront.take(coupon, "u").expect(201)
    wait_for_all(stack, receiver, coupon)
    log = stack.log()
    assert made["id"] in log and made["secret"] not in log and "very-secret" not in log


def test_metrics_count_deliveries(stack, storefront, receiver, hook):
    coupon = stack.coupon(9)

    def seen():
        return stack.metric("coupons_deliveries_total", outcome="succeeded")

    before = seen()
    hook(receiver, coupons=[coupon], events=["redemption.batch"])
    storefront.take_each(coupon, (f"u{i}" for i in range(5)))
    wait_for_all(stack, receiver, coupon)
    wait_until("the count", lambda: seen() - before >= len(receiver.of(coupon=coupon)))
