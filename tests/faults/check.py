"""The checker: a history in, violations of what must always be true (I1-I8 of the design) out. It asks nobody.

    I1  caps, exact at every entry of the ledger      I5  one key, one answer
    I2  what was acknowledged is in the ledger        I6  counts that were read: between definitely and possibly
    I3  nothing is there that nobody asked for        I7  a refusal was true between request and answer (refusals.py)
    I4  a slot, and a code, is one user's at a time   I8  one order; hashes chain, and real time agrees
    views, reports, events: what is kept, added up and delivered is what the ledger says
    erasure: who was erased is nobody's name any more (erased.py)
    faults: each fault of the mix happened while requests were in flight

I1, and I4 of slots, are found by the replay of each lane (replay.py); what lanes say together, by whole.py; what became
of codes and of lists of them, by codes.py; the rest here. A check is one scan, with bisections; for a refusal, or counts, it
looks at the states of the ledger between request and answer.
"""
import bisect
import collections

import codes
import erased
from evidence import ENDINGS, Violation, finds_its_own, seqs_of
from ledger import check_chain
from refusals import NOTHING_DONE, Refusals
from replay import NEVER, ms
from whole import Whole, check_caps, check_counts, check_counts_read, check_moves

INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "views", "reports", "events", "erasure", "faults")
REPORTED = ("issued", "reserved", "redeemed", "cancelled", "expired", "reversed", "discount_minor")
REPORTED_AS = {"issue": "issued", "reserve": "reserved", "hold": "reserved", "redeem": "redeemed", "spend": "redeemed",
               "cancel": "cancelled", "expire": "expired", "reverse": "reversed"}
MONEY_OF = {"redeem": 1, "spend": 1, "reverse": -1}


def check(history):
    """All violations."""
    by_coupon = collections.defaultdict(list)
    for a in history.attempts:
        by_coupon[a.coupon].append(a)
    violations, wholes = [], []
    for name, state in history.end["coupons"].items():
        broken = [text for lines in state["ledgers"] if (text := broken_chain(lines))]
        violations += [Violation("I8", name, text) for text in broken]
        if not broken:  # else nothing can be said of it
            wholes.append(Whole(name, by_coupon[name], state, history, by_coupon[None]))
    for whole in wholes:
        check_coupon(whole)
        violations += whole.violations
    violations += erased.check_names(history, wholes)
    violations += check_faults(history)
    if history.end["verify"]["exit"] != 0:
        violations.append(Violation("views", None, f"couponctl verify: {history.end['verify']}"))
    return violations


def check_coupon(whole):
    for lane in whole.lanes:
        for one in OF_LANES:
            one(lane)
    for one in OF_COUPONS:
        one(whole)
    Refusals(whole).check()


def broken_chain(lines):
    """What is wrong with it; None: nothing."""
    try:
        check_chain([line.encode() for line in lines])
    except AssertionError as e:
        return str(e)


# ---- I8 ----

def check_order(e):
    """What was acknowledged before a call was first sent, comes before what the call did; and clocks agree."""
    for call in (*e.calls.values(), *e.patches()):
        if not call.entry:
            continue
        seq, asked, answered = call.entry["seq"], call.first.asked_at, call.acknowledged_at()
        if seq <= e.least(asked):
            e.complain("I8", f"seq {e.least(asked)} was acknowledged before {seq} was asked: {call.first}")
        at = ms(call.entry["at"])
        if at < e.earliest_ms(asked):
            e.complain("I8", f"{call.entry['at']} is before it was asked: {call.first}")
        if answered != NEVER and at > e.latest_ms(answered):
            e.complain("I8", f"{call.entry['at']} is after it was answered: {call.first}")


# ---- I2, I3, I4 ----

def check_acknowledged(e):
    """Every call was answered in the end. Every ok has its entry, and says what the entry says; an order that is
    repeated, and a code that is issued to the same user again, is answered with what stands."""
    for call in e.patches():
        if not call.entry:
            e.complain("I2", f"a change was acknowledged, and is not in the ledger: {call.first}")
    for name, call in e.calls.items():
        if call.attempts[-1].out == "unknown" and not (call.oks or call.found):
            e.complain("I2", f"never answered: {call.first}")
        for a in (*call.oks, *call.found):
            r = e.replay.redemptions.get(a.reply["id"])
            if not r:
                e.complain("I2", f"{a.reply['id']} was acknowledged, and is not in the ledger: {a}")
            elif e.users.get(r.alias) != a.user:
                e.complain("I4", f"{a.user} got {r.rid}, which is {e.users.get(r.alias)}'s: {a}")
            elif call.entry and a not in call.found:
                check_told(e, a, call)
            elif not is_repeat(e, a, name):
                e.complain("I2", f"acknowledged, and the ledger knows nothing of it: {a}")


def check_told(e, a, call):
    r = call.redemption
    want = {"id": r.rid, "seq": r.seq, "ordinal": r.ordinal, "user": e.users[r.alias]}
    if a.do in ("take", "adjust") and "discount_minor" in call.entry:
        want["discount_minor"] = call.entry["discount_minor"]
    have = {member: a.reply[member] for member in want}
    if have != want:
        e.complain("I2", f"answered {have}, and the ledger says {want}: {a}")


def is_repeat(e, a, name):
    """True when the answer names what there was already; or what was to be cancelled had expired."""
    if name[0] == "key":
        return finds_its_own(a)
    return a.reply["state"] == "expired" and (a.rid, "expired") in e.replay.ends


def check_asked_for(e):
    """Every entry of a user's was asked for, by that key, by that step, or by whoever erased the user. A definition is no user's."""
    done = [call for call in e.calls.values() if call.entry]
    keys = {entry.get("key") for call in done for entry in call.entries}
    ended = {id(call.entry) for call in done}
    for call in done:
        if all(a.out == "refused" for a in call.attempts):
            e.complain("I3", f"was refused, and is there: {call.first}, {call.entry}")
        if not any(as_asked(e, a, call.entry) for a in call.attempts):
            e.complain("I3", f"nobody asked for it like this: {call.first}, {call.entry}")
    for batch in e.replay.batches:
        for entry in batch["entries"]:
            ends = entry["kind"] in ENDINGS and id(entry) not in ended and not erased.in_passing(e, entry)
            made = "key" in entry and entry["kind"] != "define" and entry["key"] not in keys
            if made or ends:
                e.complain("I3", f"nobody asked for it: {entry}")


def as_asked(e, a, entry):
    """An adjustment has the discount, and a reversal keeps the use, that the attempt asks for."""
    body = a.body or {}
    if a.do == "reverse":
        return body.get("keep_use", False) == entry.get("keep_use", False)
    if a.do != "adjust":
        return True
    by_order = "order" in body and min(e.replay.definition["discount"]["amount_minor"], body["order"]["amount_minor"])
    return entry["discount_minor"] == (by_order if "order" in body else body["discount_minor"])


def check_slots(whole):
    """There are as many as were ordered."""
    replay, asked = whole.first.replay, whole.state["slots"]
    if replay.exact and replay.stock != asked:
        whole.complain("I3", f"{replay.stock} slots are there, {asked} were asked for")


# ---- I5 ----

def check_same_answer(e):
    """All that was answered to one key is one answer; what was acknowledged is never refused later."""
    for name, call in e.calls.items():
        if name[0] != "key" or not call.entry:
            continue
        bodies, since = [a.reply for a in call.oks], call.acknowledged_at()
        if any(body != bodies[0] for body in bodies[1:]):
            e.complain("I5", f"key {name[2]} of {name[1]} got different answers: {bodies}")
        if sum(not a.replayed for a in call.oks) > 1:
            e.complain("I5", f"key {name[2]} of {name[1]} was answered as new more than once")
        for a in call.attempts:
            if a.out == "refused" and a.asked_at > since and a.code not in NOTHING_DONE:
                e.complain("I5", f"key {name[2]} of {name[1]} was acknowledged, and then refused: {a}")


# ---- I6 ----

def check_user_reads(e):
    for a in e.attempts:
        if a.out == "ok" and a.do == "user":
            check_user_read(e, a, *e.span(a))


def check_user_read(e, a, least, most):
    """A hold whose time has passed counts no longer, whether or not the ledger says so yet."""
    seen = e.use_of(a.user).between(*e.replay.positions(least, most))
    lowest = min((one.total if one.due > e.latest_ms(a.told_at) else 0 for one in seen), default=0)
    highest = max((one.total for one in seen), default=0)
    if not lowest <= a.reply["total"] <= highest:
        e.complain("I6", f"{a.user} had {lowest} to {highest}: {a}")


# ---- what is made of the ledger ----

def check_views(whole):
    said, last = whole.state["counts"], [e.replay.last_seq for e in whole.lanes]
    if any(not 0 < seq <= end for seq, end in zip(seqs_of(said), last, strict=True)):
        whole.complain("views", f"counts at seqs {seqs_of(said)} of {last}")
    else:
        check_counts(whole, said, "at the end")
    by_alias = collections.defaultdict(dict)
    for e in whole.lanes:
        for r in e.replay.redemptions.values():
            by_alias[r.alias][r.rid] = "issued" if r.state == "held" else r.state
    for user, said in whole.state["users"].items():
        e = whole.of(user)
        have = {r["id"]: r["state"] for r in said["redemptions"]}
        lives = [alias for alias in e.aliases.get(user, []) if alias not in e.replay.erased]
        want = by_alias.get(lives[-1], {}) if lives else {}
        if have != want:
            e.complain("views", f"{user} has {want} by the ledger, and {have} when asked")


def check_report(whole):
    """Rows of all periods, added up: what the ledgers say up to as_of."""
    said, want = whole.state["report"], dict.fromkeys(REPORTED, 0)
    seqs = said["as_of"]["seq"]
    entries = (entry for e, seq in zip(whole.lanes, seqs, strict=True) for batch in e.replay.batches[:seq]
               for entry in batch["entries"])
    for entry in entries:
        kind = entry["kind"]
        if kind in REPORTED_AS:
            want[REPORTED_AS[kind]] += 1
        if kind in MONEY_OF:
            want["discount_minor"] += MONEY_OF[kind] * entry["discount_minor"]
        if kind == "adjust":
            want["discount_minor"] += entry["discount_minor"] - entry["held_minor"]
    have = {name: sum(row[name] for row in said["items"]) for name in REPORTED}
    if have != want:
        whole.complain("reports", f"up to seq {seqs} the ledgers say {want}, the report {have}")


def check_events(whole):
    """Every entry of a redemption was delivered, in its lane's order."""
    for e, delivered in zip(whole.lanes, whole.state["events"] or ()):
        want = [[batch["seq"], e.replay.rid(entry, batch), entry["kind"]] for batch in e.replay.batches
                for entry in batch["entries"] if "g" in entry]
        have = [list(one) for one in delivered]
        if have != want:
            at = next((i for i, (h, w) in enumerate(zip(have, want)) if h != w), min(len(have), len(want)))
            e.complain("events", f"lane {e.lane}: {len(want)} entries, {len(have)} delivered; from number {at} on they "
                                 f"differ: {want[at:at + 2]} in the ledger, {have[at:at + 2]} delivered")


OF_LANES = (check_order, check_acknowledged, check_asked_for, check_same_answer, check_user_reads,
            erased.check_erasures)
OF_COUPONS = (check_counts_read, check_caps, check_moves, check_slots, check_views, check_report, check_events,
              codes.check_codes, codes.check_lists)


# ---- the faults ----

def in_flight(attempts):
    """A function: how many requests were out at t. The items of a batch are one."""
    requests = [a for a in attempts if not a.part]
    asked = sorted(a.asked_at for a in requests)
    said = sorted(a.told_at for a in requests if a.told_at is not None)
    return lambda t: bisect.bisect_right(asked, t) - bisect.bisect_right(said, t)


def check_faults(history):
    """Each fault of the mix happened, and met requests."""
    out, times, met = in_flight(history.attempts), collections.Counter(), collections.Counter()
    for fault in history.faults:
        times[fault["name"]] += 1
        met[fault["name"]] += out(fault["t"]) > 0
    for name in history.begin["faults"]:
        if not met[name]:
            yield Violation("faults", None, f"{name}: {times[name]} times, never while requests were in flight")
