"""The ledger of a coupon's lane, replayed entry by entry, by the rules written down once more: what stood after each.

A `position` counts entries; 0 is before the first. What a batch decided, refusals included, it decided at the positions
between its predecessor's end and its own.

Of several lanes each may take the slots that it has: all are made in lane 0, and go from there to the others, and back.
"""
import bisect
import collections
import dataclasses
import datetime
import heapq
import json

from lanes import LANE_SLOTS, MOVE
from ledger import Slot

NEVER = float("inf")
TAKINGS = {"issue": "issued", "reserve": "reserved", "redeem": "redeemed"}
STATES = ("issued", "reserved", "redeemed")


def ms(text):
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


@dataclasses.dataclass(eq=False)
class Redemption:
    rid: str
    alias: str
    state: str
    day: str  # of the taking
    seq: int
    ordinal: int
    money: int = 0
    due: float = NEVER
    base: object = None  # the issued one that this holds
    hold: object = None  # the hold that stands on this


class Dues:
    """When the standing holds end: the earliest."""

    def __init__(self):
        self.heap = []

    def add(self, redemption):
        heapq.heappush(self.heap, (redemption.due, id(redemption), redemption))

    def earliest(self):
        while self.heap and (self.heap[0][2].state != "reserved" or self.heap[0][2].due != self.heap[0][0]):
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else NEVER


Had = collections.namedtuple("Had", "total today due")


class Use:
    """What one user has; from position at[i] on it was then[i], with the earliest end of a hold."""

    def __init__(self):
        self.total, self.today, self.day, self.dues = 0, 0, None, Dues()
        self.at, self.then = [0], [Had(0, 0, NEVER)]

    def note(self, position):
        self.at.append(position)
        self.then.append(Had(self.total, self.today, self.dues.earliest()))

    def between(self, first, last):
        """What stood at some position of [first, last]."""
        return self.then[bisect.bisect_right(self.at, first) - 1:bisect.bisect_right(self.at, last)]

    @classmethod
    def one_after_another(cls, uses):
        """Of a user who was erased and came back: under each alias nothing is left when the next begins."""
        whole = cls()
        noted = sorted((at, i, had) for i, use in enumerate(uses) for at, had in zip(use.at[1:], use.then[1:]))
        whole.at += [at for at, _, _ in noted]
        whole.then += [had for _, _, had in noted]
        return whole


Move = collections.namedtuple("Move", "at seq step slots")  # a step of a move between lanes, and the slots of all steps until then


class Replay:
    """Of one lane. `wrong`: [(invariant, text)]; the rest is indexed by position, or by seq."""

    def __init__(self, lines, lane=0):
        self.wrong, self.lane = [], lane
        self.batches = [json.loads(line) for line in lines]
        self.end_of = [0]            # seq -> the position after it
        self.at = [float("-inf")]    # seq -> its time
        self.totals = [None]         # seq -> the totals after it
        self.free, self.day_taken, self.due = [0], [0], [NEVER]  # position -> ...
        self.room = [0]              # position -> of the coupon's slots, as the lane knows them, those not taken here
        self.times = [float("-inf")]
        self.active = [False]        # position -> whether it may be taken; versions: of the definition -> its entry
        self.versions = {}
        self.money = [0]
        self.definition = None
        self.slots_made, self.waiting = 0, 0  # slots that exist; of them, those to be retired
        self.elsewhere = 0  # slots that went to other lanes, less those that came from there
        self.moves = {"to": collections.defaultdict(list), "from": collections.defaultdict(list)}  # {other: [Move]}
        self.began, self.erased = {}, {}  # {alias: seq of its first taking}, {alias: the entry that ended it}
        self.slots, self.redemptions, self.lives = {}, {}, collections.defaultdict(list)
        self.uses, self.dues = collections.defaultdict(Use), Dues()
        self.state_counts = dict.fromkeys(STATES, 0)
        self.ordinal, self.day, self.today, self.given = 0, None, 0, 0
        self.by_key, self.ends, self.position = collections.defaultdict(list), {}, 0
        self.generated = lane * LANE_SLOTS
        for batch in self.batches:
            self._batch(batch)

    @property
    def taken(self):
        return sum(self.state_counts.values())

    @property
    def last_seq(self):
        return len(self.end_of) - 1

    def complain(self, invariant, text):
        self.wrong.append((invariant, text))

    # ---- folding ----

    def _batch(self, batch):
        if batch["day"]["start"] != self.day:
            self.day, self.today = batch["day"]["start"], 0
        for entry in batch["entries"]:
            entry["seq"], entry["at"] = batch["seq"], batch["at"]
            self.position += 1
            self._slot(entry)
            getattr(self, f"_{entry['kind']}", self._nothing)(entry, batch)
            self.free.append(self.left())
            self.active.append(self.is_active)
            self.day_taken.append(self.today)
            self.money.append(self.given)
            self.room.append(self.left() + self.elsewhere)
            self.due.append(self.dues.earliest())
            self.times.append(ms(batch["at"]))
        self.end_of.append(self.position)
        self.at.append(ms(batch["at"]))
        self._check_totals(batch)

    def _check_totals(self, batch):
        totals = batch["totals"]
        have = {**{name: totals[name] for name in (*STATES, "ordinal", "discount_minor")}, "elsewhere": totals.get("elsewhere", 0),
                "slots": totals["slots"] - totals["due"], "today": batch["day"]["taken"]}
        want = {**self.state_counts, "ordinal": self.ordinal, "discount_minor": self.given, "elsewhere": self.elsewhere,
                "slots": self.slots_made - self.waiting, "today": self.today}
        self.totals.append({**want, "stock": self.stock, "taken_total": self.taken, "day": self.day})
        if have != want:
            self.complain("I1", f"seq {batch['seq']}: its totals say {have}, its entries {want}")

    @property
    def is_active(self):
        return bool(self.definition) and self.definition.get("state", "active") == "active"

    @property
    def exact(self):
        return bool(self.definition) and self.definition["cap"]["policy"] == "exact"

    @property
    def stock(self):
        """The coupon's slots, as lane 0 knows them: here, and gone to the other lanes. None of another lane."""
        return self.slots_made - self.waiting + self.elsewhere

    def left(self):
        """What may still be taken."""
        if self.exact:
            return self.slots_made - self.waiting - self.taken
        cap = self.definition["cap"]
        return cap["total"] - self.taken if cap["policy"] == "approximate" and cap["total"] is not None else NEVER

    def _slot(self, entry):
        """The life of its slot (I4: one user at a time, generations in order, holds end in time)."""
        kind = entry["kind"]
        if entry.get("n", -1) < 0 or kind == "forget":
            return
        try:
            if kind == "retire":
                for n in range(entry["n"], entry["n"] + entry["count"]):
                    slot = self.slots.setdefault(n, Slot())
                    assert slot.state == "free", f"retired while {slot.state}: {entry}"
                    slot.state = "retired"
            elif "g" in entry:
                slot = self.slots.setdefault(entry["n"], Slot())
                if kind in TAKINGS:
                    here = self.lane * LANE_SLOTS <= entry["n"] < self.generated
                    assert here, f"slot {entry['n']} was never generated in lane {self.lane}: {entry}"
                    slot.take(entry, TAKINGS[kind])
                else:
                    getattr(slot, kind)(entry)
        except AssertionError as e:
            self.complain("I4", str(e))

    def rid(self, entry, batch, g="g", n="n"):
        number = entry.get(n, entry["n"])
        return f"{number}-{entry[g]}" if number >= 0 else f"L{batch['lane']}-{-number}-{entry[g]}"

    def _nothing(self, entry, batch):
        pass

    def _define(self, entry, _batch):
        self.definition = entry["definition"]
        self.versions[self.definition.get("version")] = entry
        self._check_stock(entry)

    def _generate(self, entry, _batch):
        self.slots_made += entry["count"]
        self.generated = max(self.generated, entry["n"] + entry["count"])
        self.elsewhere -= self._moved("from", entry)
        self._check_stock(entry)

    def _check_stock(self, entry):
        total = self.definition["cap"]["total"]
        if self.exact and total is not None and self.stock > total:
            self.complain("I1", f"seq {entry['seq']}: {self.stock} slots, and cap.total is {total}: {entry}")

    def _moved(self, way, entry):
        """The slots that this entry moves to another lane, or from it; a step that is none of a move moves none."""
        move = MOVE.fullmatch(entry.get("job") or "")
        if not move:
            return 0
        own, said, other = int(move[1]), move[2], int(move[3])
        if own != self.lane or said != way or (own == 0) == (other == 0):
            self.complain("I1", f"seq {entry['seq']}: no move of lane {self.lane}: {entry}")
        steps = self.moves[way][other]
        if entry["step"] != len(steps) + 1:
            self.complain("I1", f"seq {entry['seq']}: step {entry['step']} comes after {len(steps)}: {entry}")
        steps.append(Move(ms(entry["at"]), entry["seq"], entry["step"], entry["count"] + (steps[-1].slots if steps else 0)))
        return entry["count"]

    def _erase(self, entry, _batch):
        """The alias means nobody from here on."""
        use = self.uses[entry["alias"]]
        self.erased[entry["alias"]] = entry
        use.total = use.today = 0
        use.note(self.position)

    def _due(self, entry, _batch):
        self.waiting += entry["count"]
        self.elsewhere += self._moved("to", entry)
        self._check_lane(entry)

    def _retire(self, entry, _batch):
        self.waiting -= entry["count"]
        self.slots_made -= entry["count"]

    def _key(self, entry, redemption):
        self.by_key[entry["key"]].append((entry, redemption))

    def _live(self, redemption, state):
        redemption.state = state
        self.lives[redemption.rid].append((self.position, state, redemption.due))

    def _taking(self, entry, batch):
        self.ordinal += 1
        self.began.setdefault(entry["alias"], entry["seq"])
        if entry["alias"] in self.erased:
            self.complain("I4", f"seq {entry['seq']}: given to nobody, for the user was erased: {entry}")
        if entry["ordinal"] != self.ordinal:
            self.complain("I1", f"seq {entry['seq']}: ordinal {entry['ordinal']} where {self.ordinal} should be")
        r = Redemption(self.rid(entry, batch), entry["alias"], None, self.day, entry["seq"], entry["ordinal"],
                       entry.get("discount_minor", 0))
        if r.rid in self.redemptions:
            self.complain("I4", f"{r.rid} was given twice: {entry}")
        if entry.get("reserved_until"):
            r.due = ms(entry["reserved_until"])
        self.redemptions[r.rid] = r
        self._key(entry, r)
        self._live(r, TAKINGS[entry["kind"]])
        self.state_counts[r.state] += 1
        self.today += 1
        self.given += r.money
        self._used(r, 1, True)
        if r.state == "reserved":
            self._hold_until(r)
        self._check_caps(entry, r)

    _issue = _reserve = _redeem = _taking

    def _hold_until(self, r):
        self.dues.add(r)
        self.uses[r.alias].dues.add(r)
        self.uses[r.alias].note(self.position)

    def _used(self, r, change, today):
        use = self.uses[r.alias]
        if use.day != self.day:
            use.day, use.today = self.day, 0
        use.total += change
        if today:
            use.today += change
        use.note(self.position)

    def _check_caps(self, entry, r):
        if not self.is_active:
            self.complain("I8", f"seq {entry['seq']}: taken while the coupon was {self.definition['state']}: {entry}")
        cap, use = self.definition["cap"], self.uses[r.alias]
        for name, have, most in (("cap.total", self.taken, cap["total"] if cap["policy"] != "none" else None),
                                 ("cap.per_user", use.total, cap["per_user"]),
                                 ("cap.per_user_per_day", use.today, cap["per_user_per_day"])):
            if most is not None and have > most:
                self.complain("I1", f"seq {entry['seq']}: {have} taken, and {name} is {most}: {entry}")
        self._check_lane(entry)

    def _check_lane(self, entry):
        """The lane has taken no more than it has."""
        cap = self.definition["cap"]
        for name, have, most in (("slots", self.taken, self.slots_made - self.waiting if self.exact else None),
                                 ("cap.per_day", self.today, cap["per_day"]),
                                 ("cap.discount_minor", self.given, cap["discount_minor"])):
            if most is not None and have > most:
                self.complain("I1", f"seq {entry['seq']}: {have} taken, and {name} has {most} here: {entry}")

    def _named(self, entry, batch):
        """The redemption that the entry is about; None, and a complaint, without."""
        rid = self.rid(entry, batch)
        r = self.redemptions.get(rid)
        if not r or r.alias != entry["alias"]:
            self.complain("I4", f"{rid} of {r and r.alias}: {entry}")
            return None
        return r

    def _hold(self, entry, batch):
        base = self.redemptions.get(self.rid(entry, batch, "from", "from_n" if "from_n" in entry else "n"))
        if not base or base.alias != entry["alias"] or base.state != "issued":
            self.complain("I4", f"a hold on {base}: {entry}")
            return
        r = Redemption(self.rid(entry, batch), entry["alias"], None, base.day, entry["seq"], base.ordinal,
                       entry["discount_minor"], ms(entry["reserved_until"]), base)
        self.redemptions[r.rid], base.hold = r, r
        self._key(entry, r)
        self._live(r, "reserved")
        self._live(base, "held")
        self._move("issued", "reserved")
        self.given += r.money
        self._hold_until(r)
        self._check_lane(entry)

    def _move(self, old, new):
        self.state_counts[old] -= 1
        self.state_counts[new] += 1

    def _extend(self, entry, batch):
        r = self._named(entry, batch)
        if r:
            r.due = ms(entry["reserved_until"])
            self._key(entry, r)
            self._live(r, "reserved")
            self._hold_until(r)

    def _spend(self, entry, batch):
        r = self._named(entry, batch)
        if not r:
            return
        self._key(entry, r)
        self._move("reserved" if r.state == "reserved" else "issued", "redeemed")
        self.given += entry["discount_minor"] - (r.money if r.state == "reserved" else 0)
        r.money = entry["discount_minor"]
        self._live(r, "redeemed")
        if r.base:
            self._live(r.base, "redeemed")
        self.uses[r.alias].note(self.position)
        self._check_lane(entry)

    def _adjust(self, entry, batch):
        """The discount of a redeemed one is replaced; its slot and its use stay."""
        r = self._named(entry, batch)
        if not r:
            return
        if (r.state, r.money) != ("redeemed", entry["held_minor"]):
            self.complain("I1", f"seq {entry['seq']}: {r.rid} is {r.state}, with a discount of {r.money}: {entry}")
        self._key(entry, r)
        self.given += entry["discount_minor"] - r.money
        r.money = entry["discount_minor"]
        self._check_lane(entry)

    def _over(self, entry, batch, state):
        r = self._named(entry, batch)
        if not r:
            return
        self.ends[r.rid, state] = entry
        was, taking = r.state, r.base or r
        self.given -= r.money if was != "issued" else 0
        self._live(r, state)
        if r.base and state != "reversed":
            self._move("reserved", "issued")
            self._live(r.base, "issued")
            r.base.hold = None
            self.uses[r.alias].note(self.position)
            return
        if r.base:
            self._live(r.base, state)
            self.ends[r.base.rid, state] = entry
        self.state_counts[was] -= 1
        same_day = taking.day == self.day
        if same_day != entry["same_day"]:
            self.complain("I1", f"seq {entry['seq']}: same_day should be {same_day}: {entry}")
        self.today -= same_day
        if not entry.get("keep_use"):
            self._used(r, -1, same_day)

    def _cancel(self, entry, batch):
        self._over(entry, batch, "cancelled")

    def _expire(self, entry, batch):
        self._over(entry, batch, "expired")

    def _reverse(self, entry, batch):
        self._over(entry, batch, "reversed")

    # ---- asking ----

    def positions(self, first_seq, last_seq):
        """From the state that first_seq left to the one that last_seq left."""
        return self.end_of[first_seq], self.end_of[min(last_seq, self.last_seq)]

    def states_of(self, rid, first, last):
        """(state, due) of the redemption at some position of [first, last]."""
        life = self.lives.get(rid, [])
        at = [position for position, _, _ in life]
        begin = max(0, bisect.bisect_right(at, first) - 1)
        return [(state, due) for _, state, due in life[begin:bisect.bisect_right(at, last)]]
