"""couponctl archive: 30 days after its coupon was closed, what is in the archive is removed; what everything else says of it then."""
import datetime
import hashlib
import json
import os
import pty
import secrets
import signal
import subprocess
import threading

import bson
import pytest

import erasure
from client import TIMEOUT_S, Direct
from effort import in_full
from halves import asleep
from stack import PATIENCE_S, ROOT, SETTINGS, SLOW_DATABASE, SOON_REMOVED, Failing, Stack, wait_until
from test_archive import a_life, check, end, lines_of

FINGERPRINT_LEN = 16
HELD = ("buckets", "codes", "code_buckets", "ledger")


@pytest.fixture(scope="module")
def stack(stack):
    with Stack(SETTINGS + SLOW_DATABASE + SOON_REMOVED, beside=stack) as s:
        yield s
        s.verify()


def stored(stack, coupon):
    """How many documents of it there are, by collection."""
    return {name: stack.database[name].count_documents({"_id.c": coupon}) for name in HELD}


def closed_and_after(lanes=1, erased=0):
    """What is stored in the end: each lane's closing batch, its erasures and its release."""
    return {"buckets": 0, "codes": 0, "code_buckets": 0, "ledger": 2 * lanes + erased}


def days_pass(stack, coupon):
    """Those for which its documents stay. On a slow machine others may be behind for longer than the job waits: then there is another."""
    jobs = {"coupon": coupon, "kind": "archive"}

    def is_over():
        stack.database.jobs.update_many(jobs | {"state": "queued"}, {"$currentDate": {"not_before": True}})
        states = [(job["state"], job.get("error")) for job in stack.database.jobs.find(jobs)]
        assert ("failed", "version_changed") not in states, states
        return any(state == "done" for state, _ in states) and not any(state in ("queued", "running") for state, _ in states)
    wait_until("its removal", is_over)


def archive(stack, coupon, path, *options, status=0):
    return stack.ctl("archive", "--yes", "--output", path, *options, coupon, status=status)


def remove(stack, coupon, path):
    said = archive(stack, coupon, path)
    days_pass(stack, coupon)
    return said


def documents(stack, coupon):
    return [doc for name in HELD for doc in stack.database[name].find({"_id.c": coupon})]


LIVES = [{}, in_full({"lanes": 3}), in_full({"codes": {"source": "generated", "unique": "service"}})]


@pytest.mark.parametrize("members", LIVES, ids=["plain", "lanes", "codes"])
def test_what_is_archived_is_removed_30_days_later(stack, tmp_path, members):
    coupon, ops, path = a_life(stack, **members), stack.client("ops"), tmp_path / "a.gz"
    target, lanes = f"/coupons/{coupon}", members.get("lanes", 1)
    stack.patch(coupon, {"state": "ended"})
    end(stack, coupon)
    taken = next(i["id"] for i in ops.get(f"{target}/redemptions?user=anna-1").ok()["items"])
    report = f"{target}/reports?period=day"
    ops.post(f"{target}/archive").expect(204)
    stays = {at: ops.get(at).ok() for at in (target, f"{target}/counts")}
    said = archive(stack, coupon, path)
    job = stack.database.jobs.find_one({"coupon": coupon, "kind": "archive"})
    assert f", its documents are removed after {clock(job['not_before'])} (job {job['_id']})" in said, said
    closed = [closing_of(stack, coupon, lane)["at"] for lane in range(lanes)]
    assert job["not_before"] == max(closed) + datetime.timedelta(days=30), job
    check(path)
    assert f"(job {job['_id']})" in archive(stack, coupon, path), "asked for once"
    whole = stored(stack, coupon)
    ops.get(f"{target}/redemptions/{taken}").ok()
    erasure.erase(stack, "anna-9")
    assert stack.ctl("verify", coupon).endswith(" 0 drifts\n")
    days_pass(stack, coupon)
    assert whole["buckets"] and stack.database.jobs.find_one(job["_id"])["state"] in ("done", "failed"), whole

    for at in ("redemptions", "redemptions?user=anna-1", f"redemptions/{taken}", f"redemptions/{taken}/receipt", "users/anna-1",
               "slots", "slots/0", "ledger", "history", "codes", "codes/ABC"):
        ops.get(f"{target}/{at}").problem("coupon_archived")
    stack.client("storefront").take(coupon, "anna-1", key="again").problem("coupon_archived")
    now = ops.get(target).ok()
    assert {k: v for k, v in now.items() if k != "counts"} == {k: v for k, v in stays[target].items() if k != "counts"}
    then, now = stays[f"{target}/counts"], ops.get(f"{target}/counts").ok()
    moving = {"seq", "seqs", "as_of", "today"}
    assert {k: v for k, v in now.items() if k not in moving} == {k: v for k, v in then.items() if k not in moving}
    assert ops.get(report).ok()["items"]
    ops.post("/coupons", {"id": coupon, "title": "x", "cap": {"total": 1}}).problem("coupon_exists")
    ops.delete(target).problem("coupon_archived")
    ops.post(f"{target}/archive").expect(204)

    assert stored(stack, coupon) == closed_and_after(lanes, erased=1)
    assert "anna-" not in repr(documents(stack, coupon)), "no name is stored"
    ops.delete("/coupons/-/users/anna-1").expect(204)
    for across in ("users/anna-2", "users/anna-2/export", "redemptions?user=anna-2", "redemptions?order=ordered-2"):
        assert coupon.encode() not in ops.get(f"/coupons/-/{across}").expect(200).body, across

    assert f"{coupon}: ok, archived, and removed, 0 drifts" in stack.ctl("verify", coupon)
    assert json.loads(stack.couponctl("verify", "--json", coupon).stdout)["archived"] == "removed"
    assert stack.couponctl("reconcile", coupon).returncode == 0
    assert "no longer in the database" in archive(stack, coupon, path, "--keep", status=1)
    again = json.loads(archive(stack, coupon, path, "--json"))
    assert (again["file"], again["removed"], clock(job["not_before"])) == (None, None, again["removed_after"]), again
    days_pass(stack, coupon)
    assert "0 drifts" in stack.ctl("verify", coupon), "archived once more"
    check(path)


def last_of(stack, coupon, lane):
    return stack.database.ledger.find_one({"_id.c": coupon, "_id.l": lane}, sort=[("_id.seq", -1)])


def closing_of(stack, coupon, lane):
    return stack.database.ledger.find_one({"_id.c": coupon, "_id.l": lane, "totals.archived": 1}, sort=[("_id.seq", 1)])


def clock(at):
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def digest_of(stack, coupon, lanes=1):
    """By which a job knows what the archive holds."""
    return hashlib.sha256(b"".join(closing_of(stack, coupon, lane)["hash"] for lane in range(lanes))).digest()[:FINGERPRINT_LEN]


def ask_for_removal(stack, coupon, digest):
    """The job that couponctl archive asks for, 30 days later; its id."""
    job = {"_id": secrets.token_hex(8), "coupon": coupon, "kind": "archive", "state": "queued", "done": 0, "total": 0, "until": 0,
           "column": 0, "created": datetime.datetime.now(datetime.timezone.utc),
           "not_before": datetime.datetime.fromtimestamp(0, datetime.timezone.utc), "cancel": False, "fence": 0, "f": bson.Binary(digest)}
    stack.database.jobs.insert_one(job)
    return job["_id"]


def ended(stack, job):
    return wait_until("its removal", lambda: stack.database.jobs.find_one({"_id": job, "state": {"$nin": ["queued", "running"]}}))


def removal(stack, coupon, digest):
    return ended(stack, ask_for_removal(stack, coupon, digest))


@pytest.mark.full
def test_a_worker_that_slept_while_it_was_closed_acknowledges_nothing(stack):
    """It has the coupon in memory, and buckets that are not written, when it falls asleep; a taking waits for it."""
    coupon = stack.coupon(slots=100)
    sleeper, answers = stack.direct(1), []
    patient = Direct(sleeper.path, sleeper.key, patience_s=PATIENCE_S + TIMEOUT_S)
    stack.direct(0).take(coupon, "early").ok(201)
    sleeper.take_each(coupon, (f"slept-{i}" for i in range(10)))
    with asleep(stack, ["worker-1"]):
        waiting = threading.Thread(target=lambda: answers.append(patient.take(coupon, "slept-new")))
        waiting.start()
        ops = stack.direct(0, "ops")  # nginx would ask the worker that sleeps
        ops.patch(f"/coupons/{coupon}", {"state": "ended"}).ok()
        ops.post(f"/coupons/{coupon}/archive").expect(204)
    waiting.join()
    assert [(a.status, a.code()) for a in answers] == [(410, "coupon_archived")], answers
    assert stack.direct(1, "ops").get(f"/coupons/{coupon}/counts").ok()["redeemed"] == 11
    stack.ctl("verify", coupon)


@pytest.mark.full
def test_a_code_of_what_was_removed_is_not_given_again(stack, tmp_path):
    made = stack.imported(["WAS-HERE-ONCE"], codes={"unique": "service"})
    stack.client("storefront").take(made, "u", code="WAS-HERE-ONCE").ok(201)
    end(stack, made)
    remove(stack, made, tmp_path / "a.gz")
    other = stack.coupon(cap={"total": 10}, codes={"source": "imported", "unique": "service"})
    job = stack.import_codes(other, ["WAS-HERE-ONCE", "NEW-HERE"])
    assert stack.counts(other)["slots"] == 1, job
    assert stack.client("storefront").post("/coupons/-/resolve", {"code": "WAS-HERE-ONCE", "user": "u"}).ok()["items"] == []
    assert stack.client("ops").get("/coupons/-/codes?code=WAS-HERE-ONCE").ok()["items"] == []


@pytest.mark.full
def test_another_ledger_than_the_archives_stays(stack, tmp_path):
    """The job removes nothing but what the archive holds: a restored database may have another ledger, or an open one."""
    coupon, ops = stack.coupon(slots=10), stack.client("ops")
    stack.client("storefront").take(coupon, "u").ok(201)
    end(stack, coupon)
    job = removal(stack, coupon, b"0" * FINGERPRINT_LEN)
    assert (job["state"], job["error"]) == ("failed", "coupon_in_use"), job
    ops.post(f"/coupons/{coupon}/archive").expect(204)
    whole = stored(stack, coupon)
    job = removal(stack, coupon, b"0" * FINGERPRINT_LEN)
    assert (job["state"], job["error"]) == ("failed", "version_changed"), job
    assert stored(stack, coupon) == whole
    stack.verify(coupon)
    archive(stack, coupon, tmp_path / "a.gz")


@pytest.mark.full
def test_an_erasure_while_the_removal_waits_stays(beside, tmp_path):
    """The removal waits for totals when a user is erased: that is appended before the lane is released."""
    stack, path, taken = beside(SOON_REMOVED), tmp_path / "a.gz", []
    coupon = stack.coupon(slots=100, lanes=2)
    while {one["lane"] for one in taken} != {0, 1}:
        taken.append(stack.client("storefront").take(coupon, f"u-{len(taken)}").ok(201))
    user = next(one["user"] for one in taken if one["lane"] == 1)
    stack.patch(coupon, {"state": "ended"})
    archive(stack, coupon, path)
    with asleep(stack, ["reporter"]):
        erasure.erase(stack, taken[0]["user"])
        job, leases = ask_for_removal(stack, coupon, digest_of(stack, coupon, 2)), set()

        def waits():
            """It renews its lease when it begins, then each time it has looked how far the others are."""
            leases.add(stack.database.jobs.find_one(job).get("lease"))
            return len(leases - {None}) > 4

        wait_until("the removal to wait", waits)
        if user != taken[0]["user"]:
            erasure.erase(stack, user)
    assert ended(stack, job)["state"] == "done"
    assert [last_of(stack, coupon, lane)["totals"]["archived"] for lane in (0, 1)] == [2, 2]
    kinds = [entry["k"] for batch in stack.database.ledger.find({"_id.c": coupon}) for entry in batch["e"]]
    assert kinds.count("erase") == len({taken[0]["user"], user}) and set(kinds) <= {"archive", "erase", "forget"}, kinds
    check(path)
    assert "and removed" in stack.ctl("verify", coupon)


@pytest.mark.full
def test_a_batch_that_stays_and_was_changed_is_found(stack, tmp_path):
    coupon = stack.coupon(slots=10)
    stack.client("storefront").take(coupon, "u").ok(201)
    end(stack, coupon)
    remove(stack, coupon, tmp_path / "a.gz")
    for change, finding in (({"totals.redeemed": 2}, "hash"), ({"prev": bytes(32)}, "chain from the closing batch on")):
        good = last_of(stack, coupon, 0)
        stack.database.ledger.update_one({"_id": good["_id"]}, {"$set": change})
        assert f"lane 0: {finding}" in stack.ctl("verify", coupon, status=1)
        stack.database.ledger.replace_one({"_id": good["_id"]}, good)
    closing = closing_of(stack, coupon, 0)
    stack.database.ledger.delete_one({"_id": closing["_id"]})
    assert "lane 0: first batch that stays" in stack.ctl("verify", coupon, status=1)
    stack.database.ledger.insert_one(closing)
    stack.verify(coupon)


def hold_up(stack, name, seconds):
    """Whoever changes something in this collection waits for so long."""
    return Failing(stack, name, "update", "delete", blockConnection=True, blockTimeMS=1000 * seconds)


def killed_in_each_collection(stack, coupon, seconds):
    """The job of a removal whose runner is killed while it waits there for so long, and whether it was; not, if it got further before."""
    names = ["ledger", "codes", "code_buckets", "buckets"]
    last, held = closed_and_after(), hold_up(stack, names[0], seconds)
    job = ask_for_removal(stack, coupon, digest_of(stack, coupon))
    for name, following in zip(names, [*names[1:], None]):
        held.has_begun()
        with asleep(stack, ["coupond"]):  # no successor before the next collection is watched
            is_running = stack.database.jobs.find_one(job)["state"] == "running"
            stack.signal("runner", signal.SIGKILL)
            is_in_time = is_running and stored(stack, coupon)[name] > last[name]
            held.end()
            if not is_in_time:
                return job, False
            if following:
                held = hold_up(stack, following, seconds)
    return job, True


@pytest.mark.full
def test_a_removal_whose_runner_is_killed_in_the_midst_of_each_collection_ends_whole(beside, tmp_path):
    stack, path = beside(SOON_REMOVED + "[runner]\nlease_ms = 1000\n"), tmp_path / "a.gz"
    for seconds in (2, 10, 30):  # until the machine is in time in each
        coupon = stack.coupon(slots=300, codes={"source": "generated"})
        stack.client("storefront").take_each(coupon, (f"u-{i}" for i in range(30)))
        end(stack, coupon)
        stack.client("ops").post(f"/coupons/{coupon}/archive").expect(204)
        job, in_each = killed_in_each_collection(stack, coupon, seconds)
        found = ended(stack, job)
        assert found["state"] == "done", found
        assert stored(stack, coupon) == closed_and_after()
        if in_each:
            break
    assert in_each, "no runner was killed in the midst of each collection"
    stack.verify(coupon)
    assert "its archive was already written" in archive(stack, coupon, path) and not path.exists()


def test_it_asks_before_anything_is_removed(stack, tmp_path):
    coupon, path = a_life(stack), tmp_path / "a.gz"
    stack.patch(coupon, {"state": "ended"})
    end(stack, coupon)
    for words in ((coupon,), ("--due",)):
        assert "for good: use --yes, or --keep" in stack.ctl("archive", *words, status=2)

    def answered(answer):
        terminal, other = pty.openpty()
        os.write(terminal, answer)
        done = subprocess.run([ROOT / "scripts/couponctl", "archive", "--output", path, coupon], env=stack.environment, stdin=other, text=True,
                              capture_output=True, timeout=PATIENCE_S)
        os.close(terminal)
        os.close(other)
        assert f"Remove {coupon} from the database for good, " in done.stderr, done.stderr
        return done

    for no in (b"\n", b"n\n", b"\x04"):
        done = answered(no)
        assert done.returncode == 2 and "nothing was done" in done.stderr and not path.exists(), done.stderr
    stack.client("ops").get(f"/coupons/{coupon}/redemptions").ok()
    done = answered(b"y\n")
    assert done.returncode == 0 and "its documents are removed after" in done.stdout, done
    check(path)


@pytest.mark.full
def test_what_ended_long_ago_is_archived_by_a_setting(beside):
    """One that is active by its state alone, one that is ended, and one of which something is held, which does not keep the others."""
    stack = beside(SOON_REMOVED + "[archive]\nafter_days = 30\n")
    long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=40)
    names = "held", "over", "ended", "young", "live"
    for name in names:
        stack.coupon(slots=10, id=name, cap={"total": 10}, cleanup_after_s=0)
        stack.client("storefront").take(name, "anna").ok(201)
    stack.client("storefront").take("held", "bert", state="reserved", reserve_s=86400).ok(201)
    for name, days in (("held", 0), ("over", 0), ("ended", 0), ("young", 20)):
        stack.patch(name, {"ends_at": (long_ago + datetime.timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")})
    for name in ("held", "ended"):
        stack.patch(name, {"state": "ended"})

    def seen_to(*those):
        wait_until("their cleanup", lambda: stack.database.coupons.count_documents({"_id": {"$in": those}, "cleaned": True}) == len(those))

    seen_to("held", "over", "ended", "young")
    before = {name: stack.client("ops").get(f"/coupons/{name}").expect(200) for name in names}
    done = stack.couponctl("archive", "--yes", "--due")
    assert done.returncode == 1, done.stdout
    assert "coupon_in_use" in done.stdout and "held is not archived" in done.stdout and "young" not in done.stdout, done.stdout
    archives = stack.var / "archives"
    assert sorted(path.name for path in archives.iterdir()) == ["ended.archive.gz", "over.archive.gz"]
    for path in archives.iterdir():
        check(path)
    now = {name: stack.client("ops").get(f"/coupons/{name}").expect(200) for name in names}
    assert {name: one.ok()["state"] for name, one in now.items()} == {
        "held": "ended", "over": "ended", "ended": "ended", "young": "active", "live": "active"}
    changed = {name for name in names if now[name].header("ETag") != before[name].header("ETag")}
    assert changed == {"over"}, "nothing is to be changed but a state"
    stack.client("storefront").take("over", "anna", key="again").problem("coupon_archived")
    again = stack.couponctl("archive", "--yes", "--due")
    assert again.returncode == 1 and "over" not in again.stdout and "held is not archived" in again.stdout, again.stdout
    for arguments in (("--due", "over"), ("--due", "--keep"), ()):
        assert stack.couponctl("archive", *arguments).returncode == 2
    stack.verify(*names)


def test_without_the_setting_nothing_is_ever_due(stack):
    assert "archive.after_days is 0" in stack.ctl("archive", "--yes", "--due")


def test_where_the_directory_cannot_be_written_no_coupon_is_closed(beside):
    stack = beside("[archive]\nafter_days = 1\ndirectory = high_water\n")  # which is a file
    coupon = stack.coupon(slots=10, cleanup_after_s=0)
    stack.patch(coupon, {"ends_at": "2026-01-01T00:00:00Z"})
    wait_until("its cleanup", lambda: stack.database.coupons.find_one({"_id": coupon, "cleaned": True}))
    wait_until("the high-water mark", (stack.var / "high_water").exists)
    assert "cannot write to the directory" in stack.ctl("archive", "--yes", "--due", status=2)
    assert stack.client("ops").get(f"/coupons/{coupon}").ok()["state"] == "active"
