"""Coupons with several lanes: which lane a user is in, and what the lanes' ledgers say together."""
import collections
import itertools
import re

import ledger

LANE_SLOTS = 10**12
MOVE = re.compile(r"lane-(\d+)-(to|from)-(\d+)")


def lane_of(user, lanes):
    """FNV-1a with 64 bits, mixed once more: the service's own hash, written down a second time."""
    hashed = 14695981039346656037
    for byte in user.encode():
        hashed = (hashed ^ byte) * 1099511628211 % 2**64
    hashed = (hashed ^ (hashed >> 33)) * 0xFF51AFD7ED558CCD % 2**64
    return (hashed ^ (hashed >> 33)) % lanes


def users_of(lane, lanes, prefix="u"):
    """Endless names of users who are in this lane."""
    return (name for i in itertools.count() if lane_of(name := f"{prefix}-{i}", lanes) == lane)


class Lanes:
    """What all ledgers of a coupon say."""

    def __init__(self, stack, coupon):
        self.stack, self.coupon = stack, coupon
        self.count = stack.client("ops").get(f"/coupons/{coupon}").ok()["lanes"]
        self.said = [ledger.LaneLedger(stack, coupon, lane) for lane in range(self.count)]

    def entries(self, *kinds):
        """Of these kinds, of all lanes: (lane, entry)."""
        return [(lane, e) for lane, said in enumerate(self.said) for e in said.entries() if not kinds or e["kind"] in kinds]

    def takings(self):
        """All of them, the oldest first."""
        return sorted((e for said in self.said for e in said.taken), key=lambda e: e["at"])

    def ids(self):
        return [ledger.rid(batch, e) for said in self.said for batch in said.batches for e in batch["entries"] if "ordinal" in e]

    def check(self):
        """Each chain, the ordinals, every slot's life and lane, and what moved between the lanes."""
        for lane, said in enumerate(self.said):
            ledger.check_chain(ledger.read(self.stack, self.coupon, lane=lane))
            said.check_ordinals()
            slots = ledger.check_slots(said)
            strangers = [n for n in slots if n // LANE_SLOTS != lane]
            assert not strangers, f"lane {lane} has slots {strangers[:5]}"
        self.check_moves()
        return self

    def check_moves(self):
        """Each step of a move was made once on both sides, with as many slots; only the last one may still be on its way."""
        went, came = self.moves("to"), self.moves("from")
        away = 0
        assert came.keys() <= went.keys(), f"slots came that did not go: {came.keys() - went.keys()}"
        for pair, steps in went.items():
            there = came.get(pair, [])
            assert [step for step, _ in steps] == list(range(1, len(steps) + 1)), f"lanes {pair}: steps {steps}"
            assert there in (steps, steps[:-1]), f"lanes {pair}: {steps[-3:]} went, {there[-3:]} came"
            away += sum(count for _, count in steps[len(there):])
        elsewhere = sum(said.batches[-1]["totals"].get("elsewhere", 0) for said in self.said if said.batches)
        assert elsewhere == away, f"elsewhere: {elsewhere}, and on their way are {away}"

    def moves(self, way):
        """{(giver, taker): [(step, slots)]}, as one of the two tells it."""
        moves = collections.defaultdict(list)
        for lane, entry in self.entries("due", "generate"):
            said = MOVE.fullmatch(entry.get("job", ""))
            if said and said[2] == way:
                own, other = int(said[1]), int(said[3])
                assert own == lane and entry["kind"] == ("due" if way == "to" else "generate"), entry
                moves[(own, other) if way == "to" else (other, own)].append((entry["step"], entry["count"]))
        return moves


def check_lanes(stack, coupon):
    """Everything: the ledgers by themselves, against the counts, and against what is stored. Returns the ledgers."""
    counts = stack.counts(coupon)
    said = Lanes(stack, coupon).check()
    states = collections.Counter(slot.state for each in said.said for slot in ledger.check_slots(each).values())
    if counts["slots"] is not None:
        for state in ("issued", "reserved", "redeemed"):
            assert counts[state] == states[state], f"{state}: {states[state]} in the ledgers, {counts}"
        assert counts["free"] + counts["taken_total"] == counts["slots"], counts
    stack.verify(coupon)
    return said
