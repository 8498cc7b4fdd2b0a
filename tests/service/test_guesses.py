"""Guessing codes: what is not found is counted per user, over all keys and workers, and who guesses too much waits."""
import collections
import itertools
import time

import pytest

import exposition
from client import Http
from stack import SETTINGS, SLOW_DATABASE, WORKERS, Stack, wait_until
from swarm import Call, DirectWay, HttpWay, by_code, swarm, take

PER_USER, PER_ADDRESS, KEYS = 20, 30, 25  # a minute: who has passed it waits for some seconds, and cannot slip through meanwhile
RIGHT, THEIRS = "RIGHT-{}", "THEIRS-{}"
users = (f"guesser-{i}" for i in itertools.count())
sources = (f"127.7.{i // 250}.{i % 250 + 1}" for i in itertools.count())


@pytest.fixture(scope="module")
def guarded(stack):
    settings = SETTINGS + SLOW_DATABASE + f"[guesses]\nper_user = {PER_USER}\nper_address = {PER_ADDRESS}\nkeys_per_address = {KEYS}\n"
    with Stack(settings, beside=stack) as s:
        yield s
        s.verify()


@pytest.fixture(scope="module")
def coupon(guarded):
    """Of its codes the user `other` has THEIRS-0 to 9; RIGHT-0 to 99 are free."""
    codes = [RIGHT.format(i) for i in range(100)] + [THEIRS.format(i) for i in range(10)]
    made = guarded.imported(codes, cap={"per_user": 1000}, codes={"claim": "any"})
    for i in range(10):
        guarded.client("storefront").take(made, "other", state="issued", code=THEIRS.format(i)).expect(201)
    return made


def guess(kind, coupon, code, number, user):
    """A call that names the code."""
    if kind == "take":
        return take(coupon, user, f"k-{number}", code=code)
    target = "/coupons/-/resolve" if kind == "resolve" else f"/coupons/{coupon}/check"
    return Call("POST", target, {"user": user, "code": code})


def was_told(reply):
    """Whether the code was looked for; else it was refused, as it must be."""
    if reply.status == 429:
        assert reply.problem("rate_limited")["retry"] is True
        assert 1 <= int(reply.header("Retry-After")) <= 3600, reply
        return False
    return True


def due(per_minute, began):
    """How many guesses may have been answered since then, one after the other."""
    return per_minute + per_minute * (time.monotonic() - began) / 60 + 1


def refused_though_right(shop, coupon, first, user):
    """(reply, code) of one of ten right codes, that was refused. A guess becomes due every few seconds, and right codes use none up:
    before each a wrong one is to be refused."""
    for i in range(first, first + 10):
        while was_told(shop.take(coupon, user, code="WRONG")):
            pass
        reply = shop.take(coupon, user, code=RIGHT.format(i))
        if not was_told(reply):
            return reply, RIGHT.format(i)
    raise AssertionError(f"ten codes are no guesses\n{reply}")


@pytest.mark.parametrize("kind", ["take", "check", "resolve"])
def test_a_thousand_guesses_for_one_user_are_stopped_wherever_they_come_from(guarded, coupon, kind):
    """With five keys, through nginx from eight addresses, and past it to both workers from two more. Nobody else is stopped."""
    keys, user, connections = [guarded.new_key("storefront") for _ in range(5)], next(users), 10
    ways = [HttpWay(guarded.port, keys[i % 5], next(sources)) for i in range(8)]
    ways += [DirectWay(guarded.var / "run" / f"worker-{i}.sock", keys[i], next(sources)) for i in range(WORKERS)]
    began = time.monotonic()
    calls = swarm(ways, [guess(kind, coupon, f"WRONG-{i}", i, user) for i in range(1000)], connections)
    said = sum(was_told(call.reply) for call in calls)
    policies = collections.Counter(call.reply.header("RateLimit-Policy") for call in calls)
    assert PER_USER <= said <= due(PER_USER, began) + connections, (by_code(calls), policies)
    # a right code is no exception, or the refusal would tell which ones are right
    shop = Http(guarded.port, keys[0], next(sources))
    refused, right = refused_though_right(shop, coupon, 50 + 10 * ["take", "check", "resolve"].index(kind), user)
    assert refused.header("RateLimit-Policy") == f'"guesses-user";q={PER_USER};w=60', refused
    assert refused.header("RateLimit") == f'"guesses-user";r=0;t={refused.header("Retry-After")}', refused
    shop.take(coupon, next(users), code=right).expect(201)


def test_a_visitor_who_guesses_stops_nobody_else_of_the_shop(guarded, coupon):
    """One key, one address: the shop's server. A visitor sends three hundred wrong codes; the others mistype, and learn it."""
    shop, guesser = Http(guarded.port, guarded.new_key("storefront"), next(sources)), next(users)
    refused = [shop.post("/coupons/-/resolve", {"user": guesser, "code": f"WRONG-{i}"}) for i in range(300)]
    assert not was_told(refused[-1])
    for i in range(2 * PER_ADDRESS):
        shop.take(coupon, next(users), code=f"MISTYPED-{i}").problem("code_not_found")
    shop.take(coupon, next(users), code=RIGHT.format(10)).expect(201)
    for i in range(11, 20):  # a guess becomes due every few seconds: before each batch a wrong one is to be refused
        while was_told(shop.take(coupon, guesser, code="WRONG")):
            pass
        items = [{"key": f"of-the-guesser-{i}", "user": guesser, "code": RIGHT.format(i)},
                 {"key": f"of-another-{i}", "user": next(users), "code": RIGHT.format(i + 10)}]
        answers = shop.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
        if answers[0]["status"] == 429:
            break
    assert [answer["status"] for answer in answers] == [429, 201], answers
    assert (answers[0]["body"]["code"], answers[0]["body"]["retry"]) == ("rate_limited", True)


def test_what_one_batch_guessed_is_all_owed(guarded, coupon):
    shop, user = Http(guarded.port, guarded.new_key("storefront"), next(sources)), next(users)
    target = f"/coupons/{coupon}/redemptions/batch"
    items = [{"key": f"b-{i}", "user": user, "code": f"WRONG-{i}"} for i in range(6 * PER_USER)]
    answers = shop.post(target, {"items": items}).ok()["items"]
    assert {answer["body"]["code"] for answer in answers} == {"code_not_found"}
    [refused] = shop.post(target, {"items": items[:1]}).ok()["items"]
    assert (refused["status"], refused["body"]["code"]) == (429, "rate_limited")
    refused = shop.take(coupon, user, code=RIGHT.format(20))
    assert not was_told(refused)
    assert 250 <= int(refused.header("Retry-After")) <= 300 + 60 / PER_USER, "so many take six minutes, of which one is free"
    assert shop.post(target, {"items": [{"key": "b", "user": user}]}).ok()["items"][0]["status"] == 201, "it names no code"
    shop.get(f"/coupons/{coupon}/users/{user}").expect(200)


def test_batches_that_are_sent_at_once_are_owed_before_any_is_looked_up(guarded, coupon):
    """One batch may try all that it names for a user; of fourteen that are sent together, one is let in."""
    key, user = guarded.new_key("storefront"), next(users)
    ways = [HttpWay(guarded.port, key, next(sources)) for _ in range(14)]
    items = [[{"key": f"c-{i}-{k}", "user": user, "code": f"WRONG-{i}-{k}"} for k in range(500)] for i in range(14)]
    calls = swarm(ways, [Call("POST", f"/coupons/{coupon}/redemptions/batch", {"items": batch}) for batch in items], 14)
    said = [{item["body"]["code"] for item in call.reply.ok()["items"]} for call in calls]
    assert sorted(said, key=str) == [{"code_not_found"}] + 13 * [{"rate_limited"}], said


def test_right_codes_pass_however_many(guarded):
    """Two batches of a thousand at once, each item of another customer."""
    codes = [f"GIFT-{i:04}" for i in range(2000)]
    made = guarded.imported(codes, codes={"claim": "any"})
    shop = [HttpWay(guarded.port, guarded.new_key("storefront"), next(sources))]
    items = [{"key": f"g-{code}", "user": f"of {code}", "code": code} for code in codes]
    calls = swarm(shop, [Call("POST", f"/coupons/{made}/redemptions/batch", {"items": items[i:i + 1000]}) for i in (0, 1000)], 2)
    said = collections.Counter((item["status"], item["body"].get("code")) if item["status"] != 201 else 201
                               for call in calls for item in call.reply.ok()["items"])
    assert said == {201: 2000}, said


def test_what_is_found_is_no_guess(guarded, coupon):
    shop = Http(guarded.port, guarded.new_key("storefront"), next(sources))
    for i in range(3 * PER_USER):
        assert shop.post("/coupons/-/resolve", {"user": "finder", "code": RIGHT.format(30 + i % 20)}).ok()["items"]
    assert shop.post(f"/coupons/{coupon}/check", {"user": "finder", "code": RIGHT.format(30)}).ok()["ok"]
    shop.take(coupon, "finder", code=RIGHT.format(30)).expect(201)
    items = [{"key": f"f-{i}", "user": "finder", "code": RIGHT.format(80 + i)} for i in range(20)]
    for _ in range(3):  # taken once, and twice replayed
        answers = shop.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
        assert {answer["status"] for answer in answers} == {201}


def a_new_user_is_stopped(guarded, kind, coupon, codes):
    """Whoever sends these codes, one after the other, hears of as many as one user may look for."""
    user = next(users)
    shop = Http(guarded.port, guarded.new_key("storefront"), next(sources))
    began, said = time.monotonic(), 0
    while said < 10 * PER_USER:
        call = guess(kind, coupon, codes[said % len(codes)], said, user)
        if not was_told(shop.request(call.method, call.target, call.body, idempotency_key=call.key)):
            break
        said += 1
    assert PER_USER <= said <= due(PER_USER, began), f"{codes[0]}: {said} were answered"


@pytest.mark.parametrize("kind", ["take", "check", "resolve"])
def test_an_unknown_code_and_somebody_else_s_are_counted_alike(guarded, coupon, kind):
    a_new_user_is_stopped(guarded, kind, coupon, ["UNKNOWN"])
    a_new_user_is_stopped(guarded, kind, coupon, [THEIRS.format(i) for i in range(10)])


@pytest.mark.parametrize("kind", ["take", "check", "resolve"])
def test_a_code_on_paper_that_somebody_else_has_is_counted_and_one_s_own_is_not(guarded, kind):
    flyers = guarded.imported(["HELD-1", "SPENT-2", "MINE-3", "MINE-4"], cap={"per_user": 1000})
    shop = guarded.client("storefront")
    for user, code, state in (("other", "HELD-1", "reserved"), ("other", "SPENT-2", "redeemed"), ("me", "MINE-3", "reserved"),
                              ("me", "MINE-4", "redeemed")):
        shop.take(flyers, user, code=code, state=state).expect(201)
    a_new_user_is_stopped(guarded, kind, flyers, ["HELD-1"])
    a_new_user_is_stopped(guarded, kind, flyers, ["SPENT-2"])
    careless = Http(guarded.port, guarded.new_key("storefront"), next(sources))
    for number in range(2 * PER_USER):
        call = guess(kind, flyers, f"MINE-{3 + number % 2}", number, "me")
        assert was_told(careless.request(call.method, call.target, call.body, idempotency_key=call.key))


def test_codes_on_paper_that_somebody_else_has_are_counted_in_a_batch(guarded):
    flyers = guarded.imported(["HELD-1", "SPENT-2"], cap={"per_user": 1000})
    guarded.client("storefront").take(flyers, "other", code="HELD-1", state="reserved").expect(201)
    guarded.client("storefront").take(flyers, "other", code="SPENT-2").expect(201)
    shop = Http(guarded.port, guarded.new_key("storefront"), next(sources))
    user = next(users)
    items = [{"key": f"p-{i}", "user": user, "code": ["HELD-1", "SPENT-2"][i % 2]} for i in range(2 * PER_USER)]
    answers = shop.post(f"/coupons/{flyers}/redemptions/batch", {"items": items}).ok()["items"]
    assert {answer["body"]["code"] for answer in answers} == {"transaction_in_progress", "code_taken"}
    assert not was_told(shop.take(flyers, user, code="UNKNOWN"))


@pytest.mark.parametrize("kind", ["take", "check", "resolve"])
def test_a_code_that_must_be_sent_and_may_be_typed_anyhow_is_guessed_no_faster(guarded, kind):
    typed = guarded.imported(["TYPED-1"], cap={"per_user": 1000}, codes={"match": "loose"})
    a_new_user_is_stopped(guarded, kind, typed, ["typed 2", "T-Y-P-E-D-3", " Typed--4 "])


def test_who_may_list_all_codes_is_not_counted(guarded, coupon):
    ops = Http(guarded.port, guarded.key("ops"), next(sources))
    for i in range(2 * PER_USER):
        ops.get(f"/coupons/{coupon}/codes/WRONG-{i}").problem("code_not_found")
        assert ops.post("/coupons/-/resolve", {"user": "me", "code": f"WRONG-{i}"}).ok()["items"] == []


def test_metrics_tell_of_guesses(guarded, coupon):
    def counted():
        found = exposition.read(guarded.client("ops").get("/coupons/-/metrics").expect(200).body.decode())
        return [exposition.total(found, f"coupons_{name}_total") for name in ("codes_not_found", "guesses_refused")]

    before, user = counted(), next(users)
    shop = Http(guarded.port, guarded.new_key("storefront"), next(sources))
    shop.post(f"/coupons/{coupon}/redemptions/batch",
              {"items": [{"key": f"m-{i}", "user": user, "code": "WRONG"} for i in range(2 * PER_USER)]}).expect(200)
    assert not was_told(shop.take(coupon, user, code="WRONG"))
    assert [now - then for now, then in zip(counted(), before)] == [2 * PER_USER, 1]


# ---- keys that are none ----

def test_an_address_that_invents_keys_is_stopped_and_right_keys_are_not(guarded, coupon):
    """Each of them has a rate of its own in nginx."""
    source, began, connections = next(sources), time.monotonic(), 10
    keys = [f"cpn_{i:012}_{'2' * 32}" for i in range(400)]
    calls = swarm([HttpWay(guarded.port, key, source) for key in keys], [Call("GET", "/coupons") for _ in keys], connections)
    assert {call.reply.code() for call in calls} == {"unauthorized", "rate_limited"}, by_code(calls)
    said = sum(was_told(call.reply) for call in calls)
    assert KEYS <= said <= due(KEYS, began) + connections, by_code(calls)
    for path, how in (("/coupons", {}), (f"/coupons/{coupon}/codes", {"headers": {"Content-Type": "text/plain"}})):
        refused = next(reply for _ in range(10)  # one may have become due meanwhile
                       if not was_told(reply := Http(guarded.port, keys[0], source).post(path, b"{}", **how)))
        assert refused.header("RateLimit-Policy") == f'"keys-address";q={KEYS};w=60', refused
        assert refused.header("RateLimit") == f'"keys-address";r=0;t={refused.header("Retry-After")}', refused
    for _ in range(3 * KEYS):
        Http(guarded.port, guarded.key("storefront"), source).get("/coupons?limit=1").expect(200)
    new = Http(guarded.port, guarded.new_key("storefront"), source)
    wait_until("a new key to be known", lambda: new.get("/coupons?limit=1").status == 200)
    Http(guarded.port, keys[0], next(sources)).get("/coupons").problem("unauthorized")


def test_a_new_key_is_no_invented_one(guarded):
    """It is asked for in the database, and forgiven."""
    source = next(sources)
    for _ in range(KEYS + 5):
        Http(guarded.port, guarded.new_key("storefront"), source).get("/coupons?limit=1").expect(200)


@pytest.mark.full
def test_what_a_worker_had_done_when_it_died_is_not_told_as_refused(monkeypatch):
    """nginx asks its successor, which does not know the key, and looks for none from this address: it cannot say that nothing happened."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:4")
    with Stack(SETTINGS + SLOW_DATABASE + "[guesses]\nkeys_per_address = 5\n") as stack:
        coupon, source = stack.coupon(cap={"policy": "none"}), next(sources)
        shop = Http(stack.port, stack.key("storefront"), source)
        shop.take(coupon, "first").expect(201)
        guess = Http(stack.port, f"cpn_{'0' * 12}_{'2' * 32}", source)
        for number in range(4):
            wait_until("the address to be stopped", lambda: not was_told(guess.get("/coupons")))
            reply = shop.post(f"/coupons/{coupon}/redemptions", {"user": f"u-{number}"}, idempotency_key="k", may_fail=True)
            if reply.status != 201:
                break
        assert stack.log().count("event=crash.point ") == 1, stack.log()[-3000:]
        reply.problem("outcome_unknown")
        assert int(reply.header("Retry-After")) >= 1
        elsewhere = Http(stack.port, stack.key("storefront"), next(sources))
        assert elsewhere.get(f"/coupons/{coupon}/users/u-{number}").ok()["total"] == 1
        again = elsewhere.take(coupon, f"u-{number}", "k")
        assert again.status in (200, 201) and again.header("Idempotent-Replayed") == "true", again
        stack.verify(coupon)
