"""couponctl verify --sign and --anchors: a history that was rewritten consistently agrees with itself, but not with its anchors."""
import hashlib
import json
import re
import secrets
import subprocess

import pytest

import ledger
from stack import ROOT, SOON_REMOVED
from test_archive_removal import end, remove


class Anchors:
    """Files of anchors, made with a key of their own."""

    def __init__(self, stack, directory):
        self.stack, self.directory, self.public = stack, directory, None
        self.key = directory / "anchors.key"
        self.key.write_text(secrets.token_hex(32) + "\n")
        self.key.chmod(0o600)

    def signed(self, *coupons, status=0, name="anchors"):
        """A file of anchors of now; what was said meanwhile."""
        path = self.directory / name
        with open(path, "wb") as out:
            done = subprocess.run([ROOT / "scripts/couponctl", "verify", "--sign", self.key, *coupons], env=self.stack.environment,
                                  stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == status, done.stderr
        if found := re.search(r"^\d+ anchors?, signed by the public key ([\w-]{43})$", done.stderr, re.M):
            self.public = found[1]
        return path, done.stderr

    def check(self, path, *words, status=0):
        return self.stack.ctl("verify", "--anchors", path, "--public-key", self.public, *words, status=status)


@pytest.fixture
def anchors(stack, tmp_path):
    return Anchors(stack, tmp_path)


def a_coupon(stack, takings=6, **members):
    coupon = stack.coupon(slots=50, **members)
    stack.client("storefront").take_each(coupon, (f"u-{i}" for i in range(takings)))
    return coupon


def rewrite(stack, coupon, seq, lane=0):
    """Another history from seq on, with all hashes made anew, of which no view says anything else. Returns what undoes it."""
    documents = stack.database.ledger
    before = {d["_id"]["seq"]: d for d in documents.find({"_id.c": coupon, "_id.l": lane})}
    previous = None
    for line in map(json.loads, ledger.read(stack, coupon, after=seq - 1, lane=lane)):
        assert line.pop("hash") == before[line["seq"]]["hash"].hex(), line
        line["batch"] = line["batch"][::-1] if previous is None else line["batch"]
        line["prev"] = previous.hex() if previous else line["prev"]
        hashed = hashlib.sha256(ledger.canonical(line)).digest()
        change = {"batch": line["batch"], "prev": bytes.fromhex(line["prev"]), "hash": hashed}
        documents.update_one({"_id": before[line["seq"]]["_id"]}, {"$set": change})
        previous = hashed
    assert previous, f"there is no seq {seq}"
    return lambda: [documents.replace_one({"_id": d["_id"]}, d) for d in before.values()]


@pytest.mark.parametrize("lane", [0, 1])
def test_a_history_rewritten_consistently_is_found_by_its_anchors_alone(stack, anchors, lane):
    coupon = a_coupon(stack, takings=20, lanes=2)
    path, said = anchors.signed(coupon)
    assert f"{coupon}: ok, " in said and "2 anchors, signed by" in said, said
    assert "ok, " in (said := anchors.check(path, coupon)) and ", passes 2 anchors\n" in said, said
    # what comes after an anchor is no difference
    stack.client("storefront").take_each(coupon, (f"later-{i}" for i in range(20)))
    assert ", passes 2 anchors\n" in anchors.check(path, coupon)
    undo = rewrite(stack, coupon, 2, lane)
    try:
        assert f"{coupon}: ok, " in stack.couponctl("verify", coupon).stdout, "by itself it is a history like another"
        said = anchors.check(path, coupon, status=1)
        place = f"{coupon} lane 1" if lane else coupon
        assert re.search(rf"^{place}: anchor seq \d+: hash: expected \w{{64}}, found \w{{64}}$", said, re.M), said
        assert ", 1 drift, passes 1 anchor\n" in said, said
        answered = json.loads(anchors.check(path, "--json", coupon, status=1).splitlines()[-1])
        assert (answered["ok"], answered["anchors"]) == (False, {"passed": 1, "in_archive": 0}), answered
    finally:
        undo()
    anchors.check(path, coupon)


def test_a_ledger_that_ends_before_its_anchor_is_found(stack, anchors):
    """As after a restore of an older backup."""
    coupon = a_coupon(stack)
    path, _ = anchors.signed(coupon)
    last = stack.database.ledger.find_one({"_id.c": coupon}, sort=[("_id.seq", -1)])
    stack.database.ledger.delete_one({"_id": last["_id"]})
    try:
        said = anchors.check(path, coupon, status=1)
        assert re.search(rf"^{coupon}: anchor seq {last['_id']['seq']}: hash: expected \w{{64}}, found no such batch$", said, re.M), said
    finally:
        stack.database.ledger.insert_one(last)


def test_a_coupon_with_a_difference_gets_no_anchor(stack, anchors):
    good, bad = a_coupon(stack), a_coupon(stack)
    first = stack.database.ledger.find_one({"_id.c": bad, "_id.seq": 2})
    stack.database.ledger.update_one({"_id": first["_id"]}, {"$set": {"batch": first["batch"][::-1]}})
    try:
        path, said = anchors.signed(good, bad, status=1)
    finally:
        stack.database.ledger.replace_one({"_id": first["_id"]}, first)
    assert f"{bad}: DRIFT" in said and "1 anchor, signed by" in said, said
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("coupon") for line in lines] == [good, None], lines
    newest = stack.database.ledger.find_one({"_id.c": good}, sort=[("_id.seq", -1)])
    assert lines[0] == {"coupon": good, "lane": 0, "seq": newest["_id"]["seq"], "hash": newest["hash"].hex()}, lines


def test_all_coupons_deleted_archived_and_gone(beside, tmp_path):
    """In a stack of its own: all coupons are verified."""
    stack = beside(SOON_REMOVED)
    anchors = Anchors(stack, tmp_path)
    stays, deleted, archived, gone = a_coupon(stack), stack.coupon(), a_coupon(stack), a_coupon(stack)
    path, said = anchors.signed()
    assert "4 anchors, signed by" in said, said
    assert anchors.check(path).count(", passes 1 anchor\n") == 4

    stack.client("ops").delete(f"/coupons/{deleted}").expect(204)
    stack.patch(archived, {"state": "ended"})
    end(stack, archived)
    file = tmp_path / "old.gz"
    remove(stack, archived, file)
    kept = list(stack.database.ledger.find({"_id.c": gone}))
    for name in ("ledger", "buckets", "totals", "lanes", "totals_positions"):
        stack.database[name].delete_many({"_id.c": gone})
    stack.database.coupons.delete_one({"_id": gone})
    for words in ((), (stays, deleted, archived, gone)):
        said = anchors.check(path, *words, status=1)
        assert f"{stays}: ok, " in said and re.search(rf"^{deleted}: ok, .*, deleted, passes 1 anchor$", said, re.M), said
        assert re.search(rf"^{archived}: ok, archived, .*, passes 0 anchors; 1 to be checked with its archive: couponctl verify "
                         r"--anchors FILE ARCHIVE$", said, re.M), said
        assert re.search(rf"^{gone}: anchor seq \d+: hash: expected \w{{64}}, found no such batch$", said, re.M), said
        assert f"{gone}: DRIFT, " in said, said
    assert f"{kept[0]['_id']['c']}" == gone
    assert re.search(rf"^{archived}: ok, .*, passes 1 anchor$", anchors.check(path, file), re.M)
    answered = json.loads(anchors.check(path, "--json", archived).splitlines()[-1])
    assert (answered["archived"], answered["anchors"]) == ("removed", {"passed": 0, "in_archive": 1}), answered

    newer, said = anchors.signed(archived, name="newer")
    assert "1 anchor, signed by" in said and ", passes 1 anchor\n" in anchors.check(newer, archived), "its last batch stays"
    assert ", passes 0 anchors; 1 of batches after its end\n" in anchors.check(newer, file)


def test_an_archive_of_another_history_is_found(stack, anchors, tmp_path):
    coupon, file = a_coupon(stack), tmp_path / "a.gz"
    path, _ = anchors.signed(coupon)
    undo = rewrite(stack, coupon, 2)
    try:
        assert stack.couponctl("archive", "--keep", "--output", file, coupon).returncode == 0
    finally:
        undo()
    assert stack.couponctl("verify", file).returncode == 0, "by itself it is an archive like another"
    assert "anchor seq" in anchors.check(path, file, status=1)


def test_what_is_asked_wrongly_is_said(stack, anchors, tmp_path):
    coupon = a_coupon(stack)
    path, _ = anchors.signed(coupon)
    changed = tmp_path / "changed"
    changed.write_text(path.read_text().replace('"lane":0', '"lane":1'))
    assert "its lines are not those that were signed" in anchors.check(changed, coupon, status=1)
    public, anchors.public = anchors.public, "A" * 43
    assert "not signed by this key" in anchors.check(path, coupon, status=1)
    anchors.public = "short"
    assert "is no public key" in anchors.check(path, coupon, status=2)
    anchors.public = public
    assert "No such file" in anchors.check(tmp_path / "none", coupon, status=2)
    for words, why in ((("--anchors", path), "belong together"), (("--public-key", public), "belong together"),
                       (("--sign-key", anchors.key), "is for archives"), (("--sign", tmp_path / "none"), "No such file")):
        assert why in stack.ctl("verify", *words, coupon, status=2)
    anchors.key.chmod(0o640)
    assert "others can read it" in stack.ctl("verify", "--sign", anchors.key, coupon, status=2)
    empty, said = anchors.signed("never-made", status=2)
    assert not empty.read_bytes(), "nothing that looks like anchors"


def test_what_is_no_coupons_id_is_a_difference(beside):
    """Nor does it hide what comes after it. In a stack of its own, whose reporter takes these batches for a coupon's."""
    stack = beside()
    one = a_coupon(stack)
    batches = list(stack.database.ledger.find({"_id.c": one}))
    invalid = ["../escaped", "x" * 65, "-a"]
    for coupon in ("", *invalid):
        stack.database.ledger.insert_many([{**d, "_id": {**d["_id"], "c": coupon}} for d in batches])
    done = stack.couponctl("verify")
    assert done.returncode == 1 and f"\n{one}: ok, " in done.stdout, done.stdout
    for coupon in invalid:
        said = f"{coupon}: coupon id: form: expected 1 to 64 letters, digits, _ and -, found another\n"
        assert said in done.stdout and f"\n{coupon}: DRIFT, " in done.stdout, done.stdout
        for command in ("verify", "reconcile"):
            assert said in stack.ctl(command, "--", coupon, status=1)
