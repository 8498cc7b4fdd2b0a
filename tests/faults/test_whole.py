"""The checker finds what is wrong between lanes, with codes that come in lists, and with users who were erased."""
import itertools

import pytest

from check import check, in_flight
from evidence import key_hash
from lanes import LANE_SLOTS, users_of
from story import DEFINITION, Story
from test_check import capped, found, silence

FIRST, SECOND = ([*itertools.islice(users_of(lane, 2), 4)] for lane in (0, 1))


def laned(**cap):
    """Two lanes with two slots each."""
    s = Story(capped(**{"total": 4, "per_day": None, "discount_minor": None, **cap}), lanes=2)
    s.generate(2, spread=[2])
    s.look(FIRST[3], 0)
    return s


def slot(lane, n):
    return lane * LANE_SLOTS + n


def gone():
    """Everything is taken, half of it in each lane."""
    s = laned()
    for n, (one, two) in enumerate(zip(FIRST[:2], SECOND)):
        s.take(one, f"k-{one}", n)
        s.take(two, f"k-{two}", slot(1, n))
    return s


def listed():
    s = Story(capped(total=None))
    s.list_codes("CODE-1", "CODE-2", "CODE-1", "no")
    s.take("u-1", "k-1", 0, state="issued", code="CODE-1")
    s.list_codes("CODE-2", "CODE-3")
    s.take("u-2", "k-2", 2, code="CODE-3")
    return s


def forgotten():
    s = Story(capped(total=9, per_user=2))
    s.generate(9)
    s.take("e-1", "k-1", 0)
    s.take("e-1", "k-2", 1, state="issued")
    s.refused("user_cap_reached", user="e-1")
    s.erase("e-1")
    s.look("e-1", 0)
    return s


def spoiled(change, make=gone):
    s = make()
    change(s)
    return found(s.history())


# what is done to a story: what it violates, and perhaps more; in a set: and nothing else
SPOILED = {
    "more slots come than went": (laned, {"I1"}, lambda s: (s.send(0, 1, 1), s.receive(0, 1, 2))),
    "a lane does not follow": (laned, {"I2"}, lambda s: s.patch(state="paused", follow=False)),
    "a slot is of another lane, which has let somebody take it": (
        laned, "I4", lambda s: (s.take(FIRST[0], "k-1", 0), s.take(SECOND[0], "k-2", 0))),
    **{f"{counts} is not what the lanes have together": (gone, {"I6"}, lambda s, counts=counts: s.counts(**counts))
       for counts in ({"free": 1}, {"redeemed": 3}, {"taken_total": 5}, {"today": 2}, {"slots": 5}, {"discount_minor": 500})},
    "sold out while another lane has one": (laned, {"I7"}, lambda s: (
        [s.take(user, f"k-{n}", slot(1, n)) for n, user in enumerate(SECOND[:2])], s.refused("sold_out", user=SECOND[2]))),
    **{f"a job counts a row twice as {name}": (listed, {"I1"}, lambda s, name=name: s.jobs[1].update({name: s.jobs[1][name] + 1}))
       for name in ("imported", "duplicates_in_file", "duplicates_in_coupon", "invalid", "rows")},
    "a code is handed out twice": (listed, "I4", lambda s: s.take("u-3", "k-3", 1, code="CODE-1")),
    **{f"a name is left in {place}": (forgotten, {"erasure"}, lambda s, place=place: s.names.update({"e-1": [place]}))
       for place in (("ledger", "c"), ("buckets", "c"), ("jobs", None))},
    "an erasure was answered and is not in the ledger": (forgotten, "erasure", lambda s: s.batches[-1]["entries"].pop()),
    "nobody asked for an erasure": (forgotten, "I3", lambda s: silence(s, do="erase")),
    "what a cap was reached by before an erasure still counts": (forgotten, {"I7"}, lambda s: s.refused("user_cap_reached", user="e-1")),
    "somebody takes as who was erased": (forgotten, "I4", lambda s: (s.lifetimes.clear(), s.take("e-1", "k-3", 2))),
    "a read still has what was before an erasure": (forgotten, {"I6"}, lambda s: s.look("e-1", 1)),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_spoiled_is_found(what):
    make, violated, change = SPOILED[what]
    seen = spoiled(change, make)
    assert violated in seen if isinstance(violated, str) else seen == violated, seen


# ---- lanes ----

def test_lanes_that_live_on_each_others_stock_have_no_violations():
    s = laned()
    s.move_slots(0, 1, 1)
    s.counts()
    first = s.take(SECOND[0], "k-1", slot(1, 0))
    s.look(SECOND[0], 1)
    s.again(SECOND[0], "k-1", first)
    s.take(SECOND[1], "k-2", slot(1, 1))
    s.take(SECOND[2], "k-3", slot(1, 2))
    s.counts()
    s.take(FIRST[0], "k-4", 0)
    for user in (FIRST[1], SECOND[3]):
        s.refused("sold_out", user=user)
    s.move("reverse", first["id"])
    s.t += 1
    s.batch({"kind": "due", "count": 1, "job": "lane-1-to-0", "step": 1},
            {"kind": "retire", "n": slot(1, 0), "count": 1}, lane=1)
    s.receive(1, 0, 1, step=1)
    s.take(FIRST[1], "k-5", 4)
    s.counts()
    assert check(s.history()) == []


@pytest.mark.parametrize("step", [1, 2, 3])
def test_i1_slots_come_twice(step):
    s = laned()
    s.move_slots(0, 1, 1)
    assert check(s.history()) == []
    s.receive(0, 1, 1, step=step)
    assert found(s.history()) == {"I1"}


def test_i1_slots_come_before_they_went():
    s = laned()
    s.receive(0, 1, 1, step=2)
    s.t += 1
    s.send(0, 1, 1)
    assert found(s.history()) == {"I1"}


def test_i1_lanes_have_more_together_than_the_cap():
    """What went away is taken all the same: by the giver's own totals, and by what all of them took."""
    s = gone()
    s.batch({"kind": "due", "count": 1, "job": "lane-0-to-1", "step": 2})
    s.receive(0, 1, 1, step=2)
    s.take(SECOND[2], "k-5", slot(1, 2))
    violations = [v.text for v in check(s.history())]
    assert any("slots has 1 here" in text for text in violations), violations
    assert any("5 stood at a time in all lanes together, and cap.total is 4" in text for text in violations), violations


def test_i2_a_taking_stands_in_a_lane_that_is_not_the_users():
    def move(s):
        one, two = (lane[-1]["entries"] for lane in s.ledgers)
        s.ledgers[0][-1]["entries"], s.ledgers[1][-1]["entries"] = two, one

    assert {"I2", "I3", "I4"} <= spoiled(move)


def test_i6_counts_may_see_one_lane_before_another():
    """But none as it was before what had been acknowledged."""
    s = laned()
    begun = s.ask("counts")
    body = s.counted(len(s.batches))
    s.take(SECOND[0], "k-1", slot(1, 0))
    seen = s.counted(len(s.batches))
    s.said(begun, body=body)
    assert check(s.history()) == []
    s.said(s.ask("counts"), body=seen)
    assert check(s.history()) == []
    s.said(s.ask("counts"), body=body)
    assert found(s.history()) == {"I6"}


def test_i7_sold_out_while_a_slot_is_on_its_way():
    s = laned()
    s.take(FIRST[0], "k-1", 0)
    for n, user in enumerate(SECOND[:2]):
        s.take(user, f"l-{n}", slot(1, n))
    s.send(0, 1, 1)
    s.refused("sold_out", user=SECOND[2])
    assert found(s.history()) == {"I7"}
    s.receive(0, 1, 1)
    s.take(SECOND[2], "k-2", slot(1, 2))
    s.events = [event for event in s.events if event.get("code") != "sold_out"]
    silence(s, key="k-refused")
    s.refused("sold_out", user=SECOND[3])
    assert check(s.history()) == []


def test_i8_a_chain_of_any_lane_that_is_broken():
    s = gone()
    whole, last = s.lines()[0], s.lines(1)[0]
    assert found(s.history(ledgers=[whole, last[:1] + last[2:]])) == {"I8"}


def test_i8_a_lane_takes_what_another_has_paused():
    s = laned()
    s.take(SECOND[0], "k-1", slot(1, 0))
    s.patch(state="paused")
    s.refused("coupon_not_active", user=SECOND[1])
    assert check(s.history()) == []
    s.take(SECOND[1], "k-2", slot(1, 1))
    assert found(s.history()) == {"I8"}


def test_reports_and_events_that_lack_a_lane():
    s = gone()
    state = s.history().end["coupons"]["c"]
    assert found(s.history(events=[state["events"][0], []])) == {"events"}
    assert found(s.history(events=[state["events"][0], state["events"][1][:-1]])) == {"events"}
    assert found(s.history(report={**state["report"], "items": state["report"]["items"][:1]})) == {"reports"}


# ---- codes that come in lists ----

def state_of(s):
    return s.history().end["coupons"]["c"]


def test_lists_of_codes_have_no_violations():
    assert check(listed().history()) == []


def test_i4_a_row_becomes_two_slots():
    """Both are there; or the ledger has one more than there are codes."""
    s = listed()
    assert "I4" in found(s.history(codes=[*state_of(s)["codes"], ("CODE-2", "free", "")]))
    s.generate(1, 3)
    assert "I3" in found(s.history(slots=3))


def test_i2_a_row_that_was_accepted_is_not_there():
    s = listed()
    assert "I2" in found(s.history(codes=state_of(s)["codes"][:-1]))


def test_i3_a_code_that_is_in_no_list():
    s = listed()
    assert found(s.history(codes=[*state_of(s)["codes"], ("CODE-9", "free", "")])) == {"I3"}
    s.take("u-3", "k-3", 1, code="CODE-8")
    assert "I3" in found(s.history())


def test_views_a_code_is_listed_as_anothers():
    s = listed()
    for wrong in (("CODE-3", "redeemed", "u-1"), ("CODE-3", "free", "")):
        rows = [wrong if row[0] == "CODE-3" else row for row in state_of(s)["codes"]]
        assert found(s.history(codes=rows)) == {"views"}


# ---- users who are erased ----

def test_erasure_the_caps_start_anew_and_nothing_is_left():
    s = forgotten()
    assert check(s.history()) == []
    for number in range(2):
        s.take("e-1", f"k-anew-{number}", 2 + number)
    s.refused("user_cap_reached", user="e-1")
    s.look("e-1", 2)
    assert check(s.history()) == []
    s.names = {"e-1": [("ledger", "c")]}
    assert check(s.history()) == [], "the name is there again"
    s.erase("e-1")
    assert found(s.history()) == {"erasure"}, "and once more it is gone"


def test_erasure_a_call_that_came_late_did_something_as_somebody_new():
    """The first try of it was on its way when the user was erased, and its key forgotten."""
    s = Story(capped(total=9))
    s.generate(9)
    s.take("e-1", "k-1", 0)
    early = s.ask("take", "e-1", "k-late")
    s.erase("e-1")
    s.taking("e-1", "k-late", 2)
    s.said(early, "unknown")
    assert found(s.history()) == {"I2"}, "it is there, and was never answered"
    s.again("e-1", "k-late", s.lives["2-1"])
    assert check(s.history()) == []
    entry = s.batches[-1]["entries"][0]
    entry["key"] = key_hash(entry["alias"], "k-another")
    assert {"I3"} <= found(s.history())


# ---- what is not of one kind ----

def test_the_items_of_a_batch_are_one_request():
    s = Story(DEFINITION)
    for number in range(3):
        s.ask("take", f"u-{number}", f"k-{number}", part=number > 0)
    attempts = s.history().attempts
    assert in_flight(attempts)(s.t) == 1


def test_clocks_that_agree_less_than_they_should_are_told_and_no_accident():
    s = gone()
    s.look(SECOND[0], 1)
    s.counts()
    history = s.history()
    history.begin["slack_ms"] = -1000
    assert "I8" in {v.invariant for v in check(history)}
