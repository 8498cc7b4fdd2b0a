"""Live changes: whoever asks after a PATCH was answered is decided by it, whatever it changed, in every lane, at every worker;
and each is an entry of the ledger, with who and when."""
import bisect
import itertools
import time

import pytest

from effort import in_full
from lanes import Lanes
from stack import WORKERS, wait_until
from swarm import Swarm, by_code, take
from test_life import monotonic_of

USERS = 40      # each has something of the coupon before it is changed: every cap can be lowered below what was taken
JUDGED = 40     # calls under each definition
CLOCKS_S = 0.2  # between this process's clock and the service's
OPEN = {"state": "active", "starts_at": None, "ends_at": None, "cap": {"per_user": 900, "per_user_per_day": None}}
OPEN_ALONE = {**OPEN, "cap": {**OPEN["cap"], "per_day": None, "discount_minor": None}}
CLOSINGS = [  # what is changed, and what everybody gets from then on
    ({"state": "paused"}, "coupon_not_active"),
    ({"state": "ended"}, "coupon_ended"),
    ({"ends_at": "2020-01-01T00:00:00Z"}, "coupon_ended"),
    ({"starts_at": "2090-01-01T00:00:00Z"}, "coupon_not_started"),
    ({"cap": {"per_user": 1}}, "user_cap_reached"),
    ({"cap": {"per_user_per_day": 1}}, "user_daily_cap_reached"),
]
CLOSINGS_ALONE = CLOSINGS + [  # of a coupon with one lane
    ({"cap": {"per_day": 1}}, "daily_cap_reached"),
    ({"cap": {"discount_minor": 1}}, "budget_reached"),
]


class Change:
    """One PATCH: when it was sent and answered, its version, and what everybody gets by it (None: they get one)."""

    def __init__(self, door, coupon, body, refusal):
        self.refusal, self.sent = refusal, time.monotonic()
        self.version = int(door.patch(f"/coupons/{coupon}", body).expect(200).header("ETag").strip('"'))
        self.answered = time.monotonic()


def asked_since(crowd, when):
    return sum(call.asked_at >= when for call in crowd.done[-3 * JUDGED:])


def change_under_load(crowd, doors, coupon, opened, closings):
    changes = []
    for number, (body, refusal) in enumerate(closings):
        for now in ((body, refusal), (opened, None)):
            changes.append(change := Change(doors[number % len(doors)], coupon, *now))
            wait_until("calls after the answer", lambda: asked_since(crowd, change.answered) >= JUDGED)
    return changes


def judge(calls, changes):
    """Every call that was asked after a change was answered, and answered before the next one was sent, obeys it."""
    answers, judged = [c.answered for c in changes], [0] * len(changes)
    for call in calls:
        i = bisect.bisect(answers, call.asked_at) - 1
        if i < 0 or (i + 1 < len(changes) and call.answered_at > changes[i + 1].sent):
            continue
        judged[i] += 1
        said, late_s = call.reply.code() or str(call.reply.status), call.asked_at - changes[i].answered
        assert said == (changes[i].refusal or "201"), \
            f"asked {late_s:.4f} s after version {changes[i].version} was answered, and got\n{call.reply}"
    assert min(judged) > JUDGED / 4, f"too few calls under a definition: {judged}"


def check_ledger(said, changes, key):
    """In lane 0 each change has its entry, with key and time; no lane takes anything under a closed definition."""
    refusals = {change.version: change.refusal for change in changes}
    entries = {e["definition"]["version"]: e for e in said.said[0].entries() if e["kind"] == "define"}
    for change in changes:
        entry = entries[change.version]
        assert entry["by"] == key.split("_")[1], entry
        assert change.sent - CLOCKS_S <= monotonic_of(entry["at"]) <= change.answered + CLOCKS_S, entry
    for lane in said.said:
        version = 0
        for entry in lane.entries():
            if entry["kind"] == "define":
                assert entry["definition"]["version"] > version, f"lane {lane}: version {version}, and then {entry}"
                version = entry["definition"]["version"]
            assert "ordinal" not in entry or not refusals.get(version), f"taken under version {version}: {entry}"
        assert version == changes[-1].version, "a lane has not followed"


@pytest.mark.parametrize("lanes", [in_full(1), 4])
def test_whatever_is_changed_is_obeyed_from_its_answer_on(stack, lanes):
    opened, closings = (OPEN_ALONE, CLOSINGS_ALONE) if lanes == 1 else (OPEN, CLOSINGS)
    coupon = stack.coupon(slots=30_000, lanes=lanes, discount={"kind": "amount", "amount_minor": 3, "currency": "EUR"},
                          cap={"total": 30_000, **opened["cap"]})
    calls = (take(coupon, f"u-{i % USERS}", f"k-{i}") for i in itertools.count())
    doors = [stack.direct(w, "ops") for w in range(WORKERS)] + [stack.client("ops")]
    with Swarm(stack.ways(), calls, connections=24, pause_s=0.004) as crowd:
        wait_until("everybody to have one", lambda: len(crowd.done) > 3 * USERS)
        changes = change_under_load(crowd, doors, coupon, opened, closings)
    calls = crowd.done
    assert set(by_code(calls)) == {"201"} | {refusal for _, refusal in closings}, by_code(calls)
    judge(calls, changes)
    check_ledger(Lanes(stack, coupon).check(), changes, stack.key("ops"))
    stack.verify(coupon)
