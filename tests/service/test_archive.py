"""couponctl archive: a coupon's ledger in a file that is checked without a database, and what is found when it is not what it was."""
import gzip
import hashlib
import json
import re
import secrets
import subprocess

import pytest

import erasure
import ledger
from stack import BUILD, wait_until
from swarm import Swarm, by_code, taken, takers

NOWHERE = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"


def check(path, *options, status=0):
    """couponctl verify of the file, where there is no database."""
    done = subprocess.run([BUILD / "couponctl", "--mongodb", NOWHERE, "verify", path, *options], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == status, f"couponctl verify {path}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def archive(stack, coupon, path, *options, status=0):
    return stack.ctl("archive", "--keep", "--output", path, *options, coupon, status=status)


def lines_of(path):
    return gzip.decompress(path.read_bytes()).splitlines()


def manifest_of(path):
    return json.loads(lines_of(path)[-1])["manifest"]


def secret(path):
    path.write_text(secrets.token_hex(32) + "\n")
    path.chmod(0o600)
    return path


def a_life(stack, **members):
    """A coupon in whose ledger is something of everything; its id."""
    cap = {"total": 300, "per_user": 4, **members.pop("cap", {})}
    coupon = stack.coupon(slots=300, cap=cap, valid_for_s=86400, discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"},
                          **members)
    storefront = stack.client("storefront")

    def take(user, **how):
        return storefront.take(coupon, user, **how).ok(201)

    for i in range(20):
        take(f"anna-{i}", order={"id": f"ordered-{i}", "amount_minor": 900, "currency": "EUR"}, metadata={"table": f"noted-{i}"})
    held = storefront.step(take("bert", state="issued"), "reserve").ok(201)
    storefront.step(held, "reserve").expect(200)
    storefront.step(held, "redeem").expect(200)
    storefront.step(take("carl", state="reserved"), "cancel").expect(200)
    storefront.step(take("dora"), "reverse").expect(200)
    take("emil", state="reserved")
    stack.patch(coupon, {"title": "Another", "low_stock": 270})
    erasure.erase(stack, "anna-3")
    take("anna-3")
    stack.patch(coupon, {"cap": {"total": 290}, "retire": True})
    return coupon


# ---- what is in it ----

@pytest.mark.parametrize("members", [{}, {"lanes": 3}, {"codes": {"source": "generated"}}], ids=["slots", "lanes", "codes"])
def test_an_archive_is_the_ledger_and_is_checked_without_a_database(stack, tmp_path, members):
    coupon, path = a_life(stack, **members), tmp_path / "a.gz"
    text = archive(stack, coupon, path)
    lines, lanes = lines_of(path), members.get("lanes", 1)
    manifest = json.loads(lines[-1])["manifest"]
    answered = [line for lane in range(lanes) for line in ledger.read(stack, coupon, lane=lane)[:manifest["lanes"][lane]["seq"]]]
    assert lines[:-1] == answered, "the batches, as the ledger has them"
    assert manifest["coupon"] == coupon and manifest["batches"] == len(lines) - 1 and len(manifest["lanes"]) == lanes, manifest
    assert sum(lane["redeemed"] for lane in manifest["lanes"]) == 22, manifest
    assert f"{coupon}: {len(lines) - 1} batches" in text and str(path) in text, text
    assert f"{coupon}: ok, {len(lines) - 1} batches" in (said := check(path)) and f"from the unsigned archive {path}" in said, said
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["a.gz"], "nothing is left beside it"
    stack.verify(coupon)


def test_an_archive_has_no_names_unless_they_are_asked_for_apart(stack, tmp_path):
    coupon, path, names = a_life(stack), tmp_path / "a.gz", tmp_path / "names.gz"
    archive(stack, coupon, path, "--names", names)
    # not by chance within a random id, which has no quotes, no hyphen, and none of i, l, o, u
    found = re.search(rb'anna-|"bert"|dora|emil|ordered|noted', gzip.decompress(path.read_bytes()))
    assert not found, f"the archive has {found}"
    said = [json.loads(line) for line in lines_of(names)]
    batches = {(batch["lane"], batch["seq"]): batch for batch in map(json.loads, lines_of(path)[:-1])}
    for name in said:
        assert batches[name["lane"], name["seq"]]["entries"][name["entry"]]["alias"] == name["alias"], name
    by_user = {name["user"]: name for name in said}
    assert by_user["anna-7"]["order"] == "ordered-7" and by_user["anna-7"]["metadata"] == {"table": "noted-7"}, by_user["anna-7"]
    assert by_user["anna-3"]["order"] is None, "of before the erasure there is nothing"
    assert names.stat().st_mode & 0o777 == 0o600


def test_an_archive_is_written_while_the_coupon_sells(stack, tmp_path):
    """In the middle of takings of several lanes that lend each other slots, it is still of one piece."""
    coupon = stack.coupon(slots=600, lanes=3)
    with Swarm([stack.way()], takers(coupon, 600), 1) as crowd:
        for i in range(3):
            before = len(crowd.done)
            archive(stack, coupon, tmp_path / f"{i}.gz")
            check(tmp_path / f"{i}.gz")
            said = sum(lane["redeemed"] for lane in manifest_of(tmp_path / f"{i}.gz")["lanes"])
            assert before <= said <= len(crowd.done) + 1
    assert by_code(crowd.done) == {"201": len(crowd.done)}


def test_a_lane_that_is_told_in_parts(stack, tmp_path):
    """So many takings and slots, the manifest says, that users and buckets do not go into memory at once."""
    coupon, path = a_life(stack), tmp_path / "a.gz"
    archive(stack, coupon, path)
    lines = lines_of(path)
    manifest = json.loads(lines[-1])["manifest"]
    manifest["lanes"][0].update(ordinal=200_000, made=2_000_000)
    write(path, lines[:-1], manifest)
    assert f"{coupon}: ok, {len(lines) - 1} batches" in check(path)
    batches = [json.loads(line) for line in lines[:-1]]
    last = [e for b in batches for e in b["entries"] if e["kind"] == "redeem"][-1]
    last["before"] = 3
    write(path, chained(batches), manifest)
    assert "before: expected 0, found 3" in check(path, status=1)


# ---- a coupon that is closed for good ----

def end(stack, coupon):
    """It has ended, and nothing of it is issued or held."""
    stack.patch(coupon, {"state": "ended"})
    listed = stack.client("ops").get(f"/coupons/{coupon}/redemptions?limit=1000").ok()["items"]
    for one in listed:
        if one["state"] in ("issued", "reserved"):
            stack.client("ops").post(f"/coupons/{coupon}/redemptions/{one['id']}/cancel").ok()


def refused(stack, coupon, taken):
    """Every call that would change something, by name."""
    ops, target = stack.client("ops"), f"/coupons/{coupon}"
    step = f"{target}/redemptions/{taken}"
    yield "a taking", ops.take(coupon, "new")
    yield "a repeat", ops.take(coupon, "anna-1", key="first")
    yield "a batch", ops.post(f"{target}/redemptions/batch", {"items": [{"key": "k", "user": "u"}]})
    yield "a question", ops.post(f"{target}/check", {"user": "u"})
    for call, key in (("reserve", "s-1"), ("redeem", "s-2"), ("cancel", None), ("reverse", None)):
        yield call, ops.post(f"{step}/{call}", idempotency_key=key)
    yield "a change", ops.patch(target, {"title": "x"})
    yield "a change of another version", ops.patch(target, {"title": "x"}, match='"77"')
    yield "a change without If-Match", ops.patch(target, {"title": "x"}, match=None)
    yield "a bad taking", ops.post(f"{target}/redemptions", {"user": 7}, idempotency_key="bad")
    yield "a deletion", ops.delete(target)
    yield "slots", ops.post(f"{target}/slots", {"count": 1})
    yield "retired slots", ops.post(f"{target}/slots/retire", {"count": 1}, idempotency_key="r-1")


@pytest.mark.parametrize("members", [{}, {"lanes": 3}], ids=["slots", "lanes"])
def test_an_archived_coupon_is_closed_for_good_and_can_be_read(stack, tmp_path, members):
    coupon, ops = a_life(stack, **members), stack.client("ops")
    target = f"/coupons/{coupon}"
    ops.post(f"{target}/archive").problem("coupon_in_use")
    stack.patch(coupon, {"state": "ended"})
    ops.post(f"{target}/archive").problem("coupon_in_use")
    end(stack, coupon)
    taken = next(i["id"] for i in ops.get(f"{target}/redemptions?user=anna-1").ok()["items"])
    before = {path: ops.get(target + path).ok() for path in ("", f"/redemptions/{taken}", "/redemptions?limit=50", "/users/anna-1", "/slots/0")}
    ops.post(f"{target}/archive").expect(204)
    ops.post(f"{target}/archive").expect(204)
    for lane in range(members.get("lanes", 1)):
        last = json.loads(ledger.read(stack, coupon, lane=lane)[-1])
        assert [e["kind"] for e in last["entries"]] == ["archive"] and last["totals"]["archived"] == 1, last
        assert last["entries"][0]["by"], "it says who asked"
    for what, reply in refused(stack, coupon, taken):
        assert reply.status == 410 and reply.code() == "coupon_archived", f"{what}: {reply}"
    for path, said in before.items():
        assert ops.get(target + path).ok() == said, path
    ops.post("/coupons", {"id": coupon, "title": "x", "cap": {"total": 1}}).problem("coupon_exists")

    path = tmp_path / "a.gz"
    archive(stack, coupon, path)
    check(path)
    erasure.erase(stack, "anna-7")
    assert not erasure.traces(stack, "anna-7"), "an erasure goes on"
    for lane in range(members.get("lanes", 1)):
        kinds = [e["kind"] for line in ledger.read(stack, coupon, lane=lane) for e in json.loads(line)["entries"]]
        assert set(kinds[kinds.index("archive") + 1:]) <= {"forget", "erase"}, kinds
    stack.verify(coupon)
    archive(stack, coupon, path)
    check(path)


def test_a_coupon_that_was_never_made_is_not_archived(stack):
    stack.client("ops").post("/coupons/never-made/archive").problem("coupon_not_found")
    stack.client("storefront").post(f"/coupons/{stack.coupon()}/archive").problem("forbidden")


def test_takings_that_race_with_the_end_are_before_it_or_refused(stack):
    """Whoever asks while a coupon with lanes ends and is archived: what was taken is there, and after it nothing."""
    coupon, ops = stack.coupon(slots=50_000, lanes=3), stack.client("ops")
    with Swarm([stack.way()], takers(coupon), 3) as crowd:
        crowd.more(21)
        stack.patch(coupon, {"state": "ended"})
        ops.post(f"/coupons/{coupon}/archive").expect(204)
        wait_until("a refusal", crowd.sees(lambda call: call.reply.code() == "coupon_archived"))
    answers = {(call.reply.status, call.reply.code()) for call in crowd.done}
    assert answers <= {(201, None), (409, "coupon_ended"), (404, "coupon_not_found"), (410, "coupon_archived")}, answers
    ids = {said["id"] for said in taken(crowd.done)}
    assert stack.counts(coupon)["redeemed"] == by_code(crowd.done)["201"] == len(ids)
    stack.verify(coupon)


# ---- whose word it is ----

def test_an_archive_is_signed_and_says_by_whom(stack, tmp_path):
    coupon, path, key, other = stack.coupon(slots=10), tmp_path / "a.gz", secret(tmp_path / "key"), secret(tmp_path / "other")
    text = archive(stack, coupon, path, "--sign-key", key)
    kid = re.search(r"signed by (\S+)$", text, re.M)[1]
    assert f"signed by {kid}\n" in check(path, "--sign-key", key)
    assert f"signed by {kid}, which was not checked" in check(path)
    assert "manifest: signature: expected by the key of --sign-key, found another" in check(path, "--sign-key", other, status=1)
    said = json.loads(check(path, "--sign-key", key, "--json"))
    assert (said["coupon"], said["ok"], said["archive"]) == (coupon, True, {"file": str(path), "kid": kid, "checked": True}), said
    archive(stack, coupon, path)
    assert "manifest: signature: expected by the key of --sign-key, found none" in check(path, "--sign-key", key, status=1)
    key.chmod(0o644)
    assert "others can read it" in check(path, "--sign-key", key, status=2)


# ---- what is found ----

def write(path, lines, manifest, true=True):
    content = b"".join(line + b"\n" for line in lines)
    if true:
        manifest = manifest | {"batches": len(lines), "sha256": hashlib.sha256(content).hexdigest()}
        by_lane = {batch["lane"]: batch for batch in map(json.loads, lines)}
        manifest["lanes"] = [lane | {name: by_lane[i][name] for name in ("seq", "hash")} for i, lane in enumerate(manifest["lanes"])]
    path.write_bytes(gzip.compress(content + json.dumps({"manifest": manifest}).encode() + b"\n"))


def chained(batches):
    """The lines of these batches, each with a new hash, on the one before."""
    lines, before = [], {}
    for batch in batches:
        batch["prev"] = before.get(batch["lane"], "0" * 64)
        batch.pop("hash", None)
        batch["hash"] = before[batch["lane"]] = hashlib.sha256(ledger.canonical(batch)).hexdigest()
        lines.append(ledger.canonical(batch))
    return lines


@pytest.fixture(scope="module")
def written(stack, tmp_path_factory):
    """An archive of everything, and where another one can be put."""
    path = tmp_path_factory.mktemp("archive") / "a.gz"
    # a module's fixture: the coupon is named after the module
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTEST_CURRENT_TEST", "archived")
        archive(stack, a_life(stack), path)
    return path


def entry_of(batches, kind):
    return next(e for batch in batches for e in batch["entries"] if e["kind"] == kind)


def double(batches):
    """One more taking of what is taken, with totals that fit."""
    last = batches[-1]
    one = dict(entry_of(batches, "redeem"))
    totals = last["totals"]
    before = batches[-2]["totals"]
    last["entries"] = [one]
    totals.clear()
    totals.update(before | {"ordinal": before["ordinal"] + 1, "redeemed": before["redeemed"] + 1,
                            "discount_minor": before["discount_minor"] + one["discount_minor"]})
    last["day"] = batches[-2]["day"] | {"taken": batches[-2]["day"]["taken"] + 1}
    free = totals["slots"] - totals["due"] - totals["issued"] - totals["reserved"] - totals["redeemed"]
    one.update(ordinal=totals["ordinal"], left=free, day=last["day"]["taken"])


FORGED = {
    "a discount is larger": (lambda b: entry_of(b, "redeem").update(discount_minor=500), "discount_minor"),
    "a taking is another user's": (lambda b: entry_of(b, "spend").update(alias="0" * 16), "seq"),
    "a slot goes out twice": (double, "slot"),
    "a cap was lower": (lambda b: entry_of(b, "define")["definition"]["cap"].update(total=5), "total"),
    "more slots are made than its manifest says": (lambda b: entry_of(b, "generate").update(count=10**9), "made"),
    "slots are retired that were never made": (lambda b: b[-1]["entries"].append({"kind": "retire", "n": 300, "count": 10**9}), "never generated"),
    "a batch is gone": (lambda b: b.pop(6), "batches missing"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_chain_that_was_recomputed_is_told_again(written, tmp_path, what):
    """Whoever has the file can make all hashes anew; but not a history that could have been."""
    batches, path = [json.loads(line) for line in lines_of(written)[:-1]], tmp_path / "a.gz"
    change, field = FORGED[what]
    write(path, chained(batches), manifest_of(written))
    check(path)
    change(batches)
    write(path, chained(batches), manifest_of(written))
    text = check(path, status=1)
    assert "DRIFT" in text and field in text and len(text.splitlines()) < 30, text


def test_a_file_that_is_not_whole_is_told(written, tmp_path):
    content, lines, path = written.read_bytes(), lines_of(written), tmp_path / "a.gz"
    manifest = manifest_of(written)

    def finds(expected, status=1):
        text = check(path, status=status)
        assert expected in text, text

    for size in (0, 5, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        finds("archive file: form: expected an archive's")
    path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    finds("DRIFT")
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    check(path)
    path.write_bytes(b"\n".join(lines) + b"\n")
    check(path)
    write(path, lines[:-3], manifest, true=False)
    finds("sha256: expected that of its manifest")
    finds(f"manifest: batches: expected {len(lines) - 1}, found {len(lines) - 3}")
    finds("last batch")
    write(path, lines[:-2] + [lines[-2].replace(b'"version":', b'"version": ')], manifest)
    finds("line: expected a batch")
    other = lines[-2].replace(manifest["coupon"].encode(), b"other")
    write(path, lines[:-2] + [other], manifest)
    finds(f"coupon: expected {manifest['coupon']}, found other")
    for bad in ({}, manifest | {"archive": 2}, manifest | {"lanes": []}, manifest | {"coupon": "../a"}, manifest | {"batches": -1}, 7):
        path.write_bytes(gzip.compress(b"\n".join([*lines[:-1], json.dumps({"manifest": bad}).encode()]) + b"\n"))
        finds("DRIFT")
    finds = check(tmp_path / "none.gz", status=2)
    assert "none.gz: No such file" in finds, finds


def test_a_ledger_with_a_difference_is_not_archived(stack, tmp_path):
    coupon, path = a_life(stack), tmp_path / "a.gz"
    query = {"_id.c": coupon, "_id.seq": 4}
    good = stack.database.ledger.find_one(query)
    stack.database.ledger.update_one(query, {"$set": {"totals.slots": 299}})
    try:
        text = archive(stack, coupon, path, "--names", tmp_path / "names.gz", status=1)
        assert f"{coupon}: ledger seq 4: hash" in text and "nothing was written" in text, text
        assert not list(tmp_path.iterdir())
    finally:
        stack.database.ledger.replace_one({"_id": good["_id"]}, good)
    archive(stack, coupon, path)


def test_what_is_asked_wrongly_is_said(stack, tmp_path):
    coupon = stack.coupon(slots=10)
    assert "coupon_in_use" in stack.ctl("archive", "--yes", "--output", tmp_path / "a.gz", coupon, status=1)
    assert "no such coupon" in archive(stack, "never-made", tmp_path / "a.gz", status=1)
    assert "no such coupon" in archive(stack, "../a", tmp_path / "a.gz", status=1)
    assert "No such file or directory" in archive(stack, coupon, tmp_path / "none" / "a.gz", status=2)
    assert "must be two files" in archive(stack, coupon, tmp_path / "a.gz", "--names", tmp_path / "a.gz", status=2)
    assert "cannot be combined" in check(tmp_path / "a.gz", "--sign", tmp_path / "key", status=2)
    assert "is a coupon" in check(tmp_path / "a.gz", coupon, status=2)
    assert "is a coupon" in check(coupon, tmp_path / "a.gz", status=2)
    assert not list(tmp_path.iterdir())


def test_what_was_archived_long_ago_is_of_its_time(stack, tmp_path):
    """What comes after is not in it, and it stays right."""
    coupon, path = stack.coupon(slots=50), tmp_path / "a.gz"
    archive(stack, coupon, path)
    before = check(path)
    stack.client("storefront").take(coupon, "u").ok(201)
    erasure.erase(stack, "u")
    assert check(path) == before
    said = json.loads(archive(stack, coupon, path, "--json"))
    assert (said["coupon"], said["file"], said["kid"], said["names"]) == (coupon, str(path), None, None), said
    assert check(path) != before
