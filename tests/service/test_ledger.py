"""GET /ledger: the whole truth, whose hash chain anyone can recompute."""
import hashlib

import pytest

import ledger
from client import strict_json


@pytest.fixture
def lively(stack, storefront):
    """A coupon with every kind of entry of this version."""
    coupon = stack.coupon(slots=6, title="Ünïcödé \"quotes\" \\ \u2028 \U0001f600", cap={"total": 8, "per_user": 3},
                          discount={"kind": "amount", "amount_minor": 100, "currency": "EUR"}, metadata={"b": "\n\t\u0001", "a": 1})
    ids = [storefront.take(coupon, user, order={"id": "o/1", "currency": "EUR"}).ok(201)["id"] for user in ("ä/ö", "b", "\U0001f600")]
    storefront.post(f"/coupons/{coupon}/redemptions/{ids[1]}/reverse").expect(200)
    stack.patch(coupon, {"cap": {"total": 4}, "title": "Changed"})
    storefront.take(coupon, "b").expect(201)
    return coupon


def test_every_line_hashes_to_what_it_says_and_follows_on_the_one_before(stack, lively):
    lines = ledger.read(stack, lively)
    ledger.check_chain(lines)
    kinds = {entry["kind"] for line in lines for entry in strict_json(line)["entries"]}
    assert {"define", "generate", "redeem", "reverse", "due"} <= kinds
    assert stack.counts(lively)["seq"] == strict_json(lines[-1])["seq"] == len(lines)


def test_a_changed_line_breaks_the_chain(stack, lively):
    lines = ledger.read(stack, lively)
    for at in range(len(lines)):
        forged = lines[:at] + [lines[at].replace(b'"seq":', b'"seq":1', 1)] + lines[at + 1:]
        with pytest.raises(AssertionError):
            ledger.check_chain(forged)
    with pytest.raises(AssertionError):
        ledger.check_chain(lines[:1] + lines[2:])


def test_the_ledger_holds_no_user_name_key_or_order(stack, storefront, reporting):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "a-very-special-user", "a-very-special-key", order={"id": "a-very-special-order"}).expect(201)
    text = reporting.get(f"/coupons/{coupon}/ledger").body
    assert b"redeem" in text and b"very-special" not in text, text


def test_a_guessed_key_cannot_be_confirmed_without_the_installations_secret(stack, storefront):
    """Neither of a redemption's key nor of a coupon's, by whoever has the ledger or an archive: these have the alias."""
    coupon, names = stack.coupon(slots=1), stack.database.secrets.find_one({"_id": "names"})["key"]
    storefront.take(coupon, "ana", "order-1").expect(201)
    entry, = (entry for line in ledger.read(stack, coupon) for entry in strict_json(line)["entries"] if entry["kind"] == "redeem")
    guess = f"{entry['alias']}\0order-1".encode()
    secret = hashlib.blake2b(b"\x01keys", digest_size=16, key=names).digest()
    assert entry["key"] != hashlib.blake2b(guess, digest_size=16).hexdigest()
    assert entry["key"] == hashlib.blake2b(guess, digest_size=16, key=secret).hexdigest()


def test_reading_goes_on_after_a_seq(stack, lively):
    lines = ledger.read(stack, lively)
    for after in (0, 1, len(lines) - 1, len(lines)):
        assert ledger.read(stack, lively, after) == lines[after:]
    assert ledger.read(stack, lively, 10**9) == []


@pytest.mark.parametrize("query", ["after=x", "after=-1", "after=", "lane=x", "lane=-1", "after=99999999999999999999"])
def test_bad_positions_are_refused(stack, lively, reporting, query):
    reporting.get(f"/coupons/{lively}/ledger?{query}").problem("bad_request")


def test_a_coupon_that_is_not_there_has_no_ledger(reporting):
    reporting.get("/coupons/never-made/ledger").problem("coupon_not_found")


def test_totals_of_a_batch_are_the_sum_of_all_entries_until_then(stack, lively):
    redeemed, discount = 0, 0
    for batch in ledger.LaneLedger(stack, lively).batches:
        for entry in batch["entries"]:
            sign = {"redeem": 1, "reverse": -1}.get(entry["kind"], 0)
            redeemed += sign
            discount += sign * entry.get("discount_minor", 0)
        assert batch["totals"]["redeemed"] == redeemed and batch["totals"]["discount_minor"] == discount, batch
