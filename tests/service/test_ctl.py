"""couponctl: its commands, their exit codes, and that verify finds what is wrong."""
import copy
import datetime
import json

import pytest

from stack import wait_until


def run(stack, *arguments, status=0):
    done = stack.couponctl(*arguments)
    assert done.returncode == status, f"couponctl {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def test_help_tells_every_command(stack):
    text = run(stack, "--help")
    for command in ("coupon create", "coupon show", "coupon list", "slots generate", "keys create", "keys list", "keys revoke",
                    "report", "verify", "config"):
        assert command in text, f"{command} is not in:\n{text}"
    assert "COUPON" in run(stack, "verify", "--help")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["coupon"], ["coupon", "fly"], ["coupon", "show"], ["slots", "generate", "x"],
                                       ["slots", "generate", "x", "many"], ["keys", "create"], ["keys", "create", "--role", "king"],
                                       ["report"], ["verify", "--fly"], ["coupon", "show", "a", "b"]], ids=" ".join)
def test_a_command_that_is_none_says_so_and_fails(stack, arguments):
    done = stack.couponctl(*arguments)
    assert done.returncode not in (0, 1), f"exit {done.returncode}\n{done.stdout}"
    assert done.stdout.strip(), "nothing was said"


def test_a_coupon_can_be_made_filled_shown_listed_and_reported(stack):
    name = f"by-hand-{next(stack.names)}"
    assert name in run(stack, "coupon", "create", "--id", name, "--title", "By hand", "--state", "active", "--total", 10)
    assert run(stack, "coupon", "create", "--id", name, "--title", "Again", "--total", 10, status=1)
    run(stack, "slots", "generate", name, 10)
    stack.client("storefront").take(name, "u").expect(201)
    shown = json.loads(run(stack, "coupon", "show", name, "--json"))
    assert shown["definition"]["title"] == "By hand" and shown["counts"]["redeemed"] == 1, shown
    assert "By hand" in run(stack, "coupon", "show", name)
    assert name in run(stack, "coupon", "list") and name in run(stack, "coupon", "list", "--state", "active")
    assert name not in run(stack, "coupon", "list", "--state", "draft")
    wait_until("the report to hold it", lambda: " 1" in run(stack, "report", name, "--period", "day"))
    run(stack, "verify", name)
    assert run(stack, "slots", "generate", name, 1, status=1), "above the cap"
    assert run(stack, "coupon", "show", "never-made", status=1)


@pytest.mark.parametrize("arguments, slots", [
    (["--generate"], 10), (["--generate", 4], 4), (["--generate=4"], 4), (["--total", 9, "--generate"], 9), ([], 0)], ids=str)
def test_a_coupon_can_be_made_with_its_slots(stack, arguments, slots, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    create = ["coupon", "create", "--id", name, "--title", "With slots", "--total", 10, *arguments]
    assert run(stack, *create, "--idempotency-key", "once").splitlines() == [name]
    assert stack.counts(name)["slots"] == slots
    assert run(stack, *create, "--idempotency-key", "once").splitlines() == [name], "the same one"
    assert "coupon_exists" in run(stack, *create, status=1)
    assert stack.counts(name)["slots"] == slots


def test_a_definition_from_a_file_can_be_made_with_its_slots(stack, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    (tmp_path / "7").write_text(json.dumps({"id": name, "title": "From a file", "cap": {"total": 12}, "generate": 5}))
    run(stack, "coupon", "create", "--generate", 6, tmp_path / "7")
    assert stack.counts(name)["slots"] == 6


def test_many_codes_are_waited_for_or_not(stack, ops, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    file = tmp_path / "coupon.json"
    file.write_text(json.dumps({"title": "Codes", "cap": {"total": 5000}, "codes": {"source": "generated"}}))
    run(stack, "coupon", "create", file, "--id", name, "--generate")
    assert stack.counts(name)["slots"] == 5000
    later = f"by-hand-{next(stack.names)}"
    assert run(stack, "coupon", "create", file, "--id", later, "--generate", "--no-wait").splitlines() == [later]
    wait_until("all of them", lambda: stack.counts(later)["slots"] == 5000)


def test_slots_that_cannot_be_generated_are_refused_by_name(stack):
    for arguments in (["--generate", 11], ["--generate=0"], ["--generate=many"]):
        said = run(stack, "coupon", "create", "--title", "None", "--total", 10, *arguments, status=2 if "many" in str(arguments) else 1)
        assert "generate" in said, said


def test_keys_can_be_made_listed_and_revoked(stack):
    key = run(stack, "keys", "create", "--role", "storefront", "--label", "a till").split()[-1]
    _, name, secret = key.split("_")
    listed = run(stack, "keys", "list")
    assert name in listed and "a till" in listed and secret not in listed
    run(stack, "keys", "revoke", name)
    assert run(stack, "keys", "revoke", "nosuchkey000", status=1)


def test_config_prints_what_is_in_force(stack):
    text = run(stack, "config")
    assert "step_slots = 4096" in text and "workers = 2" in text and "batch_max" in text, text


def test_verify_says_that_all_is_well_of_an_empty_and_of_a_used_coupon(stack, storefront):
    empty, used = stack.coupon(), stack.coupon(slots=100)
    storefront.take(used, "u").expect(201)
    run(stack, "verify", empty, used)


def test_verify_of_a_coupon_that_is_not_there_fails(stack):
    assert stack.couponctl("verify", "never-made").returncode != 0


# ---- every kind of damage is found ----

def settled(stack, coupon):
    """Views and totals are written up to the coupon's seq."""
    seq = stack.counts(coupon)["seq"]
    marks = stack.database.marks
    wait_until("the marks", lambda: all((m := marks.find_one({"_id": {"c": coupon, "l": 0, "kind": kind}})) and m["seq"] >= seq
                                        for kind in ("views", "totals")))


def taking(document):
    """The ledger's entry of a taking, as it is stored."""
    return next(e for e in document["e"] if e["k"] == "redeem")


def put(values, **members):
    """Change members that are there: where the documents look different one day, the test says so."""
    assert set(members) <= set(values), f"{set(members) - set(values)} is not in {values}"
    values.update(members)


def view(**members):
    return lambda d: put(d["view"], **members)


A, B = {"view.user": "a"}, {"view.user": "b"}
BUCKET = {"_id.b": 0}
TAKEN = {"e.k": "redeem"}
DAMAGE = {
    "a user's count": ("users", A, view(total=1)),
    "a user's count of today": ("users", A, view(today=0)),
    "a user's redemption": ("users", A, lambda d: d["view"]["redemptions"].pop()),
    "a redemption's generation": ("users", A, lambda d: put(d["view"]["redemptions"][0], g=2)),
    "a redemption's key": ("users", A, lambda d: put(d["view"]["redemptions"][0], key=bytes(16))),
    "a user who took nothing": ("users", A, lambda d: put(d["_id"], h=bytes(16))),
    "a user's name": ("users", A, view(user="ghost")),
    "a user who is gone": ("users", B, None),
    "a slot's owner": ("buckets", BUCKET, lambda d: put(d["view"]["t"][0], u="z")),
    "a slot's state": ("buckets", BUCKET, lambda d: d["view"]["t"].pop()),
    "a slot's generation": ("buckets", BUCKET, lambda d: put(d["view"], g=[9, *d["view"]["g"][1:]])),
    "a bucket's count": ("buckets", BUCKET, view(free=0)),
    "a bucket that is gone": ("buckets", BUCKET, None),
    "the reporter's totals": ("totals", {}, lambda d: put(d, redeemed=4)),
    "the reporter's money": ("totals", {}, lambda d: put(d, discount_minor=0)),
    "totals that are gone": ("totals", {}, None),
    "an entry's ordinal": ("ledger", TAKEN, lambda d: put(taking(d), o=99)),
    "an entry's slot": ("ledger", TAKEN, lambda d: put(taking(d), n=69)),
    "an entry's money": ("ledger", TAKEN, lambda d: put(taking(d), discount=1)),
    "an entry's user": ("ledger", TAKEN, lambda d: put(d["who"][0], u="z")),
    "a batch's hash": ("ledger", TAKEN, lambda d: put(d, hash=bytes(32))),
    "a batch's previous hash": ("ledger", TAKEN, lambda d: put(d, prev=bytes(32))),
    "a batch's time": ("ledger", TAKEN, lambda d: put(d, at=d["at"] + datetime.timedelta(days=1))),
    "a batch's totals": ("ledger", TAKEN, lambda d: put(d["totals"], redeemed=0)),
    "a batch that is gone": ("ledger", {"_id.seq": 3}, None),
    "a definition": ("coupons", {}, lambda d: put(d["view"]["def"], title="Forged")),
    "a definition's cap": ("coupons", {}, lambda d: put(d["view"]["def"]["cap"], per_user=4)),
}


@pytest.fixture(scope="module")
def settled_coupon(stack):
    """One for all: whoever damages it puts it back."""
    storefront = stack.client("storefront")
    coupon = stack.coupon(slots=70, cap={"total": 70, "per_user": 3}, discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"})
    for user in ("a", "a", "b"):
        storefront.take(coupon, user).expect(201)
    settled(stack, coupon)
    stack.verify(coupon)
    return coupon


@pytest.mark.parametrize("what", DAMAGE)
def test_verify_finds_and_names_damage(stack, settled_coupon, what):
    """Damage one document, see verify fail and say where, and put it back."""
    collection, query, change = DAMAGE[what]
    documents = stack.database[collection]
    good = documents.find_one({"_id" if collection == "coupons" else "_id.c": settled_coupon, **query})
    assert good, f"there is no {query} in {collection}"
    bad = copy.deepcopy(good)
    documents.delete_one({"_id": good["_id"]})
    try:
        if change:
            change(bad)
            assert bad != good, "the damage is none"
            documents.insert_one(bad)
        text = run(stack, "verify", settled_coupon, status=1)
        assert settled_coupon in text, text
    finally:
        documents.delete_one({"_id": bad["_id"]})
        documents.insert_one(good)


def test_verify_goes_through_all_coupons_and_says_which_is_wrong(stack, settled_coupon):
    users = stack.database.users
    users.update_one({"_id.c": settled_coupon, **A}, {"$inc": {"view.total": 1}})
    text = run(stack, "verify", status=1)
    users.update_one({"_id.c": settled_coupon, **A}, {"$inc": {"view.total": -1}})
    assert settled_coupon in text
    stack.verify(settled_coupon)
