"""The ledger as anyone outside can check it: GET /coupons/{id}/ledger, its hash chain, and what it says was taken."""
import hashlib
import json

from client import strict_json


def canonical(value):
    """RFC 8785. Numbers in the ledger are integers, and member names ASCII, so that sorting by code point is its order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read(stack, coupon, after=None, lane=0):
    """The batches of a lane, from NDJSON."""
    target = f"/coupons/{coupon}/ledger?lane={lane}" + (f"&after={after}" if after is not None else "")
    reply = stack.client("reporting").get(target).expect(200)
    assert reply.header("Content-Type").startswith("application/x-ndjson"), reply
    assert reply.body.endswith(b"\n") or not reply.body, reply
    return [line for line in reply.body.split(b"\n") if line]


def check_chain(lines):
    """Each line is in RFC 8785 form, its hash is the SHA-256 of it without `hash`, and follows on the one before."""
    previous, seq, at = "0" * 64, 0, ""
    for line in lines:
        batch = strict_json(line)
        assert canonical(batch) == line, f"not in RFC 8785 form: {line[:500]!r}"
        said = batch.pop("hash")
        assert hashlib.sha256(canonical(batch)).hexdigest() == said, f"the hash of {line[:500]!r}"
        assert batch["prev"] == previous, f"seq {batch['seq']} does not follow on the one before"
        assert batch["seq"] == seq + 1, f"seq {batch['seq']} comes after {seq}"
        assert batch["at"] >= at, f"time runs backwards at seq {batch['seq']}"
        previous, seq, at = said, batch["seq"], batch["at"]


def rid(batch, entry):
    """The id of the redemption that the entry is about."""
    return f"{entry['n']}-{entry['g']}" if entry["n"] >= 0 else f"L{batch['lane']}-{-entry['n']}-{entry['g']}"


class LaneLedger:
    """What a lane's ledger says of its takings."""

    def __init__(self, stack, coupon, lane=0):
        self.batches = [strict_json(line) for line in read(stack, coupon, lane=lane)]
        self.taken, self.redeemed, self.reversed, self.lives = [], [], [], {}
        for batch in self.batches:
            for entry in batch["entries"]:
                entry["seq"], entry["at"] = batch["seq"], batch["at"]
                if "ordinal" in entry:
                    self.taken.append(entry)
                if entry["kind"] in ("redeem", "reverse"):
                    (self.redeemed if entry["kind"] == "redeem" else self.reversed).append(entry)
                if "g" in entry:
                    self.lives.setdefault(rid(batch, entry), []).append(entry)

    def ids(self):
        return [f"{e['n']}-{e['g']}" for e in self.redeemed]

    def kinds(self, redemption):
        """What happened to one redemption, in order."""
        return [e["kind"] for e in self.lives.get(redemption, [])]

    def check_ordinals(self):
        """1..k: no gap, none twice, in order."""
        ordinals = [e["ordinal"] for e in self.taken]
        assert ordinals == list(range(1, len(ordinals) + 1)), f"ordinals: {first_difference(ordinals)}"

    def entries(self):
        return (entry for batch in self.batches for entry in batch["entries"])


class Slot:
    """What replays one slot's entries, and fails at the first that the rules do not have."""

    def __init__(self):
        self.state, self.generation, self.alias, self.due, self.beneath = "free", 0, None, None, None
        self.current = None

    def take(self, entry, state):
        assert self.state == "free", f"taken while it is {self.state}: {entry}"
        self.make(entry, state)

    def make(self, entry, state):
        assert entry["g"] == self.generation + 1, f"generation {entry['g']} after {self.generation}: {entry}"
        self.state, self.generation, self.alias = state, entry["g"], entry["alias"]
        self.current, self.due = entry["g"], entry.get("reserved_until") or entry.get("valid_until")

    def hold(self, entry):
        self.standing(entry, "issued", g=entry["from"])
        self.beneath = (self.current, self.due)
        self.make(entry, "reserved")

    def standing(self, entry, *states, g=None, late=False):
        """The entry is about what stands here: its state, its generation, its user; and it comes in time."""
        assert self.state in states and self.current == (g or entry["g"]) and self.alias == entry["alias"], \
            f"{entry} meets {self.state} {self.current} of {self.alias}"
        dues = [self.due, entry.get("ends") if self.state == "issued" else None]  # the coupon's end ends what is issued
        due = min((d for d in dues if d), default=None)
        if self.state != "redeemed" and due:
            assert (entry["at"] >= due) if late else (entry["at"] < due), f"due {due}, and {entry}"

    def extend(self, entry):
        self.standing(entry, "reserved")
        assert entry["reserved_until"] >= self.due, f"shorter than {self.due}: {entry}"
        self.due = entry["reserved_until"]

    def spend(self, entry):
        self.standing(entry, "issued", "reserved")
        self.state = "redeemed"

    def adjust(self, entry):
        self.standing(entry, "redeemed")

    def end(self, entry):
        if self.beneath:  # back to issued
            self.state, (self.current, self.due), self.beneath = "issued", self.beneath, None
        else:
            self.state = "free"

    def cancel(self, entry):
        self.standing(entry, "issued", "reserved")
        self.end(entry)

    def expire(self, entry):
        self.standing(entry, "issued", "reserved", late=True)
        self.end(entry)

    def reverse(self, entry):
        self.standing(entry, "redeemed")
        self.state, self.beneath = "free", None


def check_slots(said):
    """Replay the ledger by the rules of a slot's life, written down once more; {n: its slot} of those ever taken."""
    slots = {}
    for entry in said.entries():
        if entry.get("n", -1) < 0:
            continue
        if entry["kind"] == "retire":
            for n in range(entry["n"], entry["n"] + entry["count"]):
                assert slots.setdefault(n, Slot()).state == "free", f"retired while {slots[n].state}: {entry}"
                slots[n].state = "retired"
        if "g" not in entry:
            continue
        slot, kind = slots.setdefault(entry["n"], Slot()), entry["kind"]
        if kind in ("issue", "reserve", "redeem"):
            slot.take(entry, {"issue": "issued", "reserve": "reserved", "redeem": "redeemed"}[kind])
        elif kind != "forget":
            getattr(slot, kind)(entry)
    return slots


def check_life(stack, coupon):
    """The chain, the ordinals, every slot's life, the counts, and what is stored. Returns the ledger."""
    check_chain(read(stack, coupon))
    counts = stack.counts(coupon)
    said = LaneLedger(stack, coupon)
    said.check_ordinals()
    states = [slot.state for slot in check_slots(said).values()]
    if counts["seq"] == said.batches[-1]["seq"]:  # else the sweeper was there between the two
        for state in ("issued", "reserved", "redeemed"):
            assert counts[state] == states.count(state), f"{state}: {states.count(state)} in the ledger, {counts}"
    stack.verify(coupon)
    return said


def first_difference(ordinals):
    for i, k in enumerate(ordinals):
        if k != i + 1:
            return f"{k} stands where {i + 1} should, after {ordinals[max(0, i - 3):i]}"
    return "none"
