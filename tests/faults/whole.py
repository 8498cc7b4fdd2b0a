"""A coupon, with what its lanes say together: caps over all of them, moves from lane to lane, counts that were read.

Lanes have no order between them but real time's: at any moment each stood somewhere in its span (evidence.py). What is
answered of all of them is exact at one seq of each.
"""
import itertools

from evidence import Evidence, seqs_of
from lanes import lane_of
from replay import NEVER, ms

ENDS = ("cancelled", "expired", "reversed")
EVERYWHERE = ("patch", "counts")  # of all lanes
SUMS = ("issued", "reserved", "redeemed", "taken_total", "today", "discount_minor")


class Whole:
    """lanes: the Evidence of each. `attempts`: those at this coupon; erasures: those at any user."""

    def __init__(self, name, attempts, state, history, erasures=()):
        self.name, self.attempts, self.state, self.erasures = name, attempts, state, erasures
        self.count = len(state["ledgers"])
        parts, gone = ([[] for _ in range(self.count)] for _ in range(2))
        for a in attempts:
            for lane in range(self.count) if a.do in EVERYWHERE else [self.lane_of(a.user)]:
                parts[lane].append(a)
        for a in erasures:
            gone[self.lane_of(a.user)].append(a)
        self.lanes = [Evidence(name, parts[lane], state["ledgers"][lane], history, lane, gone[lane])
                      for lane in range(self.count)]

    def lane_of(self, user):
        """The lane in which a user is; what is no user's is lane 0's."""
        return lane_of(user, self.count) if user is not None and self.count > 1 else 0

    @property
    def first(self):
        """Lane 0, which has the definition, and all stock in the beginning."""
        return self.lanes[0]

    def of(self, user):
        return self.lanes[self.lane_of(user)]

    def complain(self, invariant, text):
        self.first.complain(invariant, text)

    @property
    def violations(self):
        return [violation for lane in self.lanes for violation in lane.violations]

    def redemption(self, rid):
        return next((e.replay.redemptions[rid] for e in self.lanes if rid in e.replay.redemptions), None)


# ---- counts ----

def check_counts_read(whole):
    for a in whole.attempts:
        if a.do != "counts" or a.out != "ok":
            continue
        places = [(seq, *e.span(a)) for e, seq in zip(whole.lanes, seqs_of(a.reply), strict=True)]
        if any(not least <= seq <= most for seq, least, most in places):
            whole.complain("I6", f"counts of seqs not between what definitely and what possibly was there, {places}: {a}")
        else:
            check_counts(whole, a.reply, a)


def check_counts(whole, said, a):
    """At their seqs they are exact. But the stock may be from before slots came that another lane had already taken."""
    stood = [e.replay.totals[seq] for e, seq in zip(whole.lanes, seqs_of(said), strict=True)]
    want = {name: sum(one[name] for one in stood if one and (name != "today" or one["day"] == stood[0]["day"]))
            for name in SUMS}
    cap, taken = whole.first.replay.definition["cap"], want["taken_total"]
    stock = max(stood[0]["stock"], taken) if whole.first.replay.exact else None
    over = max(0, taken - cap["total"]) if cap["policy"] == "approximate" else 0
    want.update({"slots": stock, "free": None if stock is None else stock - taken, "over": over})
    wrong = {name: value for name, value in want.items() if said[name] != value}
    if wrong:
        whole.complain("I6", f"counts at seqs {seqs_of(said)} should be {wrong}, and were answered as {said}: {a}")


# ---- caps over all lanes ----

def check_caps(whole):
    """By what stood for certain: from when a taking was there by every clock, until it may have been given back."""
    cap = whole.first.replay.definition["cap"]
    if cap["policy"] == "approximate":
        return  # other lanes may take until they have heard
    for name, days in (("total", [None]), ("per_day", sorted({r.day for e in whole.lanes for r in takings(e)}))):
        for day in days if cap[name] is not None else ():
            most = standing(whole, day)
            if most > cap[name]:
                whole.complain("I1", f"{most} stood at a time in all lanes together, and cap.{name} is {cap[name]}")


def takings(e):
    return [r for r in e.replay.redemptions.values() if not r.base]


def standing(whole, day):
    """The most takings (of this day) that certainly stood at a time. What is given back later than its day still counts
    on it."""
    steps = []
    for e in whole.lanes:
        for r in takings(e):
            end = next((e.replay.ends[r.rid, state] for state in ENDS if (r.rid, state) in e.replay.ends), None)
            begins, ends = e.replay.at[r.seq] + e.slack_ms, ms(end["at"]) - e.slack_ms if end else NEVER
            if day in (None, r.day) and ends > begins:
                given_back = end and (day is None or end["same_day"])
                steps += [(begins, 1), (ends, -1)] if given_back else [(begins, 1)]
    return max(itertools.accumulate(step for _, step in sorted(steps)), default=0)


def check_moves(whole):
    """What came to a lane is what had gone to it, step by step, and not before: no slot is in two lanes."""
    for taker in whole.lanes:
        for other, came in taker.replay.moves["from"].items():
            went = whole.lanes[other].replay.moves["to"][taker.lane]
            for there, here in itertools.zip_longest(went, came):
                if not here:
                    break  # it is on its way
                if not there or there.slots != here.slots or there.at > here.at + 2 * taker.slack_ms:
                    taker.complain("I1", f"seq {here.seq} of lane {taker.lane}: {here.slots} slots by step {here.step}, and lane {other} "
                                         f"answered of {there}")
