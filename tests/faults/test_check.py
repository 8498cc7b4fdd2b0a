"""The checker finds what is wrong: for each invariant, violations planted in a history that is clean without them."""
import json

import pytest

from check import INVARIANTS, check
from figures import LOOKED_AT, looked_at
from refusals import RULES
from ledger import canonical
from story import CAP, DEFINITION, START_S, Story, text_of


def whole(definition=None):
    """A bit of everything: taken, held, extended, redeemed, cancelled, reversed, refused, read, and resolved."""
    s = Story(definition)
    s.generate(3)
    first = s.take("u-1", "k-1", 0)
    s.counts()
    s.again("u-1", "k-1", first)
    s.take("u-2", "k-2", 1, state="reserved", lasts_s=2)
    s.move("reserve", "1-1", "k-3")
    s.move("redeem", "1-1", "k-4")
    lost = s.ask("take", "u-3", "k-5")
    body = s.taking("u-3", "k-5", 2)
    s.said(lost, "unknown", None, "ConnectionResetError")
    s.refused("sold_out")
    s.again("u-3", "k-5", body)
    s.look("u-3", 1)
    s.move("reverse", "0-1")
    s.take("u-2", "k-6", 0, g=2, state="reserved", lasts_s=2)
    s.refused("user_cap_reached", user="u-2")
    s.refused("daily_cap_reached")
    s.move("cancel", "0-2")
    s.counts()
    return s


def found(history):
    return {v.invariant for v in check(history)}


def spoiled(change):
    """The invariants that are violated when the story, not yet recorded, is changed so."""
    s = whole()
    change(s)
    return found(s.history())


def test_a_clean_history_has_no_violations():
    assert check(whole().history()) == []


def test_what_was_looked_at_is_counted():
    seen = looked_at(whole().history())
    assert set(seen) == set(LOOKED_AT) and all(seen.values()), seen
    s = Story()
    s.generate(1)
    assert {name for name, count in looked_at(s.history()).items() if count} == {"I1", "I8"}


def entry(s, kind, number=0):
    return [e for b in s.batches for e in b["entries"] if e["kind"] == kind][number]


def answer(s, number, out="ok"):
    """The number-th answer that was so."""
    return [e for e in s.events if e["e"] == "said" and e["out"] == out][number]


def remove(s, kind, number=0):
    wanted = entry(s, kind, number)
    for batch in s.batches:
        batch["entries"] = [e for e in batch["entries"] if e is not wanted]


def silence(s, **what):
    """Nobody ever asked for these."""
    numbers = {e["i"] for e in s.events if e["e"] == "ask" and all(e[k] == v for k, v in what.items())}
    assert numbers
    s.events = [e for e in s.events if e["i"] not in numbers]


# what is done to the story: what it violates, and perhaps more; in a set: and nothing else
SPOILED = {
    **{f"its totals say 7 {name}": ({"I1"}, lambda s, name=name: s.batches[5].update(totals={name: 7}))
       for name in ("redeemed", "ordinal", "discount_minor", "slots")},
    "more slots than the cap has": ({"I1"}, lambda s: s.generate(1, 3)),
    "an ordinal is given twice": ("I1", lambda s: entry(s, "redeem", 1).update(ordinal=1)),
    "an acknowledged redemption is not in the ledger": ("I2", lambda s: remove(s, "redeem", 1)),
    **{f"an acknowledged {kind} is not in the ledger": ("I2", lambda s, kind=kind: remove(s, kind))
       for kind in ("spend", "extend", "reverse", "cancel")},
    "an acknowledged change is not in the ledger": ("I2", lambda s: (s.patch(title="another"), s.batches.pop())),
    "a call that is never answered": ({"I2"}, lambda s: s.said(s.ask("take", "u-8", "k-8"), "unknown")),
    **{f"nobody asked for {what}": ("I3", lambda s, what=what: silence(s, **what))
       for what in ({"key": "k-5"}, {"key": "k-4"}, {"key": "k-3"}, {"do": "reverse"}, {"do": "cancel"})},
    "a slot is given to another, too": ("I4", lambda s: entry(s, "redeem", 1).update(n=1, g=1)),
    "a slot is given to another before its hold ended": ("I4", lambda s: remove(s, "cancel") or s.take("u-4", "k-9", 0, g=3)),
    "a hold is redeemed after its end": ("I4", lambda s: entry(s, "extend").update(reserved_until=text_of(START_S + 0.08))),
    "a user gets another's": ("I4", lambda s: [a.update(user="u-7") for a in s.events if a["e"] == "ask" and a["key"] == "k-5"]),
    "one key, two answers": ("I5", lambda s: answer(s, 2)["body"].update(order="another")),
    "one key, answered as new twice": ({"I5"}, lambda s: answer(s, 2).update(replayed=False)),
    "acknowledged, and then refused": ("I5", lambda s: s.said(s.ask("take", "u-2", "k-6"), "refused", 409, "user_cap_reached")),
    **{f"{counts} is not what was at that seq": ({"I6"}, lambda s, counts=counts: s.counts(**counts))
       for counts in ({"free": 9}, {"redeemed": 5}, {"taken_total": 0}, {"today": 9}, {"discount_minor": 1})},
    "counts that lack what was acknowledged": ({"I6"}, lambda s: s.counts(seq=len(s.batches) - 1)),
    "a user has less than possible": ({"I6"}, lambda s: s.look("u-3", 0)),
    "a user has more than possible": ({"I6"}, lambda s: s.look("u-3", 2)),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_spoiled_is_found(what):
    violated, change = SPOILED[what]
    seen = spoiled(change)
    assert violated in seen if isinstance(violated, str) else seen == violated, seen


# ---- I1 ----

def capped(**cap):
    none = {"per_user": 100, "per_day": None, "per_user_per_day": None, "discount_minor": None}
    return {**DEFINITION, "cap": {**CAP, **none, **cap}}


@pytest.mark.parametrize("cap, users", [
    ({"total": 1, "policy": "approximate"}, ("u-1", "u-2")), ({"per_user": 1}, ("u-1", "u-1")),
    ({"per_day": 1}, ("u-1", "u-2")), ({"per_user_per_day": 1}, ("u-1", "u-1")),
    ({"discount_minor": 900}, ("u-1", "u-2"))])
def test_i1_one_taking_beyond_a_cap(cap, users):
    for allowed, wrong in ((1, False), (2, True)):
        s = Story(capped(**cap))
        if cap.get("policy") != "approximate":
            s.generate(3)
        for n, user in list(enumerate(users))[:allowed]:
            s.take(user, f"k-{n}", n)
        assert ("I1" in found(s.history())) is wrong, f"{allowed} takings"


def test_i1_more_slots_taken_than_there_are():
    s = whole()
    s.batches[1]["entries"][0]["count"] = 2
    assert "I1" in found(s.history(slots=2))


# ---- I2 ----

@pytest.mark.parametrize("name", ["ordinal", "seq", "discount_minor"])
def test_i2_an_answer_that_the_ledger_contradicts(name):
    def lie(s):
        for said in (event["body"] for event in s.events if event["e"] == "said" and event["body"]):
            if said.get("id") == "0-1":
                said[name] = 77

    assert "I2" in spoiled(lie)


# ---- I3 ----

def test_i3_it_was_refused_and_is_there():
    s = Story(capped())
    s.generate(3)
    i = s.ask("take", "u-1", "k-1")
    s.taking("u-1", "k-1", 0)
    s.said(i, "refused", 503, "busy")
    s.take("u-1", "k-2", 1)
    assert found(s.history()) == {"I3"}


def test_i3_slots_that_nobody_asked_for():
    assert found(whole().history(slots=2)) == {"I3"}


# ---- adjustments, and reversals that keep the use ----

def adjusted():
    s = Story(capped(total=1, per_user=1, discount_minor=500))
    s.generate(1)
    s.take("u-1", "k-1", 0)
    said = s.move("adjust", "0-1", "k-2", discount_minor=300)
    s.said(s.ask("adjust", "u-1", "k-2", "0-1", discount_minor=300), replayed=True, body=said)
    s.counts()
    s.move("reverse", "0-1", keep_use=True)
    s.refused("invalid_transition", "adjust", "u-1", "k-3", rid="0-1", discount_minor=0)
    s.refused("user_cap_reached", user="u-1")
    s.look("u-1", 1)
    s.take("u-2", "k-4", 0, g=2)
    return s


def test_an_adjusted_discount_and_a_use_that_is_kept_are_clean():
    assert check(adjusted().history()) == []


@pytest.mark.parametrize("invariants, change", [
    ({"I1"}, lambda s: entry(s, "adjust").update(held_minor=400)),
    ({"I1"}, lambda s: entry(s, "adjust").update(discount_minor=600)),
    ({"I2"}, lambda s: remove(s, "adjust")),
    ({"I2", "I3"}, lambda s: entry(s, "adjust").update(discount_minor=200)),
    ({"I3"}, lambda s: silence(s, do="adjust")),
    ({"I3", "I6", "I7"}, lambda s: entry(s, "reverse").pop("keep_use")),
    ({"I4"}, lambda s: s.move("adjust", "0-1", "k-5", discount_minor=100))])
def test_a_wrong_adjustment_or_a_use_that_is_not_kept_is_found(invariants, change):
    s = adjusted()
    change(s)
    assert invariants <= found(s.history())


# ---- I4 ----

def test_i4_a_slot_that_was_never_generated():
    s = Story(capped(total=9))
    s.generate(2)
    s.take("u-1", "k-1", 3)
    assert found(s.history()) == {"I4"}


def test_i4_a_code_is_two_slots():
    for second, wrong in (("C-2", False), ("C-1", True)):
        s = Story(capped())
        s.generate(3)
        s.take("u-1", "k-1", 0, state="issued", code="C-1")
        s.take("u-2", "k-2", 1, state="issued", code=second)
        assert ("I4" in found(s.history())) is wrong


# ---- I5 ----

def test_i5_one_key_took_twice():
    s = Story(capped())
    s.generate(3)
    s.take("u-1", "k-1", 0)
    s.taking("u-1", "k-1", 1)
    assert "I5" in found(s.history())


# ---- I6 ----

def test_i6_counts_that_know_what_was_not_yet_asked():
    s = whole()
    early = s.ask("counts")
    s.said(early, body={})
    s.take("u-5", "k-7", 0, g=3)
    s.events[-3]["body"] = s.counted(len(s.batches))
    assert "I6" in found(s.history())


def test_i6_counts_that_go_back():
    s = Story(capped())
    s.generate(3)
    i = s.ask("take", "u-1", "k-1")
    body = s.taking("u-1", "k-1", 0)
    s.counts()
    s.counts(seq=2)
    s.said(i, status=201, body=body)
    assert found(s.history()) == {"I6"}


# ---- I7 ----

def test_i7_sold_out_is_true_when_the_last_slot_went_meanwhile():
    """... and false once the hold that has it is over."""
    s = Story(capped(total=1))
    s.generate(1)
    i = s.ask("take", "u-2", "k-2")
    s.take("u-1", "k-1", 0, state="reserved", lasts_s=1)
    s.said(i, "refused", 409, "sold_out")
    assert check(s.history()) == []
    s.t += 1
    s.refused("sold_out")
    assert found(s.history()) == {"I7"}


@pytest.mark.parametrize("code, how", [
    ("user_cap_reached", {}), ("user_cap_reached", {"user": "u-3"}), ("user_daily_cap_reached", {"user": "u-3"}),
    ("daily_cap_reached", {}), ("budget_reached", {}), ("code_taken", {"do": "redeem", "rid": "0-2"}),
    ("code_not_found", {"do": "redeem", "rid": "0-2"}), ("transaction_in_progress", {"do": "redeem", "rid": "1-1"}),
    ("reservation_expired", {"do": "redeem", "rid": "0-2"}), ("invalid_transition", {"do": "reverse", "rid": "2-1"}),
    ("coupon_not_active", {}), ("redemption_not_found", {"do": "cancel", "rid": "1-1"}), ("sold_out", {})])
def test_i7_a_refusal_without_its_reason(code, how):
    s = whole()
    s.refused(code, **how)
    assert found(s.history()) == {"I7"}


def test_i7_every_refusal_is_accepted_where_it_is_true():
    s = whole()
    s.take("u-2", "k-10", 0, g=3, state="reserved", lasts_s=1)
    s.patch(state="paused")
    s.refused("coupon_not_active")
    s.patch(state="active")
    now = {"sold_out": {}, "daily_cap_reached": {}, "budget_reached": {}, "user_cap_reached": {"user": "u-2"},
           "user_daily_cap_reached": {"user": "u-2"}, "transaction_in_progress": {"do": "redeem", "rid": "0-3"},
           "code_taken": {"do": "redeem", "rid": "1-1"}, "code_not_found": {"do": "redeem", "rid": "0-3"},
           "invalid_transition": {"do": "cancel", "rid": "1-1"}, "reservation_expired": {"do": "redeem", "rid": "0-3"}}
    assert set(now) | {"coupon_not_active"} == set(RULES)
    for code, how in now.items():
        s.t += 2 * (code == "reservation_expired")
        s.refused(code, **how)
    assert check(s.history()) == []


@pytest.mark.parametrize("claim, how, right", [
    ("any", {"state": "redeemed"}, "code_not_found"), ("any", {"state": "reserved", "lasts_s": 2}, "code_not_found"),
    ("present", {"state": "redeemed"}, "code_taken"), ("present", {"state": "reserved", "lasts_s": 2}, "transaction_in_progress"),
    ("present", {"state": "issued"}, "code_not_found")])
def test_i7_what_is_told_of_another_user_s_code(claim, how, right):
    for code in ("code_not_found", "code_taken", "transaction_in_progress"):
        s = Story({**capped(total=3), "codes": {"claim": claim}})
        s.generate(3)
        s.take("u-1", "k-1", 0, code="CODE-1", **how)
        s.said(s.ask("take", "u-2", "k-2", code="CODE-1"), "refused", 409, code)
        assert found(s.history()) == (set() if code == right else {"I7"}), code


@pytest.mark.parametrize("late", [True, False])
def test_i7_a_code_of_a_list_may_have_been_given_to_somebody_who_was_not_told(late):
    """Who was erased meanwhile is not asked again."""
    s = Story({**capped(total=3), "codes": {"claim": "any"}})
    s.generate(3)
    first = s.ask("take", "u-1", "k-1")
    s.said(first, "unknown", None, "TimeoutError")
    s.again("u-1", "k-1", s.taking("u-1", "k-1", 0, code="CODE-0"), replayed=False)
    s.erase("u-1")
    if late:
        s.taking("u-1", "k-1", 1, code="CODE-1")
    s.said(s.ask("take", "u-2", "k-2", code="CODE-1"), "refused", 404, "code_not_found")
    assert found(s.history(slots_of_codes={"CODE-0": 0, "CODE-1": 1})) == (set() if late else {"I7"})


def test_i7_a_code_that_was_issued_and_spent_is_another_user_s():
    s = Story({**capped(total=3), "codes": {"claim": "present"}})
    s.generate(3)
    s.take("u-1", "k-1", 0, code="CODE-1", state="issued")
    s.move("redeem", "0-1", "k-2")
    s.said(s.ask("take", "u-2", "k-3", code="CODE-1"), "refused", 409, "code_taken")
    assert found(s.history()) == {"I7"}


# ---- I8 ----

def test_i8_a_chain_that_is_broken():
    s = whole()
    lines, _ = s.lines()
    another_time = canonical({**json.loads(lines[4]), "at": text_of(START_S + 0.05)}).decode()
    for spoilt in (lines[:3] + lines[4:], [*lines[:2], lines[3], lines[2], *lines[4:]],
                   [*lines[:4], lines[4].replace('"kind"', '"kind" '), *lines[5:]],
                   [*lines[:4], another_time, *lines[5:]]):
        assert found(s.history(ledgers=[spoilt])) == {"I8"}


def two_keys_of_one_order(**said):
    """The second key is answered with the first one's hold; when that has ended, a try of it that was on its way takes."""
    s = Story()
    s.generate(2)
    order = {"order": {"id": "o-1"}}
    i = s.ask("take", "u-1", "k-1", **order)
    first = s.taking("u-1", "k-1", 0, state="reserved", lasts_s=2)
    first["order"] = "o-1"
    s.said(i, status=201, body=first)
    late = s.ask("take", "u-1", "k-2", **order)
    s.said(late, "unknown", None, "TimeoutError")
    s.said(s.ask("take", "u-1", "k-2", **order), **{"status": 200, "body": first, **said})
    s.move("cancel", "0-1")
    s.taking("u-1", "k-2", 1, state="reserved", lasts_s=2)
    return s.history()


def test_a_key_that_found_its_order_s_hold_is_not_kept():
    assert check(two_keys_of_one_order()) == []
    assert "I2" in found(two_keys_of_one_order(status=201))


def issued_again(again="issued", **said):
    """Somebody presents the code that they were given, to be given it once more."""
    s = Story()
    s.generate(2)
    i = s.ask("take", "u-1", "k-1", state="issued", code="A")
    body = s.taking("u-1", "k-1", 0, state="issued", code="A")
    s.said(i, status=201, body=body)
    s.said(s.ask("take", "u-1", "k-2", state=again, code="A"), **{"status": 200, "body": body, **said})
    return s.history()


def test_a_code_that_is_issued_to_the_same_user_again_is_what_there_is():
    assert check(issued_again()) == []
    assert found(issued_again(status=201)) == {"I2"}
    assert found(issued_again(again="redeemed")) == {"I2"}


def test_i8_an_order_that_real_time_contradicts():
    """The second was asked after the first was acknowledged, and stands before it."""
    s = Story(capped())
    s.generate(3)
    s.take("u-1", "k-1", 0)
    s.take("u-2", "k-2", 1)
    first, second = s.batches[2], s.batches[3]
    first["entries"], second["entries"] = second["entries"], first["entries"]
    first["entries"][0]["ordinal"], second["entries"][0]["ordinal"] = 1, 2
    for said in (e for e in s.events if e["e"] == "said"):
        said["body"].update(seq=7 - said["body"]["seq"], ordinal=3 - said["body"]["ordinal"])
    assert found(s.history()) == {"I8"}


def test_i8_a_change_that_was_acknowledged_is_not_in_force():
    """Taken while paused; and decided before the change, although asked after it was answered."""
    s = whole()
    s.patch(state="paused")
    s.take("u-6", "k-8", 0, g=3)
    assert found(s.history()) == {"I8"}
    entries = [batch["entries"] for batch in s.batches]
    s.batches[-2]["entries"], s.batches[-1]["entries"] = entries[-1], entries[-2]
    s.events[-1]["body"]["seq"] -= 1
    assert found(s.history()) == {"I8"}


@pytest.mark.parametrize("seconds", [-0.05, 0.05])
def test_i8_times_that_are_not_those_of_the_call(seconds):
    s = Story(capped())
    s.generate(3)
    s.take("u-1", "k-1", 0)
    s.t += 0.2
    i = s.ask("take", "u-2", "k-2")
    s.t += seconds
    body = s.taking("u-2", "k-2", 1)
    s.t -= seconds
    s.said(i, status=201, body=body)
    assert found(s.history()) == {"I8"}


# ---- what is made of the ledger, and the faults ----

def test_views_that_are_not_what_the_ledger_says():
    s = whole()
    state = s.history().end["coupons"]["c"]
    assert found(s.history(counts={**state["counts"], "free": 2})) >= {"I6"}
    users = json.loads(json.dumps(state["users"]))
    users["u-1"]["redemptions"][0]["state"] = "redeemed"
    assert found(s.history(users=users)) == {"views"}
    history = s.history()
    history.end["verify"] = {"exit": 1, "output": "drift"}
    assert found(history) == {"views"}


def test_reports_that_are_not_what_the_ledger_says():
    s = whole()
    report = s.history().end["coupons"]["c"]["report"]
    report["items"][0]["redeemed"] += 1
    assert found(s.history(report=report)) == {"reports"}


def test_events_that_are_missing_doubled_or_out_of_order():
    s = whole()
    events = s.history().end["coupons"]["c"]["events"]
    for wrong in (events[0][:-1], events[0][:2] + events[0][1:], [events[0][1], events[0][0], *events[0][2:]], []):
        assert found(s.history(events=[wrong])) == {"events"}


def test_faults_that_never_came_or_met_nobody():
    history = whole().history()
    history.begin["faults"].append("another")
    assert found(history) == {"faults"}
    history = whole().history()
    history.faults[0]["t"] = START_S - 1
    assert found(history) == {"faults"}


def test_every_invariant_has_a_test():
    import test_whole

    names = " ".join(name for name in (*globals(), *vars(test_whole)) if name.startswith("test_"))
    assert all(f"test_{invariant.lower()}_" in names for invariant in INVARIANTS)
