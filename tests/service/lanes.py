"""Coupons with several lanes: which lane a user is in, and what the lanes' ledgers say together."""
import collections
import itertools
import re

import ledger

LANE_SLOTS = 10**12
ACCOUNT = re.compile(r"lane-(\d+)-(\d+)")
GIFTS = ("gift_slots", "gift_minor")  # what is good for ever; shares of a day's cap end with it


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
        self.told = [ledger.Told(stack, coupon, lane) for lane in range(self.count)]

    def entries(self, *kinds):
        """Of these kinds, of all lanes: (lane, entry)."""
        return [(lane, e) for lane, told in enumerate(self.told) for e in told.entries() if not kinds or e["kind"] in kinds]

    def takings(self):
        """All of them, the oldest first."""
        return sorted((e for told in self.told for e in told.taken), key=lambda e: e["at"])

    def ids(self):
        return [ledger.rid(batch, e) for told in self.told for batch in told.batches for e in batch["entries"] if "ordinal" in e]

    def check(self):
        """Each chain, the ordinals, every slot's life and lane, and what the lanes gave each other."""
        for lane, told in enumerate(self.told):
            ledger.check_chain(ledger.read(self.stack, self.coupon, lane=lane))
            told.check_ordinals()
            slots = ledger.check_slots(told)
            strangers = [n for n in slots if n // LANE_SLOTS != lane]
            assert not strangers, f"lane {lane} has slots {strangers[:5]}"
        self.check_gifts()
        return self

    def check_gifts(self):
        """Nobody got what was not given, and what is elsewhere is what is on its way: at rest nothing, unless somebody died."""
        given, got = self.accounts("give"), self.accounts("get")
        for account, sums in got.items():
            more = {name: (sums[name], given[account][name]) for name in GIFTS if sums[name] > given[account][name]}
            assert not more, f"lane {account[1]} got of lane {account[0]} what was never given: {more}"
        for name, total in zip(GIFTS, ("elsewhere", "minor_elsewhere")):
            away = sum(told.batches[-1]["totals"].get(total, 0) for told in self.told if told.batches)
            assert away == self.on_their_way(name) >= 0, f"{total}: {away}, and on their way are {self.on_their_way(name)}"

    def accounts(self, kind):
        """{(giver, taker): sums}, as one of the two tells it."""
        sums = collections.defaultdict(collections.Counter)
        for _, entry in self.entries(kind):
            own, peer = map(int, ACCOUNT.fullmatch(entry["job"]).groups())
            sums[(own, peer) if kind == "give" else (peer, own)].update({name: entry.get(name, 0) for name in GIFTS})
        return sums

    def on_their_way(self, name):
        return sum(s[name] for s in self.accounts("give").values()) - sum(s[name] for s in self.accounts("get").values())


def check_lanes(stack, coupon):
    """Everything: the ledgers by themselves, against the counts, and against what is stored. Returns the ledgers."""
    counts = stack.counts(coupon)
    told = Lanes(stack, coupon).check()
    states = collections.Counter(slot.state for each in told.told for slot in ledger.check_slots(each).values())
    if counts["slots"] is not None:
        for state in ("issued", "reserved", "redeemed"):
            assert counts[state] == states[state], f"{state}: {states[state]} in the ledgers, {counts}"
        assert counts["free"] + counts["taken_total"] == counts["slots"], counts
    stack.verify(coupon)
    return told
