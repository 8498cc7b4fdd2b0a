"""I7: each refusal was true at some moment between request and answer. A rule for each code that may be given.

A hold whose time has passed counts as free, whether or not the ledger says so yet: who decides takes it back. So what
"is full" is so only while the earliest hold had not ended when the request was sent.
"""
import bisect
import collections

NOTHING_DONE = {"busy", "rate_limited"}  # true at any time
BAD_STATES = {"reserve": ("cancelled", "reversed"), "redeem": ("cancelled", "reversed"),
              "cancel": ("redeemed", "reversed"), "reverse": ("issued", "held", "reserved", "cancelled", "expired"),
              "adjust": ("issued", "held", "reserved", "cancelled", "expired", "reversed")}
STANDING = ("issued", "held", "reserved", "redeemed")


class Refusals:
    """Of one coupon, by the evidence of its lanes."""

    def __init__(self, whole):
        self.whole, self.definition = whole, whole.first.replay.definition
        # Of a list everybody knows the codes, and of some nobody got an answer with their owner: those are only in what is stored.
        self.slot_of_code = {**(whole.state.get("slots_of_codes") or {}),
                             **{a.reply["code"]: a.reply["slot"] for e in whole.lanes for call in e.calls.values() for a in call.oks}}
        self.ids_of_slot = collections.defaultdict(list)  # {(lane, slot)}: one after the other
        for e, rid in ((e, rid) for e in whole.lanes for rid in e.replay.redemptions):
            if not rid.startswith("L"):
                self.ids_of_slot[e.lane, int(rid.split("-")[0])].append(rid)

    def check(self):
        for e in self.whole.lanes:
            for a in e.attempts:
                if a.code == "internal" or a.out == "refused" and a.code not in NOTHING_DONE:
                    self.check_one(e, a)

    def check_one(self, e, a):
        rule, (least, most) = RULES.get(a.code), e.span(a)
        self.evidence, self.replay = e, e.replay
        if not rule:
            e.complain("I7", f"nobody should get {a.code} here: {a}")
        elif not rule(self, a, *e.replay.positions(least, most)):
            e.complain("I7", f"{a.code} was true at no moment from seq {least} to {most} of lane {e.lane}: {a}")

    def coupon_not_active(self, a, first, last):
        return not all(self.replay.active[first:last + 1])

    # ---- what is full ----

    def _gone(self, a, gone):
        """The most that can have been gone, of all lanes together: gone(replay, position), None where it is not full.
        None: one of the lanes was never full."""
        most = 0
        for e in self.whole.lanes:
            since, (first, last) = e.earliest_ms(a.asked_at), e.replay.positions(*e.span(a))
            seen = [gone(e.replay, p) for p in range(first, last + 1) if e.replay.due[p] > since]
            seen = [one for one in seen if one is not None]
            if not seen:
                return None
            most += max(seen)
        return most

    def sold_out(self, a, _first, _last):
        """Nothing was free in any lane, and nothing on its way from one to another."""
        gone = self._gone(a, lambda replay, p: -replay.room[p] if replay.free[p] <= 0 else None)
        return gone is not None and gone >= 0

    def daily_cap_reached(self, a, _first, _last):
        gone, most = self._gone(a, lambda replay, p: replay.day_taken[p]), self.definition["cap"]["per_day"]
        return most is not None and gone is not None and gone >= most

    def budget_reached(self, a, _first, _last):
        most, more = self.definition["cap"]["discount_minor"], self.definition["discount"].get("amount_minor", 0)
        gone = self._gone(a, lambda replay, p: replay.money[p])
        return most is not None and gone is not None and gone + more > most

    def _of_user(self, a, first, last, which, cap):
        most, since = self.definition["cap"][cap], self.evidence.earliest_ms(a.asked_at)
        seen = self.evidence.use_of(a.user).between(first, last)
        return most is not None and any(one[which] >= most and one.due > since for one in seen)

    def user_cap_reached(self, a, first, last):
        return self._of_user(a, first, last, 0, "per_user")

    def user_daily_cap_reached(self, a, first, last):
        return self._of_user(a, first, last, 1, "per_user_per_day")

    # ---- what has another state ----

    def _named(self, a, first, last):
        """The redemptions that the attempt may be about: by id, or those that the slot of its code had meanwhile; with
        the issued one that they hold."""
        if a.rid:
            return [a.rid]
        ids = self.ids_of_slot.get((self.evidence.lane, self.slot_of_code.get((a.body or {}).get("code"))), [])
        before, until = (bisect.bisect_right(ids, position, key=lambda rid: self.replay.lives[rid][0][0])
                         for position in (first, last))
        ids = ids[max(0, before - 1):until]
        base = self.replay.redemptions[ids[0]].base if ids else None
        return [base.rid, *ids] if base else ids

    def _once(self, a, first, last, holds):
        """At some moment one of them was so: holds(state, due, id)."""
        return any(holds(state, due, rid) for rid in self._named(a, first, last)
                   for state, due in self.replay.states_of(rid, first, last))

    def _tells(self, a, rid):
        """Who presents its code may know what became of it: it is their own, or was presented, and not issued, to whoever has it."""
        r = self.replay.redemptions[rid]
        presented = self.definition["codes"]["claim"] == "present" and not r.base and self.replay.lives[rid][0][1] != "issued"
        return presented or self.evidence.users.get(r.alias) == a.user

    def transaction_in_progress(self, a, first, last):
        since = self.evidence.earliest_ms(a.asked_at)
        return self._once(a, first, last, lambda state, due, rid: (a.rid or self._tells(a, rid)) and
                          (state == "held" or state == "reserved" and due > since))

    def code_taken(self, a, first, last):
        return self._once(a, first, last, lambda state, due, rid: state == "redeemed" and (a.rid or self._tells(a, rid)))

    def code_not_found(self, a, first, last):
        return self._once(a, first, last, lambda state, due, rid: state in STANDING and not self._tells(a, rid))

    def reservation_expired(self, a, first, last):
        def over(state, due, _, until=self.evidence.latest_ms(a.told_at)):
            return state == "expired" or state == "reserved" and due <= until
        return self._once(a, first, last, over)

    def invalid_transition(self, a, first, last):
        return self._once(a, first, last, lambda state, due, _: state in BAD_STATES.get(a.do, ()))


RULES = {name: getattr(Refusals, name) for name in (
    "coupon_not_active", "sold_out", "daily_cap_reached", "budget_reached", "user_cap_reached",
    "user_daily_cap_reached", "transaction_in_progress", "code_taken", "code_not_found", "reservation_expired",
    "invalid_transition")}
