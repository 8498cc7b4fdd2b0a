"""Receipts: on request, signed, of the batch that put a redemption into the state that they state."""
import datetime
import hashlib
import json
import re
import subprocess
import sys

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ledger
from client import keys
from crowd import take_all, users
from effort import in_full
from halves import asleep
from stack import PATIENCE_S, ROOT, wait_until

MEMBERS = {"at", "coupon", "discount_minor", "hash", "id", "lane", "order", "ordinal", "seq", "slot", "state", "user"}
KINDS = {"issued": {"issue"}, "reserved": {"reserve", "hold"}, "redeemed": {"redeem", "spend"}, "cancelled": {"cancel"},
         "expired": {"expire"}, "reversed": {"reverse"}}


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.fixture
def published(reporting):
    return jwt.PyJWKSet.from_dict(reporting.get("/coupons/-/receipt-keys").ok())


def path(redemption, verb=""):
    return f"/coupons/{redemption['coupon']}/redemptions/{redemption['id']}{verb}"


def opened(token, published):
    """The payload, by a library that others wrote; both parts are in their canonical form."""
    header = jwt.get_unverified_header(token)
    assert header == {"alg": "EdDSA", "kid": published.keys[0].key_id}, header
    payload = jwt.decode(token, published[header["kid"]], algorithms=["EdDSA"])
    assert json.loads(ledger.canonical(payload)) == payload and set(payload) - {"name"} == MEMBERS, payload
    return payload


def entry_of(stack, payload):
    """The ledger's entry that the receipt speaks of; it must say all that it can."""
    batch = next(b for b in map(json.loads, ledger.read(stack, payload["coupon"], lane=payload["lane"])) if b["seq"] == payload["seq"])
    assert batch["hash"] == payload["hash"] and batch["at"] == payload["at"]

    def is_it(e):
        ids = [ledger.rid(batch, e)] if "g" in e else []
        if e["kind"] in ("spend", "reverse") and "from" in e:
            ids.append(ledger.rid(batch, {"n": e.get("from_n", e["n"]), "g": e["from"]}))
        return payload["id"] in ids and e["kind"] in KINDS[payload["state"]]

    found, = filter(is_it, batch["entries"])
    assert found["alias"] == payload["user"] and found.get("discount_minor", 0) == payload["discount_minor"]
    assert found.get("ordinal", payload["ordinal"]) == payload["ordinal"]
    return found["kind"]


def receipt(stack, published, client, redemption):
    """Of the state in which it is, by the call that gives nothing else; and its entry's kind."""
    payload = opened(client.get(path(redemption, "/receipt")).ok()["receipt"], published)
    assert payload["id"] == redemption["id"] and "name" not in payload
    return payload, entry_of(stack, payload)


def test_nobody_gets_a_receipt_who_asks_for_none(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"per_user": 3})
    taken = storefront.take(coupon, "u").ok(201)
    listed = storefront.get(f"/coupons/{coupon}/redemptions?receipt=true").ok()["items"][0]
    for body in (taken, storefront.get(path(taken)).ok(), storefront.get(path(taken, "?receipt=false")).ok(), listed,
                 storefront.post(path(taken, "/reverse")).ok()):
        assert "receipt" not in body, body


@pytest.mark.parametrize("members", [{"cap": {"total": 4, "per_user": 4}}, {"cap": {"total": 4, "per_user": 4, "policy": "approximate"}}])
def test_each_state_has_a_receipt_of_the_batch_that_made_it(stack, storefront, published, members):
    slots = 0 if "policy" in members["cap"] else 4
    coupon = stack.coupon(slots=slots, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"}, **members)
    order = {"id": "o-1", "amount_minor": 4000, "currency": "EUR"}
    issued = storefront.post(f"/coupons/{coupon}/redemptions?receipt=true", {"user": "ä", "state": "issued"}, idempotency_key="i").ok(201)
    payload = opened(issued["receipt"], published)
    assert payload["name"] == "ä" and payload["slot"] == issued["slot"] and payload["ordinal"] == 1 and payload["order"] is None
    assert payload["state"] == "issued" and payload["discount_minor"] == 0 and entry_of(stack, payload) == "issue"
    hold = storefront.post(path(issued, "/reserve?receipt=true"), {"order": order}, idempotency_key="h").ok(201)
    held = opened(hold["receipt"], published)
    assert held["id"] == hold["id"] and held["state"] == "reserved" and held["order"] == "o-1" and held["discount_minor"] == 500
    assert entry_of(stack, held) == "hold" and "name" not in held and held["ordinal"] == 1
    assert receipt(stack, published, storefront, issued) == ({k: v for k, v in payload.items() if k != "name"}, "issue")
    for i in range(2):
        longer = storefront.post(path(hold, "/reserve?receipt=true"), {"reserve_s": 900 + i}, idempotency_key=f"e-{i}").ok()
        assert opened(longer["receipt"], published) == held
    spent = storefront.post(path(hold, "/redeem?receipt=true"), None, idempotency_key="s").ok()
    redeemed = opened(spent["receipt"], published)
    assert redeemed["state"] == "redeemed" and redeemed["seq"] > held["seq"] and entry_of(stack, redeemed) == "spend"
    beneath, kind = receipt(stack, published, storefront, issued)
    assert kind == "spend" and beneath["hash"] == redeemed["hash"] and beneath["id"] == issued["id"]
    back = storefront.post(path(issued, "/reverse?receipt=true")).ok()
    assert opened(back["receipt"], published)["state"] == "reversed" and entry_of(stack, opened(back["receipt"], published)) == "reverse"
    assert receipt(stack, published, storefront, hold)[1] == "reverse"
    # whoever repeats a call gets the receipt of the state that its first answer has, wherever the redemption is by now
    target = f"/coupons/{coupon}/redemptions"
    again = storefront.post(f"{target}?receipt=true", {"user": "ä", "state": "issued"}, idempotency_key="i").ok(201)
    assert opened(again["receipt"], published) == payload
    again = storefront.post(path(issued, "/reserve?receipt=true"), {"order": order}, idempotency_key="h").ok(201)
    assert opened(again["receipt"], published) == held
    again = storefront.post(path(hold, "/redeem?receipt=true"), None, idempotency_key="s").ok()
    assert opened(again["receipt"], published) == redeemed


def test_a_cancelled_hold_has_another_receipt_than_the_hold(stack, storefront, published):
    coupon = stack.coupon(slots=1)
    hold = storefront.take(coupon, "u", state="reserved").ok(201)
    before, _ = receipt(stack, published, storefront, hold)
    cancelled = opened(storefront.post(path(hold, "/cancel?receipt=true")).ok()["receipt"], published)
    assert cancelled["hash"] != before["hash"] and (cancelled["state"], before["state"]) == ("cancelled", "reserved")
    assert entry_of(stack, cancelled) == "cancel"
    assert receipt(stack, published, storefront, hold) == (cancelled, "cancel")


@pytest.mark.parametrize("ask, policy", [
    ("{}/receipt", "exact"), in_full("{}/receipt", "approximate"), in_full("{}?receipt=true", "exact"), ("{}?receipt=true", "approximate"),
    ("{}/cancel?receipt=true", "exact"), in_full("{}/cancel?receipt=true", "approximate")])
def test_a_hold_that_lapsed_is_entered_before_it_is_signed(stack, storefront, published, ask, policy):
    """More have lapsed than one batch enters, and nobody sweeps but who asks: the last one has no entry when it is read."""
    holds = 6000
    coupon = stack.coupon(slots=holds if policy == "exact" else 0, cap={"total": holds, "policy": policy})
    with asleep(stack, ["runner"]):
        hold = take_all(storefront, coupon, [{**user, "state": "reserved", "reserve_s": 6} for user in users("u", holds)])[-1]
        wait_until("the last to lapse", lambda: now() > hold["reserved_until"])
        target = ask.format(path(hold))
        token = (storefront.post(target) if "cancel" in ask else storefront.get(target)).ok()["receipt"]
    assert opened(token, published)["state"] == "expired"
    assert entry_of(stack, opened(token, published)) == "expire"


def test_the_flag_is_no_part_of_the_request_nor_the_receipt_of_its_answer(stack, storefront):
    coupon = stack.coupon(slots=2)
    target, ask = f"/coupons/{coupon}/redemptions", {"user": "u"}
    first = storefront.post(f"{target}?receipt=true", ask, idempotency_key="k").ok(201)
    token = first.pop("receipt")
    plain = storefront.post(target, ask, idempotency_key="k").expect(201)
    assert plain.header("Idempotent-Replayed") == "true" and plain.json() == first
    assert storefront.post(f"{target}?receipt=true", ask, idempotency_key="k").ok(201) == {**first, "receipt": token}
    hold = storefront.take(coupon, "v", state="reserved").ok(201)
    plain = storefront.step(hold, "redeem", "r").ok()
    assert storefront.post(path(hold, "/redeem?receipt=true"), None, idempotency_key="r").ok().pop("receipt")
    assert storefront.step(hold, "redeem", "r").ok() == plain


def test_a_flag_that_is_neither_is_refused_and_changes_nothing(stack, storefront):
    coupon = stack.coupon(slots=1)
    for value in ("1", "yes", "", "TRUE"):
        storefront.post(f"/coupons/{coupon}/redemptions?receipt={value}", {"user": "u"}, idempotency_key="k").problem("bad_request")
    storefront.post("/coupons/no-such/redemptions?receipt=1", {"user": "u"}, idempotency_key="k").problem("coupon_not_found")
    taken = storefront.take(coupon, "u").ok(201)
    assert taken["ordinal"] == 1
    for verb in ("reserve", "redeem"):
        storefront.post(path(taken, f"/{verb}?receipt=1"), None, idempotency_key="k").problem("bad_request")
    for verb in ("cancel", "reverse"):
        storefront.post(path(taken, f"/{verb}?receipt=1")).problem("bad_request")
    storefront.get(path(taken, "?receipt=1")).problem("bad_request")
    storefront.get(f"/coupons/{coupon}/redemptions/17-1/receipt").problem("redemption_not_found")
    assert storefront.get(path(taken)).ok() == taken


def test_a_forged_receipt_does_not_verify(stack, storefront, published):
    taken = storefront.take(stack.coupon(slots=1), "u").ok(201)
    head, payload, signature = storefront.get(path(taken, "/receipt")).ok()["receipt"].split(".")
    for forged in (f"{head}.{payload[:-4]}AAAA.{signature}", f"{head}.{payload}.{signature[:-6]}AAAAAA"):
        with pytest.raises(jwt.InvalidSignatureError):
            opened(forged, published)


def test_of_a_coupon_with_lanes_the_receipt_names_the_users_lane(stack, storefront, published):
    coupon = stack.coupon(slots=16, lanes=4, cap={"total": 16})
    lanes = set()
    for i in range(8):
        taken = storefront.take(coupon, f"u-{i}").ok(201)
        payload, kind = receipt(stack, published, storefront, taken)
        assert kind == "redeem" and payload["lane"] == taken["lane"]
        lanes.add(payload["lane"])
    assert len(lanes) > 1


def test_a_receipt_of_before_stands_in_the_ledger_when_its_user_is_erased(stack, storefront, ops, published):
    taken = storefront.take(stack.coupon(slots=1), "to-be-erased").ok(201)
    before, _ = receipt(stack, published, storefront, taken)
    wait_until("the name to be gone", lambda: ops.delete("/coupons/-/users/to-be-erased").status == 204)
    assert entry_of(stack, before) == "redeem"
    storefront.get(path(taken, "/receipt")).problem("redemption_not_found")


def test_without_a_key_there_are_no_receipts(beside, tmp_path):
    stack = beside(settings=f"[receipts]\nseed_file = {tmp_path}/none\n")
    storefront = stack.client("storefront")
    coupon = stack.coupon(slots=1)
    storefront.get("/coupons/-/receipt-keys").problem("not_found")
    taken = storefront.post(f"/coupons/{coupon}/redemptions?receipt=true", {"user": "u"}, idempotency_key=f"k-{next(keys)}").ok(201)
    assert taken["receipt"] is None
    assert storefront.get(path(taken, "?receipt=true")).ok()["receipt"] is None
    storefront.get(path(taken, "/receipt")).problem("not_found")


def test_the_python_of_the_api_by_example_verifies_a_receipt(stack, storefront, published):
    program, = (p for p in re.findall(r"```python\n(.*?)```", (ROOT / "app" / "http" / "README.md").read_text(), re.S) if "import jwt" in p)
    taken = storefront.take(stack.coupon(slots=1), "u").ok(201)
    payload, _ = receipt(stack, published, storefront, taken)
    done = subprocess.run([sys.executable, "-c", program, f"http://127.0.0.1:{stack.port}", stack.key("storefront"), path(taken)],
                          text=True, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "") and len(program.strip().splitlines()) <= 12
    assert done.stdout == f"{taken['id']} redeemed by batch {payload['seq']} {payload['hash']}\n"


# ---- couponctl receipt ----

def verify(stack, tmp_path, token, published=None, ledger_of=None, lane=0, lines=None):
    """couponctl receipt verify, in a world without the service where keys are given; exit code, claims, and what it complains of."""
    asked, environment = ["receipt", "verify"], dict(stack.environment)
    if published:
        environment["COUPONS_PORT"] = "1"
        (tmp_path / "jwks").write_text(json.dumps(published))
        asked += ["--keys", tmp_path / "jwks"]
    if ledger_of:
        lines = ledger.read(stack, ledger_of, lane=lane)
    if lines is not None:
        (tmp_path / "ledger").write_bytes(b"".join(line + b"\n" for line in lines))
        asked += ["--ledger", tmp_path / "ledger"]
    done = subprocess.run([ROOT / "scripts" / "couponctl", *asked, "-"], env=environment, text=True, capture_output=True,
                          input=f"{token}\n", timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def forger(stack):
    """Whoever has the seed signs what they like."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex((stack.var / "keys" / "receipt_seed").read_text().split()[0]))
    kid = stack.client("ops").get("/coupons/-/receipt-keys").ok()["keys"][0]["kid"]
    return lambda claims: jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": kid, "typ": None})


@pytest.mark.parametrize("members", [{}, {"cap": {"policy": "none", "total": None}}, {"lanes": 3}])
def test_couponctl_finds_every_receipt_in_the_ledger(stack, storefront, reporting, tmp_path, members):
    cap = {"total": 9, "per_user": 9, **members.pop("cap", {})}
    coupon = stack.coupon(slots=9 if cap["total"] else 0, cap=cap, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"},
                          **members)
    order = {"id": "o", "amount_minor": 900, "currency": "EUR"}
    published = reporting.get("/coupons/-/receipt-keys").ok()
    storefront.take(coupon, "u", state="issued").expect(201)
    issued = storefront.take(coupon, "u", state="issued").ok(201)
    hold = storefront.step(issued, "reserve", order=order).ok(201)
    there = [issued, hold]
    tokens = [storefront.get(path(r, "/receipt")).ok()["receipt"] for r in there]
    storefront.step(hold, "redeem").expect(200)
    tokens += [storefront.get(path(r, "/receipt")).ok()["receipt"] for r in there]
    storefront.step(issued, "reverse").expect(200)
    tokens += [storefront.get(path(r, "/receipt")).ok()["receipt"] for r in there]
    other = storefront.take(coupon, "u", state="reserved", order=order).ok(201)
    storefront.step(other, "cancel").expect(200)
    tokens += [storefront.get(path(other, "/receipt")).ok()["receipt"]]
    assert len(set(tokens)) == len(tokens)
    for token in tokens:
        claims = jwt.decode(token, options={"verify_signature": False})
        assert verify(stack, tmp_path, token, published, coupon, claims["lane"]) == (0, claims, "")
    assert verify(stack, tmp_path, tokens[0])[0] == 0  # by the keys that the service gives


def test_couponctl_believes_no_receipt_that_says_more_than_the_ledger(stack, storefront, reporting, tmp_path):
    coupon = stack.coupon(slots=4, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"})
    published = reporting.get("/coupons/-/receipt-keys").ok()
    order = {"id": "o", "amount_minor": 900, "currency": "EUR"}
    storefront.take(coupon, "somebody", order=order).expect(201)
    taken = storefront.take(coupon, "u", state="reserved", order=order).ok(201)
    claims = opened(storefront.step(taken, "redeem").ok() and storefront.get(path(taken, "/receipt")).ok()["receipt"],
                    jwt.PyJWKSet.from_dict(published))
    signed = forger(stack)
    assert verify(stack, tmp_path, signed(claims), published, coupon)[0] == 0
    lies = {"state": "reversed", "ordinal": 1, "at": "2026-01-01T00:00:00.000Z", "slot": 3, "user": "somebodyelse0000", "discount_minor": 501,
            "lane": 1, "seq": claims["seq"] - 1, "hash": "0" * 64, "id": "3-1", "coupon": "another"}
    assert set(lies) == MEMBERS - {"order"}
    for member, lie in lies.items():
        forged = signed({**claims, member: lie})
        assert verify(stack, tmp_path, forged, published)[0] == 0, "the signature is right"
        code, said, why = verify(stack, tmp_path, forged, published, coupon)
        assert (code, said) == (1, None) and "invalid receipt" in why, f"{member}: {why}"
    for beside in ({"order": "another"}, {"name": "anybody"}):  # by the signature alone
        assert verify(stack, tmp_path, signed({**claims, **beside}), published, coupon)[0] == 0


def test_couponctl_believes_no_ledger_that_was_changed(stack, storefront, reporting, tmp_path):
    coupon = stack.coupon(slots=4, cap={"per_user": 4})
    published = reporting.get("/coupons/-/receipt-keys").ok()
    taken = [storefront.take(coupon, "u").ok(201) for _ in range(3)]
    token = storefront.get(path(taken[1], "/receipt")).ok()["receipt"]
    lines = ledger.read(stack, coupon)
    assert verify(stack, tmp_path, token, published, lines=lines)[0] == 0
    assert verify(stack, tmp_path, token, published, lines=lines[1:])[0] == 0, "a part that has the batch and its taking"
    at = next(i for i, line in enumerate(lines) if json.loads(line)["seq"] == taken[1]["seq"])
    wrong = json.loads(lines[at])
    wrong["entries"][0]["n"] = 3
    del wrong["hash"]
    wrong["hash"] = hashlib.sha256(ledger.canonical(wrong)).hexdigest()
    for changed in (lines[:at] + lines[at + 1:], lines[:at], [], lines[:1] + lines[2:], [lines[0].replace(b'"lane":0', b'"lane":1')] + lines[1:],
                    lines[:at] + [ledger.canonical(wrong)] + lines[at + 1:], lines[:at] + [ledger.canonical(wrong)], [b"{}"], [b"x"]):
        code, said, why = verify(stack, tmp_path, token, published, lines=changed)
        assert (code, said) == (1, None) and "invalid receipt" in why, why


def test_couponctl_wants_a_receipt_and_a_key_for_it(stack, storefront, reporting, tmp_path):
    published = reporting.get("/coupons/-/receipt-keys").ok()
    token = storefront.get(path(storefront.take(stack.coupon(slots=1), "u").ok(201), "/receipt")).ok()["receipt"]
    head, payload, signature = token.split(".")
    for wrong in ("x", "a.b.c", f"{head}.{payload}.", f"{head}.{payload[:-4]}AAAA.{signature}", f"{head}.{payload}.{signature[:-6]}AAAAAA", token + ".a"):
        assert verify(stack, tmp_path, wrong, published)[0] == 1
    assert verify(stack, tmp_path, token, {"keys": []})[0] == 1
    assert verify(stack, tmp_path, token, {"keys": [{**published["keys"][0], "x": "PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw"}]})[0] == 1
    assert verify(stack, tmp_path, token, {"no": "set"})[0] == 2
    assert verify(stack, tmp_path, "", published)[0] == 2
    assert stack.couponctl("receipt", "verify", token, "--keys", tmp_path / "none").returncode == 2
    assert stack.couponctl("receipt", "verify", token, "--url", "http://127.0.0.1:1").returncode == 3


@pytest.mark.full
def test_the_key_of_receipts_changes_and_old_receipts_and_lists_stay_good(beside, tmp_path):
    stack = beside()
    storefront, ops = stack.client("storefront"), stack.client("ops")
    coupon = stack.coupon(slots=9, cap={"per_user": 9})
    taken = [storefront.take(coupon, "u").ok(201) for _ in range(2)]
    before = storefront.get(path(taken[0], "/receipt")).ok()["receipt"]
    page = ops.get(f"/coupons/{coupon}/redemptions?limit=1").ok()["next"]

    def kids():
        return [key["kid"] for key in ops.get("/coupons/-/receipt-keys").ok()["keys"]]

    def reload_to(expected):
        stack.script("reload", status=0)
        for door in [stack.direct(i) for i in range(stack.workers)]:
            assert [k["kid"] for k in door.get("/coupons/-/receipt-keys").ok()["keys"]] == expected

    old, = kids()
    new = stack.ctl("receipt", "rotate", "--announce").split()[0]
    assert stack.couponctl("receipt", "rotate", "--announce").returncode == 1, "one is announced"
    reload_to([old, new])
    assert jwt.get_unverified_header(storefront.get(path(taken[0], "/receipt")).ok()["receipt"])["kid"] == old
    assert stack.couponctl("receipt", "rotate").stdout.split()[0] == new
    reload_to([new, old])
    published = jwt.PyJWKSet.from_dict(ops.get("/coupons/-/receipt-keys").ok())
    assert opened(storefront.get(path(taken[1], "/receipt")).ok()["receipt"], published)
    assert verify(stack, tmp_path, before, None, coupon)[0] == 0
    assert ops.get(f"/coupons/{coupon}/redemptions?limit=1&cursor={page}").ok()["items"][0]["id"] == taken[0]["id"]
    seed = stack.var / "keys" / "receipt_seed"
    assert [len(line) for line in seed.read_text().split()] == [64, 43], "of the old one the public half alone"
    assert seed.stat().st_mode & 0o777 == 0o600
    third = stack.couponctl("receipt", "rotate").stdout.split()[0]
    reload_to([third, new, old])
