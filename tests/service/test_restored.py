"""After an older backup was restored: it is refused, and `couponctl restored` has everything go on above what is lost."""
import contextlib
import json
import re
import shutil

import pytest

import ledger
from client import keys
from receiver import Receiver
from stack import SETTINGS, SLOW_DATABASE, SOON_REMOVED, WEBHOOKS, Failing, Stack, wait_until
from test_archive_removal import remove

GENERATIONS, ORDINALS = 10**8, 10**12


def newest(stack):
    """When the newest batch arrived, as the mark has it."""
    batch = stack.database.ledger.find_one({"arrived": {"$exists": True}}, sort=[("arrived", -1)])
    return f"{batch['arrived'].time}.{batch['arrived'].inc}"


def mark(stack):
    form, version, database, epoch, arrived = (stack.var / "high_water").read_text().split()
    assert (form, version) == ("coupons-high-water", "1") and re.fullmatch("[0-9a-f]{32}", database)
    return int(epoch), arrived


class Shop:
    """A copy, what it gives out, and who hears of it."""

    def __init__(self, stack, receiver):
        self.stack, self.receiver = stack, receiver
        self.users = 0

    def take(self, coupon, **members):
        self.users += 1
        path = f"/coupons/{coupon}/redemptions?receipt=true"
        body = {"user": f"u-{self.users}", **members}
        return self.stack.client("storefront").post(path, body, idempotency_key=f"key-{next(keys)}").ok(201)

    def define(self, name, **members):
        body = {"id": name, "title": name, "state": "active", "cap": {"total": 20}, "generate": 20, **members}
        self.stack.client("ops").post("/coupons", body).expect(201)

    def events(self, redemptions):
        """The events that tell of all these."""
        wanted = {(r["coupon"], r["id"], r["ordinal"]) for r in redemptions}

        def said():
            found = {(e.data["coupon"], one["id"], one["ordinal"]): e for e in self.receiver.of("redemption.batch")
                     for one in e.data["entries"] if "ordinal" in one}
            return wanted <= found.keys() and [found[one] for one in wanted]

        return wait_until("the events", said)

    def stop(self):
        self.stack.mongo.close()
        assert self.stack.script("stop").returncode == 0

    def put(self, files):
        """These files take the place of the database, which is stopped."""
        shutil.rmtree(self.stack.var / "db")
        shutil.copytree(files, self.stack.var / "db")
        (self.stack.var / "db" / "mongod.lock").unlink(missing_ok=True)

    def database_alone(self):
        self.stack.script("run", "--database", status=0)
        self.stack.connect()

    def restored(self, *arguments, status=0):
        return self.stack.ctl("restored", *arguments, status=status)


@pytest.fixture
def shop(another_stack):
    with Receiver() as receiver:
        stack = another_stack(WEBHOOKS + SOON_REMOVED)
        stack.client("ops").post("/coupons/-/webhooks", {"url": receiver.url}).expect(201)
        yield Shop(stack, receiver)


COUPONS = {"exact": {}, "lanes": {"lanes": 2}, "open": {"cap": {"policy": "none"}, "generate": False}}
LANES = [("exact", 0), ("lanes", 0), ("lanes", 1), ("open", 0), ("late", 0)]


def numbers(redemptions):
    return {(r["coupon"], r["id"]) for r in redemptions} | {(r["coupon"], r["lane"], "ordinal", r["ordinal"]) for r in redemptions}


@pytest.mark.full
def test_an_older_database_is_refused_and_goes_on_above_what_it_lost(shop, tmp_path):
    stack, backup = shop.stack, tmp_path / "db"
    for name, members in COUPONS.items():
        shop.define(name, **members)
    kept = [shop.take(name) for name in COUPONS for _ in range(4)]
    first = stack.client("storefront").take("exact", "somebody", "a-key").ok(201)
    shop.events(kept)
    shop.stop()
    shutil.copytree(stack.var / "db", backup)

    # what will be lost: takings, also of a coupon that the backup does not know
    stack.start()
    shop.define("late")
    lost = [shop.take(name) for name in [*COUPONS, "late"] for _ in range(4)]
    said = shop.events(lost)
    knowing = [tmp_path / "receipts", tmp_path / "ledgers", tmp_path / "events"]
    knowing[0].write_text("".join(f"{r['receipt']}\n" for r in [*kept, *lost]))
    knowing[1].write_bytes(b"".join(line + b"\n" for name, lane in LANES for line in ledger.read(stack, name, lane=lane)))
    knowing[2].write_bytes(b"".join(e.body + b"\n" for e in shop.receiver.of("redemption.batch")))
    (tmp_path / "late.ndjson").write_bytes(b"".join(line + b"\n" for line in ledger.read(stack, "late")))
    wait_until("the mark", lambda: mark(stack) == (0, newest(stack)))
    known = (stack.var / "high_water").read_text()
    shop.stop()

    # without the mark nobody would notice
    shop.put(backup)
    (stack.var / "high_water").unlink()
    stack.start()
    again = [shop.take(name) for name in COUPONS for _ in range(4)]
    assert numbers(again) & numbers(lost)
    bodies = {e.id: e.body for e in said}
    wait_until("an id that says something else", lambda: any(bodies.get(e.id, e.body) != e.body for e in list(shop.receiver.attempts)))
    shop.stop()

    # with it the database is refused, and says what to do
    shop.put(backup)
    (stack.var / "high_water").write_text(known)
    done = stack.script("run", "--detach")
    assert done.returncode != 0 and "older than it was" in done.stdout and "couponctl restored" in done.stdout, done.stdout
    assert (stack.var / "high_water").read_text() == known
    shop.database_alone()
    assert re.search(r"^fail +restored +the database is older than it was", stack.couponctl("doctor").stdout, re.MULTILINE)

    # what is known of and lacks
    for file in knowing:
        lines = [json.loads(line) for line in shop.restored("--json", file, status=1).splitlines()]
        found = {(one["coupon"], one["id"]) for one in lines}
        assert found == {(r["coupon"], r["id"]) for r in lost}, file
    assert f"exact {lost[0]['id']}: redeemed, user " in shop.restored(knowing[0], status=1)

    assert "epoch 1" in shop.restored()
    assert "already done: epoch 1" in shop.restored()
    stack.mongo.close()
    stack.start()
    seen = {e.id for e in shop.receiver.attempts}
    shop.define("late")
    new = [shop.take(name) for name in [*COUPONS, "late"] for _ in range(4)]
    assert not numbers(new) & numbers(lost)
    assert all(ORDINALS < r["ordinal"] < 2 * ORDINALS and int(r["id"].rsplit("-", 1)[1]) > GENERATIONS for r in new), new
    fresh = shop.events(new)
    assert not {e.id for e in fresh} & seen and all(e.id.startswith("evt1_") for e in fresh), fresh
    lifted = {(r["coupon"], r["lane"]) for r in new}
    for name, lane in LANES:
        batches = ledger.LaneLedger(stack, name, lane).batches
        restored = [(i, e["count"]) for b in batches for i, e in enumerate(b["entries"]) if e["kind"] == "restored"]
        assert restored == [(0, 1)] or (restored == [] and (name, lane) not in lifted), (name, lane, restored)
    assert stack.client("storefront").take("exact", "somebody", "a-key").ok(201) == first, "a key that is not lost"
    stack.verify()
    (tmp_path / "now").write_bytes(b"".join(line + b"\n" for line in ledger.read(stack, "late")))
    for r in (one for one in lost if one["coupon"] == "late"):
        done = stack.couponctl("receipt", "verify", "--ledger", tmp_path / "now", r["receipt"])
        assert done.returncode == 1 and ("different hash" in done.stdout or "does not contain" in done.stdout), done.stdout
        assert stack.couponctl("receipt", "verify", "--ledger", tmp_path / "late.ndjson", r["receipt"]).returncode == 0
    assert mark(stack)[0] == 1
    stack.client("ops").delete("/coupons/late").problem("coupon_in_use")


@pytest.mark.full
def test_a_database_that_is_not_older_is_left_as_it_is_unless_it_is_asked_for(shop):
    stack = shop.stack
    shop.define("exact")
    assert "the service is running" in shop.restored(status=1)
    wait_until("the mark", lambda: mark(stack) == (0, newest(stack)))
    shop.stop()
    shop.database_alone()
    refused = shop.restored(status=1)
    assert "nothing shows that the database is older" in refused and "--force" in refused, refused
    (stack.var / "high_water").unlink()
    assert "there is no high-water mark" in shop.restored(status=1)
    assert "epoch 1" in shop.restored("--force")
    stack.mongo.close()
    stack.start()
    assert shop.take("exact")["ordinal"] == ORDINALS + 1
    shop.define("never-taken")
    stack.client("ops").delete("/coupons/never-taken").expect(204)
    stack.verify()
    shop.stop()


@pytest.mark.full
def test_a_mark_of_another_database_judges_nobody(shop):
    stack = shop.stack
    shop.stop()
    text = (stack.var / "high_water").read_text().split()
    (stack.var / "high_water").write_text(" ".join([*text[:2], "0" * 32, "7", "4000000000.1"]) + "\n")
    stack.start()
    assert mark(stack)[0] == 0 and (stack.var / "high_water").read_text().split()[2] == text[2]
    shop.stop()
    (stack.var / "high_water").write_text("something else\n")
    done = stack.script("run", "--detach")
    assert done.returncode != 0 and "is not a high-water mark" in done.stdout, done.stdout
    (stack.var / "high_water").unlink()
    stack.start()


@pytest.mark.full
def test_what_a_restore_lifted_is_archived_and_removed(shop, tmp_path):
    """One coupon was closed before the restore, one sells on after it; of a third something is issued before and held after."""
    stack, ops = shop.stack, shop.stack.client("ops")
    for name in ("closed", "goes-on", "held"):
        shop.define(name)
    kept = [shop.take(name) for name in ("closed", "goes-on") for _ in range(3)]
    issued = shop.take("held", state="issued")["id"]
    ops.patch("/coupons/closed", {"state": "ended"}).ok()
    ops.post("/coupons/closed/archive").expect(204)
    wait_until("the mark", lambda: mark(stack) == (0, newest(stack)))
    shop.stop()
    shop.database_alone()
    assert "epoch 1" in shop.restored("--force")
    assert "epoch 2" in shop.restored("--force"), "the backup lacked an earlier restore, too"
    assert "already done: epoch 2" in shop.restored()
    stack.mongo.close()
    stack.start()

    path = f"/coupons/held/redemptions/{issued}/reserve"
    held = stack.client("storefront").post(path, idempotency_key=f"key-{next(keys)}").ok(201)["id"]
    slot = issued.rsplit("-", 1)[0]
    assert int(held.rsplit("-", 1)[1]) > 2 * GENERATIONS
    assert [(one["id"], one["state"]) for one in ops.get(f"/coupons/held/slots/{slot}").ok()["history"]] == [
        (held, "reserved"), (issued, "issued")]

    kept.append(shop.take("goes-on"))
    assert kept[-1]["ordinal"] > 2 * ORDINALS
    ops.patch("/coupons/goes-on", {"state": "ended"}).ok()
    (tmp_path / "receipts").write_text("".join(f"{r['receipt']}\n" for r in kept))
    for name in ("closed", "goes-on"):
        remove(stack, name, tmp_path / name)
        for what in (tmp_path / name, name):
            done = stack.couponctl("verify", what)
            assert done.returncode == 0 and ": ok, " in done.stdout, done.stdout
        assert "were removed: look in their archives" in shop.restored(tmp_path / name)
    assert f"{len(kept)} lines" in shop.restored(tmp_path / "receipts")


@pytest.fixture(scope="module")
def at_rest():
    """A copy of which only the database runs when a test begins, and everything when it ends."""
    with Stack(SETTINGS + SLOW_DATABASE) as stack:
        yield Shop(stack, None)


@contextlib.contextmanager
def dropped(shop, command, collection):
    """Only the database runs, and it drops so many connections at this command; they were all dropped when the block ends."""
    shop.stop()
    shop.database_alone()
    stack, drops = shop.stack, 9
    with Failing(stack, collection, command, mode={"times": drops}, closeConnection=True) as failing:
        yield stack
    assert failing.times == drops


@pytest.mark.full
@pytest.mark.parametrize("command, collection", [("update", "pulses"), ("find", "secrets"), ("find", "watermarks")])
def test_a_start_has_patience_with_a_database_that_has_just_begun(at_rest, command, collection):
    """As a new primary drops connections, or a slow machine lets them time out."""
    with dropped(at_rest, command, collection) as stack:
        stack.start()


@pytest.mark.full
def test_a_restore_has_patience_too(at_rest):
    """It is run as soon as the database is."""
    with dropped(at_rest, "update", "pulses") as stack:
        assert "nothing shows that the database is older" in at_rest.restored(status=1)
    stack.start()
