"""The ledger as anyone outside can check it: GET /coupons/{id}/ledger, its hash chain, and what it says was taken."""
import hashlib
import json

from client import strict_json


def canonical(value):
    """RFC 8785. Numbers in the ledger are integers, and member names ASCII, so that sorting by code point is its order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read(stack, coupon, after=None):
    """The batches, from NDJSON."""
    target = f"/coupons/{coupon}/ledger" + (f"?after={after}" if after is not None else "")
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
        told = batch.pop("hash")
        assert hashlib.sha256(canonical(batch)).hexdigest() == told, f"the hash of {line[:500]!r}"
        assert batch["prev"] == previous, f"seq {batch['seq']} does not follow on the one before"
        assert batch["seq"] == seq + 1, f"seq {batch['seq']} comes after {seq}"
        assert batch["at"] >= at, f"time runs backwards at seq {batch['seq']}"
        previous, seq, at = told, batch["seq"], batch["at"]


class Told:
    """What a coupon's ledger says of its takings."""

    def __init__(self, stack, coupon):
        self.batches = [strict_json(line) for line in read(stack, coupon)]
        self.redeemed, self.reversed = [], []
        for batch in self.batches:
            for entry in batch["entries"]:
                if entry["kind"] in ("redeem", "reverse"):
                    entry["seq"] = batch["seq"]
                    (self.redeemed if entry["kind"] == "redeem" else self.reversed).append(entry)

    def ids(self):
        return [f"{e['n']}-{e['g']}" for e in self.redeemed]

    def check_ordinals(self):
        """1..k: no gap, none twice, in order."""
        ordinals = [e["ordinal"] for e in self.redeemed]
        assert ordinals == list(range(1, len(ordinals) + 1)), f"ordinals: {first_difference(ordinals)}"


def first_difference(ordinals):
    for i, k in enumerate(ordinals):
        if k != i + 1:
            return f"{k} stands where {i + 1} should, after {ordinals[max(0, i - 3):i]}"
    return "none"
