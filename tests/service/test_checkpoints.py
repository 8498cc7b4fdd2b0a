"""couponctl verify and reconcile from a checkpoint: what is read, what is said of it, and what is found without the batches before."""
import base64
import copy
import hashlib
import json
import re
import secrets

import pytest

import erasure
import ledger
from profiler import profiled
from stack import wait_until

TAKINGS = 130
FROM = re.compile(r"^(?P<coupon>[\w-]+): ok, (?P<batches>\d+) batches, .*, from (?P<kind>an unsigned|a) checkpoint at seq (?P<seq>[\d/]+)"
                  r"(?:, signed by (?P<kid>\S+))?$", re.M)


class Checked:
    """A coupon of which a verify left a checkpoint in a directory."""

    def __init__(self, stack, directory, takings=3, **members):
        self.stack, self.directory = stack, directory
        self.coupon = stack.coupon(slots=200, cap={"total": 200, "per_user": 4}, valid_for_s=86400,
                                   discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"}, **members)
        for i in range(takings):
            self.take(f"u-{i}")
        self.settle()

    @property
    def file(self):
        return self.directory / f"{self.coupon}.checkpoint"

    @property
    def seq(self):
        return max(d["_id"]["seq"] for d in self.stack.database.ledger.find({"_id.c": self.coupon, "_id.l": 0}, {"_id": 1}))

    def take(self, user, **how):
        return self.stack.client("storefront").take(self.coupon, user, **how).ok(201)["id"]

    def step(self, redemption, call, status=200, **members):
        key = f"{call}-{redemption}" if call in ("reserve", "redeem") else None
        return self.stack.client("storefront").post(f"/coupons/{self.coupon}/redemptions/{redemption}/{call}", members or None,
                                                    idempotency_key=key).ok(status)

    def settle(self):
        """Views and totals of all lanes are written up to their ends."""
        newest = self.stack.newest({"_id.c": self.coupon})
        marks = self.stack.database.marks
        wait_until("the marks", lambda: all((m := marks.find_one({"_id": {"c": self.coupon, "l": lane, "kind": kind}})) and m["seq"] >= seq
                                            for (_, lane), seq in newest.items() for kind in ("views", "totals")))

    def run(self, *options, status=0, command="verify"):
        done = self.stack.couponctl(command, "--checkpoints", self.directory, *options, self.coupon)
        assert done.returncode == status, f"couponctl {command} {options}: exit {done.returncode}\n{done.stdout}"
        return done.stdout

    def verified_from(self, *options):
        """What a verify said of the checkpoint from which it went."""
        text = self.run(*options)
        assert (said := FROM.search(text)), text
        return said

    def batches_read(self, *options):
        with profiled(self.stack.database) as entries:
            text = self.run(*options)
        return text, sum(e.get("nreturned", 0) for e in entries if e["ns"].endswith(".ledger") and self._is_of(e))

    def _is_of(self, entry):
        """The shared copy's reporter and sweeper read the ledger as well, whenever they like; those reads name no coupon."""
        return self.coupon in str(entry.get("originatingCommand", entry["command"]))

    def damaged(self, collection, query, change):
        """While it is open, a document is another."""
        return Damage(self.stack.database[collection], {"_id.c": self.coupon, **query}, change)


class Damage:
    def __init__(self, documents, query, change):
        self.documents = documents
        self.good = documents.find_one(query, sort=[("_id", 1)])
        assert self.good, f"there is no {query} in {documents.name}"
        self.bad = copy.deepcopy(self.good)
        change(self.bad)
        assert self.bad != self.good, "the damage is none"

    def __enter__(self):
        self.documents.replace_one({"_id": self.good["_id"]}, self.bad)

    def __exit__(self, *_):
        self.documents.replace_one({"_id": self.good["_id"]}, self.good)


@pytest.fixture
def checked(stack, tmp_path):
    def make(**members):
        one = Checked(stack, tmp_path, **members)
        one.run()
        return one

    return make


@pytest.fixture
def key(tmp_path):
    return secret(tmp_path / "verify.key")


def secret(path, *older):
    path.write_text("\n".join([secrets.token_hex(32), *older]) + "\n")
    path.chmod(0o600)
    return path


def taken(document):
    """The first taking of a batch."""
    return next(e for e in document["e"] if e["k"] in ("redeem", "issue", "reserve"))


# ---- what is read ----

@pytest.mark.parametrize("parts", [1, 3])
def test_verify_goes_on_from_its_checkpoint_and_reads_what_came_after(stack, tmp_path, parts):
    one = Checked(stack, tmp_path, takings=TAKINGS)
    parts = f"--parts={parts}"
    text, read = one.batches_read(parts)
    before = one.seq
    assert f": ok, {before} batches" in text and " checkpoint at" not in text and read >= before, text
    assert one.file.stat().st_mode & 0o777 == 0o600
    said = one.verified_from(parts)
    assert (said["kind"], said["seq"], said["batches"]) == ("an unsigned", str(before), "0"), said[0]

    issued = one.take("u-1", state="issued")
    held = one.step(issued, "reserve", 201)["id"]
    one.step(held, "redeem")
    one.step(one.take("u-2", state="reserved"), "cancel")
    one.step(one.take("new"), "reverse")
    stack.patch(one.coupon, {"title": "Another"})
    erasure.erase(stack, "u-5")
    one.take("u-5")
    one.settle()
    text, read = one.batches_read(parts)
    after = one.seq - before
    assert f": ok, {after} batches" in text and f"from an unsigned checkpoint at seq {before}\n" in text, text
    assert after <= read <= after + 10, f"{read} batches were read of {after} that came after the checkpoint"

    said = one.verified_from(parts)
    assert (said["seq"], said["batches"]) == (str(one.seq), "0"), said[0]
    text, read = one.batches_read("--from-start", parts)
    assert f": ok, {one.seq} batches" in text and " checkpoint at" not in text and read >= one.seq, text


def test_a_coupon_with_lanes_goes_on_in_each(stack, tmp_path):
    one = Checked(stack, tmp_path, takings=20, lanes=3)
    one.run()
    assert one.verified_from()["seq"].count("/") == 2
    for i in range(20):
        one.take(f"more-{i}")
    one.settle()
    said = one.verified_from()
    assert int(said["batches"]) >= 20 and one.verified_from()["batches"] == "0", said[0]
    with one.damaged("users", {"view.user": "u-7"}, lambda d: d["view"].update(total=3)):
        assert "users u-7: total: expected 1, found 3" in one.run(status=1)


def test_an_erasure_after_the_checkpoint_changes_nothing_of_it(checked):
    one = checked()
    erasure.erase(one.stack, "u-0")
    erasure.erase(one.stack, "u-1")
    one.settle()
    one.verified_from()
    content = one.file.read_bytes()
    assert not re.search(rb"u-[012]", content), "the checkpoint has a name"
    one.verified_from()


# ---- whose word it is ----

def test_a_checkpoint_is_signed_and_says_by_whom(stack, tmp_path, key):
    one = Checked(stack, tmp_path)
    one.run("--sign-key", key)
    statement = one.file.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    header, payload, _ = (base64.urlsafe_b64decode(part + b"==") for part in statement.split(b"."))
    lane = json.loads(payload)["lanes"][0]
    assert json.loads(payload)["coupon"] == one.coupon and (lane["seq"], lane["redeemed"], lane["slots"]) == (one.seq, 3, 200), payload
    said = one.verified_from("--sign-key", key)
    assert said["kind"] == "a" and said["kid"] == json.loads(header)["kid"], said[0]

    newer = secret(tmp_path / "newer.key", key.read_text().strip())
    assert one.verified_from("--sign-key", newer)["kid"] == said["kid"]
    told = json.loads(one.run("--sign-key", newer, "--json"))["checkpoint"]
    assert told["seqs"] == [one.seq] and told["kid"] not in (said["kid"], None), "it is signed again, by the newer key"


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_checkpoint_of_another_hand_is_an_error(stack, tmp_path, key):
    """And all is read from the start; the file stays until somebody removes it."""
    one = Checked(stack, tmp_path)
    one.run("--sign-key", key)
    signed = one.file.read_bytes()

    def refused(why, *options):
        found = one.file.read_bytes()
        text = one.run(*options, status=1)
        assert why in text and f"DRIFT, {one.seq} batches" in text and ", from the start" in text, text
        assert one.file.read_bytes() == found, "it was replaced"
        one.file.write_bytes(signed)

    with_key = ("--sign-key", key)
    refused("checkpoint statement: signature: expected by the key of --sign-key, found another", "--sign-key", secret(tmp_path / "other"))
    refused("checkpoint statement: signature: expected none: no --sign-key")
    flip(one.file, -10)
    refused("checkpoint statement: signature", *with_key)
    flip(one.file, 100)
    refused("checkpoint file: records: expected those of its statement", *with_key)
    one.file.write_bytes(signed[:-300])
    refused("checkpoint ", *with_key)
    one.file.write_bytes(b"")
    refused("checkpoint file: form", *with_key)
    payload = base64.urlsafe_b64decode(signed.rstrip(b"\n").rpartition(b"\n")[2].split(b".")[1] + b"==")
    one.file.write_bytes(signed.rstrip(b"\n").rpartition(b"\n")[0] + b"\n" + payload + b"\n")
    refused("checkpoint statement: signature: expected by the key of --sign-key, found none", *with_key)
    one.file.write_bytes(signed.rstrip(b"\n").rpartition(b"\n")[0] + b"\n" + payload + b"\n")
    assert one.verified_from()["kind"] == "an unsigned"

    another = Checked(stack, tmp_path)
    another.run(*with_key)
    one.file.write_bytes(another.file.read_bytes())
    refused(f"checkpoint statement: coupon: expected {one.coupon}, found {another.coupon}", *with_key)
    one.file.write_bytes(b"something else\n")
    refused("checkpoint file: form", *with_key)
    one.file.write_bytes(b"something else\n")
    refused("checkpoint file: form", "--from-start", *with_key)
    one.file.unlink()
    one.run("--from-start", *with_key)
    one.verified_from(*with_key)


def test_a_key_that_others_may_read_is_refused(stack, tmp_path, key):
    one = Checked(stack, tmp_path)
    key.chmod(0o640)
    assert "others can read it" in one.run("--sign-key", key, status=2)
    assert "64 hexadecimal digits" in one.run("--sign-key", empty(key), status=2)
    assert "needs --checkpoints" in stack.couponctl("verify", "--from-start").stdout
    assert "needs --checkpoints" in stack.couponctl("reconcile", "--sign-key", key).stdout
    done = stack.couponctl("verify", "--checkpoints", tmp_path / "none")
    assert done.returncode == 2 and "none: No such file or directory" in done.stdout, done.stdout


def empty(path):
    path.write_text("")
    path.chmod(0o600)
    return path


# ---- what is found ----

U0 = {"view.user": "u-0"}
BEFORE = {
    "a user's count": ("users", U0, lambda d: d["view"].update(total=2)),
    "a redemption's generation": ("users", U0, lambda d: d["view"]["redemptions"][0].update(g=2)),
    "a redemption's key": ("users", U0, lambda d: d["view"]["redemptions"][0].update(key=bytes(16))),
    "a user's alias": ("users", U0, lambda d: d["view"].update(alias="z" * 16)),
    "a slot's state": ("buckets", {"view.t.0": {"$exists": True}}, lambda d: d["view"]["t"].pop()),
    "a slot's generation": ("buckets", {"view.t.0": {"$exists": True}}, lambda d: d["view"].update(g=[9, *d["view"]["g"][1:]])),
    "the reporter's totals": ("totals", {}, lambda d: d.update(redeemed=4)),
    "a definition": ("coupons", {"_id.c": {"$exists": False}}, lambda d: d["view"]["def"].update(title="Forged")),
}


@pytest.fixture(scope="module")
def two_ages(stack, tmp_path_factory):
    """A checkpoint at TAKINGS' end, and three takings after it; tests damage it and put it back."""
    one = Checked(stack, tmp_path_factory.mktemp("checkpoints"))
    one.run()
    one.checkpoint = one.seq
    one.content = one.file.read_bytes()
    for i in range(3):
        one.take(f"later-{i}")
    one.settle()
    one.run()
    one.file.write_bytes(one.content)
    return one


@pytest.mark.parametrize("what", BEFORE)
def test_a_damaged_view_is_found_from_a_checkpoint(two_ages, what):
    collection, query, change = BEFORE[what]
    if collection == "coupons":
        damage = Damage(two_ages.stack.database.coupons, {"_id": two_ages.coupon}, change)
    else:
        damage = two_ages.damaged(collection, query, change)
    with damage:
        text = two_ages.run(status=1)
        assert ": DRIFT, 3 batches" in text and collection in text, text
    assert two_ages.file.read_bytes() == two_ages.content, "a checkpoint was made of what is damaged"


def batch(two_ages, seq):
    return "ledger", {"_id.l": 0, "_id.seq": seq}, lambda d: taken(d).update(discount=1)


def test_a_damaged_batch_is_found_at_and_after_the_checkpoint_and_before_it_from_the_start(two_ages):
    with two_ages.damaged(*batch(two_ages, two_ages.checkpoint - 1)):
        assert two_ages.verified_from()["seq"] == str(two_ages.checkpoint), "what was read once is not read again"
        two_ages.file.write_bytes(two_ages.content)
        assert f"ledger seq {two_ages.checkpoint - 1}: hash" in two_ages.run("--from-start", status=1)
    with two_ages.damaged(*batch(two_ages, two_ages.checkpoint)):
        text = two_ages.run(status=1)
        assert f"checkpoint seq {two_ages.checkpoint}: batch: expected the one that it names, found another, or none" in text, text
    with two_ages.damaged(*batch(two_ages, two_ages.checkpoint + 1)):
        text = two_ages.run(status=1)
        assert f"ledger seq {two_ages.checkpoint + 1}: hash" in text and ": DRIFT, 3 batches" in text, text
    two_ages.run()
    two_ages.file.write_bytes(two_ages.content)


def test_a_ledger_that_ends_before_the_checkpoint_is_an_error(checked):
    """As after a restore of an older backup."""
    one = checked()
    seq, last = one.seq, one.stack.database.ledger.find_one({"_id.c": one.coupon, "_id.seq": one.seq})
    one.stack.database.ledger.delete_one({"_id": last["_id"]})
    try:
        text = one.run(status=1)
        assert f"checkpoint seq {seq}: batch: expected the one that it names, found none: the ledger ends before it" in text, text
    finally:
        one.stack.database.ledger.insert_one(last)
    one.verified_from()


def test_views_that_have_not_reached_the_checkpoint_are_read_from_the_start(checked):
    one = checked()
    with one.damaged("marks", {"_id.kind": "totals"}, lambda d: d.update(seq=d["seq"] - 1)):
        text = one.run()
        assert f": ok, {one.seq} batches" in text and "views or totals have not reached its checkpoint" in text, text
    one.verified_from()


def forge(one, lane):
    """The lane's last batch becomes another one that views say nothing of, with its own hash. Returns the damage, and its seq."""
    last = one.stack.database.ledger.find_one({"_id.c": one.coupon, "_id.l": lane}, sort=[("_id.seq", -1)])
    seq = last["_id"]["seq"]
    line = json.loads(ledger.read(one.stack, one.coupon, after=seq - 1, lane=lane)[0])
    assert line.pop("hash") == last["hash"].hex() and line["batch"] == last["batch"], line
    line["batch"] = line["batch"][::-1]
    made = hashlib.sha256(ledger.canonical(line)).digest()
    return one.damaged("ledger", {"_id.l": lane, "_id.seq": seq}, lambda d: d.update(batch=line["batch"], hash=made)), seq


@pytest.mark.parametrize("lane", [0, 1])
def test_a_forged_batch_is_found_in_every_lane_however_late_the_views_of_another_are(stack, tmp_path, key, lane):
    one = Checked(stack, tmp_path, takings=20, lanes=3)
    options = ("--sign-key", key)
    one.run(*options)
    signed = one.file.read_bytes()
    damage, seq = forge(one, lane)
    late = one.damaged("marks", {"_id.l": 1 - lane, "_id.kind": "views"}, lambda d: d.update(seq=d["seq"] - 1))
    place = f"seq {seq} of lane {lane}" if lane else f"seq {seq}"
    with damage, late:
        for more in ((), ("--from-start",)):
            text = one.run(*options, *more, status=1)
            assert f"checkpoint {place}: batch: expected the one that it names, found another, or none" in text, text
            assert ": DRIFT, " in text and ", 1 drift, from the start\n" in text, text
            assert one.file.read_bytes() == signed, "the checkpoint was replaced"
    one.verified_from(*options)


def all_coupons(stack, directory, *options):
    done = stack.couponctl("verify", "--checkpoints", directory, *options)
    return done.returncode, done.stdout


def test_a_coupon_that_is_gone_from_the_database_is_missed_by_its_checkpoint(beside, tmp_path):
    """In a stack of its own: all coupons are verified, four times."""
    stack = beside()
    one, here = Checked(stack, tmp_path), Checked(stack, tmp_path)
    for kept in (one, here):
        kept.run()
    gone = tmp_path / "000-gone.checkpoint", tmp_path / "zzz-gone.checkpoint"
    for path in gone:
        path.write_bytes(one.file.read_bytes())
    (tmp_path / "-gone.checkpoint").write_bytes(b"of no coupon")
    for options in ((), ("--from-start",)):
        code, text = all_coupons(stack, tmp_path, *options)
        told = re.findall(r"^(\S+): checkpoint file: the ledger has none of it$", text, re.M)
        assert code == 1 and told == ["000-gone", "zzz-gone"], text
        assert "\nzzz-gone: DRIFT, 0 batches, 0 entries, 1 drift\n" in text, text
        assert f"\n{one.coupon}: ok, " in text and f"\n{here.coupon}: ok, " in text, text
    code, text = all_coupons(stack, tmp_path, "--json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 1 and {"coupon": "zzz-gone", "ok": False, "batches": 0, "entries": 0, "drifts": 1, "checkpoint": None} in lines, text
    for path in gone:
        path.unlink()
    code, text = all_coupons(stack, tmp_path)
    assert code == 0, text


def test_what_is_no_coupons_id_is_a_difference_and_has_no_checkpoint(beside, tmp_path):
    """Nor does it hide what comes after it. In a stack of its own, whose reporter takes these batches for a coupon's."""
    stack, directory, outside = beside(), tmp_path / "checkpoints", tmp_path / "escaped.checkpoint"
    directory.mkdir()
    one = Checked(stack, directory)
    batches = list(stack.database.ledger.find({"_id.c": one.coupon}))
    invalid = ["../escaped", "x" * 65, "-a"]
    for coupon in ("", *invalid):
        stack.database.ledger.insert_many([{**d, "_id": {**d["_id"], "c": coupon}} for d in batches])
    for _ in range(2):
        code, text = all_coupons(stack, directory)
        assert code == 1 and f"\n{one.coupon}: ok, " in text, text
        for coupon in invalid:
            said = f"{coupon}: coupon id: form: expected 1 to 64 letters, digits, _ and -, found another\n"
            assert said in text and f"\n{coupon}: DRIFT, " in text, text
            for command in ("verify", "reconcile"):
                done = stack.couponctl(command, "--checkpoints", directory, "--", coupon)
                assert done.returncode == 1 and said in done.stdout and "checkpoint" not in done.stdout, done.stdout
        assert list(directory.iterdir()) == [one.file], "a checkpoint was written of what is no coupon"
        outside.write_bytes(one.file.read_bytes())  # and the second time there is one to be read
    assert outside.read_bytes() == one.file.read_bytes(), "a file outside the directory was replaced"


# ---- reconcile ----

def test_reconcile_sees_from_a_checkpoint_that_nothing_is_to_change_and_mends_from_the_start(stack, tmp_path, key):
    one = Checked(stack, tmp_path, takings=30)
    options = ("--sign-key", key)
    one.run(*options)
    one.take("after")
    one.settle()
    seq = one.seq
    with profiled(stack.database) as entries:
        text = one.run(*options, command="reconcile")
    read = sum(e.get("nreturned", 0) for e in entries if e["ns"].endswith(".ledger"))
    assert re.search(rf"{one.coupon}: nothing to change, from a checkpoint at seq {seq - 1}, signed by \S+\n", text), text
    assert read < seq, f"{read} batches were read of {seq}"
    stack.database.users.update_one({"_id.c": one.coupon, **U0}, {"$set": {"view.total": 3}})
    text = one.run(*options, command="reconcile", status=1)
    assert "users: 1 different: u-0" in text, text
    assert "1 changed" in one.run(*options, "--apply", "--online", command="reconcile")
    view = stack.database.users.find_one({"_id.c": one.coupon, **U0})["view"]
    assert view["total"] == 1 and view["redemptions"], view
    assert "nothing to change, from a checkpoint" in one.run(*options, command="reconcile")
    flip(one.file, 100)
    text = one.run(*options, command="reconcile", status=1)
    assert "checkpoint file: records: expected those of its statement" in text and "nothing to change, from the start" in text, text
