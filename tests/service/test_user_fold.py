"""users.fold: which spellings of a name are one user. Wherever a call names one, it is the same; every answer has the folded name; and the
database keeps the setting of its first start."""
import itertools
import urllib.parse

import pytest

from stack import SETTINGS, SLOW_DATABASE, WORKERS, Stack, wait_until
from test_code_lists import issue, pairs_of

NAMES = ["Anna@x.de", "anna+1@X.de", "ANNA+shop+2@X.DE", "anna@x.de"]
FOLDED = "anna@x.de"
ZOE = "ZO\u00cb"
GROWS = "\u0149" * 64  # 128 bytes; folded 192
PER_USER = 5


def quoted(user):
    return urllib.parse.quote(user, safe="")


@pytest.fixture(scope="module")
def folding(stack):
    settings = SETTINGS + SLOW_DATABASE + f"[users]\nfold = email\n[guesses]\nper_user = {PER_USER}\n"
    with Stack(settings, workers=WORKERS, beside=stack) as s:
        yield s
        s.verify()


@pytest.fixture
def shop(folding):
    return folding.client("storefront")


def test_spellings_share_what_a_user_may_take_and_the_key(folding, shop):
    coupon = folding.coupon(slots=10, cap={"total": 10, "per_user": 2})
    first = shop.take(coupon, NAMES[0], "k-1").ok(201)
    assert first["user"] == FOLDED
    again = shop.take(coupon, NAMES[1], "k-1")
    assert (again.status, again.json(), again.header("Idempotent-Replayed")) == (201, first, "true"), "the same call in another spelling"
    shop.take(coupon, NAMES[1], "k-1", state="issued").problem("idempotency_key_reused")
    shop.take(coupon, NAMES[2]).expect(201)
    shop.take(coupon, NAMES[0]).problem("user_cap_reached")
    said = shop.post(f"/coupons/{coupon}/check", {"user": NAMES[1]}).ok()
    assert (said["ok"], said["problem"]) == (False, "user_cap_reached")
    shop.take(coupon, "anna@x.de.example").expect(201)
    assert {row["u"] for b in folding.database.ledger.find({"_id.c": coupon}) for row in b.get("who", [])} == {FOLDED, "anna@x.de.example"}


def test_a_redemption_is_found_under_every_spelling(folding, shop):
    coupon = folding.coupon(slots=10, cap={"total": 10, "per_user": 5})
    taken = shop.take(coupon, "Bert+news@x.de", order={"id": "o-bert"}).ok(201)
    for name in ("bert@x.de", "BERT@X.de", "bert+2@x.DE"):
        said = shop.get(f"/coupons/{coupon}/users/{quoted(name)}").ok()
        assert (said["user"], [r["id"] for r in said["redemptions"]]) == ("bert@x.de", [taken["id"]])
        wallet = shop.get(f"/coupons/-/users/{quoted(name)}").ok()["items"]
        assert [(i["held"], i["remaining"]) for i in wallet if i["coupon"] == coupon] == [(1, 4)]
        for where in (f"/coupons/{coupon}/redemptions", "/coupons/-/redemptions"):
            items = shop.get(f"{where}?user={quoted(name)}&order=o-bert").ok()["items"]
            assert [(r["id"], r["user"]) for r in items] == [(taken["id"], "bert@x.de")]
            listed = shop.get(f"{where}?user={quoted(name)}", headers={"Accept": "text/csv"}).expect(200).body.decode()
            assert listed.count("bert@x.de") == 1
    assert "bert@x.de" in folding.couponctl("redemptions", "list", "--user", "BERT+x@x.de").stdout


def test_of_a_batch_each_item_is_folded(folding, shop):
    coupon = folding.coupon(slots=10, cap={"total": 10, "per_user": 1})
    items = [{"key": f"k-{i}", "user": name} for i, name in enumerate(NAMES)] + [{"key": "k", "user": GROWS}]
    replies = shop.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
    assert [r["status"] for r in replies] == [201, 409, 409, 409, 400], replies
    assert replies[0]["body"]["user"] == FOLDED
    assert {r["body"]["code"] for r in replies[1:4]} == {"user_cap_reached"}


def test_a_code_belongs_to_every_spelling(folding, shop):
    coupon = folding.imported(["CODE-ONE", "CODE-TWO", "CODE-THREE"], codes={"claim": "any"})
    text = f"user\nCarl@x.de\ncarl+1@X.de\nDORA\ndora\n{GROWS}\n"
    job = folding.job(issue(folding, coupon, text))
    result = job["result"]
    assert (result["issued"], result["already"], result["refused"]) == (2, 2, 1), job
    assert [(row["line"], row["reason"]) for row in result["bad_rows"]] == [(6, "too long")], job
    got, _ = pairs_of(folding.client("ops"), job)
    assert set(got) == {"carl@x.de", "dora"}
    code = got["carl@x.de"]
    items = shop.post("/coupons/-/resolve", {"code": code, "user": "CARL+7@x.de"}).ok()["items"]
    assert [(i["coupon"], i["ok"]) for i in items] == [(coupon, True)]
    assert shop.post("/coupons/-/resolve", {"code": code, "user": "dora"}).ok()["items"] == []
    spent = shop.take(coupon, "carl+7@X.DE", code=code).ok(200)
    assert (spent["user"], spent["state"]) == ("carl@x.de", "redeemed")


def test_guesses_count_for_the_folded_name(folding, shop):
    for i in range(PER_USER):
        shop.post("/coupons/-/resolve", {"code": f"NO-SUCH-{i}", "user": f"Guesser+{i}@x.de"}).expect(200)
    more = itertools.count()  # another spelling each time: one more is due every twelve seconds
    refused = wait_until("a refusal", lambda: (reply := shop.post("/coupons/-/resolve", {
        "code": "NO-SUCH", "user": f"guesser+more{next(more)}@X.de"})).status != 200 and reply)
    refused.problem("rate_limited")
    shop.post("/coupons/-/resolve", {"code": "NO-SUCH", "user": "another@x.de"}).expect(200)


@pytest.mark.parametrize("by", ["path", "body"])
def test_a_user_is_exported_and_erased_under_every_spelling(folding, shop, by):
    ops, name, folded = folding.client("ops"), f"Emma+{by}@x.de", "emma@x.de"
    coupon = folding.coupon(slots=4, cap={"total": 4, "per_user": 2})
    shop.take(coupon, "EMMA@x.de").expect(201)
    shop.take(coupon, "emma+2@x.de").expect(201)
    export = ops.get(f"/coupons/-/users/{quoted(name)}/export") if by == "path" else ops.post("/coupons/-/users/export", {"user": name})
    lines = export.expect(200).lines()
    assert sum(line["type"] == "redemption" for line in lines) == 2 and folded in export.body.decode(), lines
    if by == "path":
        ops.delete(f"/coupons/-/users/{quoted(name)}").expect(204)
    else:
        ops.post("/coupons/-/users/erase", {"user": name}).expect(204)
    assert folding.database.ledger.count_documents({"_id.c": coupon, "who.u": {"$exists": True}}) == 0
    said = shop.get(f"/coupons/{coupon}/users/{folded}").ok()
    assert (said["total"], said["remaining"], said["redemptions"]) == (0, 2, [])
    folding.verify(coupon)


def test_a_user_who_is_too_long_when_folded_is_a_bad_request(folding, shop):
    coupon, ops = folding.coupon(slots=2), folding.client("ops")
    shop.take(coupon, GROWS).problem("bad_request", "/user")
    shop.post(f"/coupons/{coupon}/check", {"user": GROWS}).problem("bad_request", "/user")
    shop.get(f"/coupons/{coupon}/users/{quoted(GROWS)}").problem("bad_request")
    shop.get(f"/coupons/-/users/{quoted(GROWS)}").problem("bad_request")
    shop.get(f"/coupons/{coupon}/redemptions?user={quoted(GROWS)}").problem("bad_request")
    ops.delete(f"/coupons/-/users/{quoted(GROWS)}").problem("bad_request")
    ops.get(f"/coupons/-/users/{quoted(GROWS)}/export").problem("bad_request")
    shop.take(coupon, "Zoe\u0308").ok(201)
    assert shop.get(f"/coupons/{coupon}/users/{quoted(ZOE)}").ok()["user"] == "zo\u00eb", "composed or not"


def test_a_name_in_the_ledger_that_is_not_folded_is_found(folding, shop):
    coupon = folding.coupon(slots=2)
    shop.take(coupon, "otto@x.de").expect(201)
    batch = folding.database.ledger.find_one({"_id.c": coupon, "who.u": "otto@x.de"})
    who = [{**row, "u": "Otto@x.de"} if row.get("u") == "otto@x.de" else row for row in batch["who"]]
    folding.database.ledger.update_one({"_id": batch["_id"]}, {"$set": {"who": who}})
    try:
        done = folding.couponctl("verify", coupon)
        findings = [line for line in done.stdout.splitlines() if "spelled otherwise" in line]
        assert done.returncode == 1 and len(findings) == 1 and "tto@x.de" not in findings[0], done.stdout
    finally:
        folding.database.ledger.update_one({"_id": batch["_id"]}, {"$set": {"who": batch["who"]}})
    folding.verify(coupon)


def test_without_the_setting_each_spelling_is_a_user(stack, storefront):
    coupon = stack.coupon(slots=10)
    for name in [*NAMES, "zo\u00eb", "zoe\u0308", GROWS]:
        assert storefront.take(coupon, name).ok(201)["user"] == name
    assert storefront.get(f"/coupons/{coupon}/users/{quoted(NAMES[1])}").ok()["user"] == NAMES[1]


def test_a_start_with_another_value_is_refused(beside):
    copy = beside("[users]\nfold = case\n")
    coupon = copy.coupon(slots=2)
    assert copy.client("storefront").take(coupon, "Anna").ok(201)["user"] == "anna"
    assert copy.database.schema.find_one({"_id": "installation"})["fold"] == "case"
    config = copy.var / "coupond.ini"
    right = config.read_text()
    assert copy.script("stop").returncode == 0
    for other in ("email", "none"):
        config.write_text(right.replace("fold = case", f"fold = {other}"))
        refused = copy.script("run", "--detach")
        said = (f"users.fold is {other}, but the database {copy.database_name} was first started with case: what its users did is kept under "
                "their names as folded then, and would no longer be found. Set users.fold to case, or use another database (mongodb.database).")
        assert refused.returncode == 1 and said in refused.stdout, refused.stdout
        assert f"fail  users       users.fold is {other}" in copy.couponctl("doctor").stdout
    config.write_text(right)
    copy.start()
    copy.client("storefront").take(coupon, "ANNA").problem("user_cap_reached")
    config.write_text(right.replace("fold = case", "fold = none"))
    reloaded = copy.script("reload")
    assert "users.fold" in copy.log() and reloaded.returncode == 0, reloaded.stdout
    copy.client("storefront").take(coupon, "aNNa").problem("user_cap_reached")
    config.write_text(right)
