"""One process that hangs, dies or has another time: everybody else goes on as before, and nobody gets something old."""
import itertools
import os
import random
import signal
import subprocess
import time

import pytest

from client import Direct
from effort import effort
from halves import asleep
from interpose import Interpose
from stack import BUILD, SETTINGS, SLOW_DATABASE, Stack, wait_until, write_settings
from swarm import Call, Swarm, take

pytestmark = [pytest.mark.full, pytest.mark.heavy]
HANGS_S = effort(5, 20, 185)
JUMP_S = 300
COUPONS = 300
WALLET_HOLDS = 10
LEFT = 0.8      # of what was answered before
SPAN_S = 4
SOON_S = 30     # and not after minutes
ROUNDS = 6      # on a machine that has other work; what is lost for minutes is lost in each


def wallets_are_exact(stack, coupons, user):
    """Each taking is in the wallet with its answer, at every worker."""
    for i, coupon in enumerate(coupons):
        stack.client("storefront").take(coupon, user).ok(201)
        for worker in range(stack.workers):
            held = {item["coupon"] for item in stack.direct(worker).get(f"/coupons/-/users/{user}?limit=1000").ok()["items"] if item["held"]}
            assert held >= set(coupons[:i + 1]), f"worker-{worker} after {coupon}"


def test_a_runner_that_hangs_is_missed_by_jobs_alone(beside):
    """Its lists wait, and are done when it is back."""
    stack = beside()
    coupons = [stack.coupon(slots=20, cap={"per_user": 20}, reserve_s=2) for _ in range(4)]
    with asleep(stack, ["runner"]):
        until = time.monotonic() + HANGS_S
        job = stack.client("ops").post(f"/coupons/{coupons[0]}/slots/retire", {"count": 3}, headers={"Idempotency-Key": "waits"}).expect(202)
        for i in itertools.count():
            wallets_are_exact(stack, coupons, f"u-{i}")
            if time.monotonic() > until or i == 15:
                break
            time.sleep(HANGS_S / 20)
        hold = stack.client("storefront").take(coupons[1], "holder", state="reserved").ok(201)
        at = f"/coupons/{coupons[1]}/redemptions/{hold['id']}"
        wait_until("its hold to end", lambda: stack.client("ops").get(at).ok()["state"] == "expired")
        assert stack.client("ops").get(job.header("Location")).ok()["state"] == "queued"
        time.sleep(max(0, until - time.monotonic()))
        wallets_are_exact(stack, coupons, "last")
    stack.job(job)
    stack.verify()


def test_a_primary_whose_clock_jumps_is_followed(tmp_path):
    """Five minutes ahead, and back: times in a lane never run back, nobody waits for them, and wallets stay exact."""
    interpose = Interpose(tmp_path)
    stack = Stack(SETTINGS + SLOW_DATABASE)
    stack.environment |= interpose.environment
    with stack:
        coupons = [stack.coupon(slots=20, cap={"per_user": 20}) for _ in range(3)]
        mongod = int((stack.var / "run" / "mongod.pid").read_text())
        wallets_are_exact(stack, coupons, "before")
        for number, skew_s in enumerate((JUMP_S, 0, -JUMP_S, 0)):
            interpose.set(mongod, skew_ns=skew_s * 10**9)
            stack.database.pulses.find_one()
            began = time.monotonic()
            wallets_are_exact(stack, coupons, f"u-{number}")
            assert time.monotonic() - began < 60
            assert interpose.count(mongod) > 0 or skew_s == 0
        for coupon in coupons:
            times = [batch["at"] for batch in stack.database.ledger.find({"_id.c": coupon}).sort("_id.seq", 1)]
            assert times == sorted(times), coupon
        wait_until("checkpoints and totals", lambda: stack.is_written(*coupons))
        stack.verify()
        os.kill(mongod, signal.SIGKILL)  # asked to stop, it may wait for what it planned while its clock was ahead


def rates(crowds):
    """How many answers a second each has had in the span that ends now."""
    now = time.monotonic()
    return [sum(1 for call in list(crowd.done) if now - SPAN_S <= call.answered_at) / SPAN_S for crowd in crowds]


def shares_after_a_death(stack, crowds):
    """The best rates soon after a worker's death, of those before; and how long after it that was."""
    stack.has_lived("worker-0")
    time.sleep(SPAN_S)
    before = rates(crowds)
    killed = time.monotonic()
    stack.kill("worker-0")
    best = [0], 0
    time.sleep(SPAN_S)
    while min(best[0]) < LEFT and time.monotonic() < killed + SOON_S:
        shares = [after / max(b, 1 / SPAN_S) for after, b in zip(rates(crowds), before)]
        best = max(best, (shares, round(time.monotonic() - killed, 1)), key=lambda pair: min(pair[0]))
        time.sleep(SPAN_S / 4)
    return best


def test_of_many_coupons_none_is_slower_for_long_after_a_worker_died(another_stack):
    stack = another_stack()
    chance = random.Random(1)
    coupons = [stack.coupon(cap={"policy": "approximate", "total": 10**9, "per_user": 1000}) for _ in range(COUPONS)]
    for coupon in coupons[:WALLET_HOLDS]:
        stack.client("storefront").take(coupon, "owner").ok(201)
    takings = Swarm([stack.way()], (take(chance.choice(coupons), f"u-{i}", f"k-{i}") for i in itertools.count()), connections=32)
    wallets = Swarm([stack.way()], (Call("GET", "/coupons/-/users/owner?limit=20") for _ in itertools.count()), connections=4, pause_s=0.02)
    found = []
    with takings, wallets:
        time.sleep(2)
        while len(found) < ROUNDS and not (found and min(found[-1][0]) >= LEFT):
            found.append(shares_after_a_death(stack, (takings, wallets)))
    print(f"figure: takings and wallets of before, and seconds after a worker's death: {found}")
    assert min(found[-1][0]) >= LEFT, found
    assert {call.reply.status for call in takings.done} == {201} and {call.reply.status for call in wallets.done} == {200}


class Bare:
    """A coupond without nginx, on a database of the shared copy. Its folders have the names of every other one's, which stand below where it
    was started: by the names of machine and folder, in which their leases are, all of them are one front."""

    def __init__(self, stack, folder, keys):
        self.run, self.keys = folder / "run", keys
        for place in (self.run, folder / "keys"):
            place.mkdir(parents=True)
        (self.run / "mongodb_uri").write_text((stack.var / "run" / "mongodb_uri").read_text())
        write_settings(folder / "coupond.ini", f"{SETTINGS}{SLOW_DATABASE}"
                       f"[coupond]\nrun_dir = run\nworkers = 1\n[mongodb]\ndatabase = {keys.database_name}\nhigh_water_file = high_water\n"
                       "[log]\npath = coupond.log\n[receipts]\nseed_file = keys/receipt_seed\n")
        self.log = folder / "coupond.log"
        self.process = subprocess.Popen([BUILD / "coupond", "-c", "coupond.ini"], cwd=folder, env=stack.environment | {"COUPONS_VAR": "."},
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("a worker", lambda: (self.run / "worker-0.sock").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def client(self, role):
        return Direct(self.run / "worker-0.sock", self.keys.key(role))

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def test_two_fronts_of_one_name_are_two_writers(stack, beside, tmp_path):
    """Both reporters have the lease, and both runners the front's row: every batch counts once, and each front sees what the other did."""
    maker = beside()
    coupons = [maker.coupon(slots=40, cap={"per_user": 20}) for _ in range(2)]
    maker.rest()
    both = [Bare(stack, tmp_path / name, maker) for name in ("one", "other")]
    try:
        wait_until("both reporters", lambda: all("event=reporter.started" in front.log.read_text() for front in both))
        for i in range(12):
            at, other = both[i % 2], both[1 - i % 2]
            for n, coupon in enumerate(coupons):
                taken = at.client("storefront").take(coupon, f"u-{i}").ok(201)
                wallet = other.client("storefront").get(f"/coupons/-/users/u-{i}").ok()
                assert {item["coupon"] for item in wallet["items"] if item["held"]} == set(coupons[:n + 1]), (i, wallet)
                said = other.client("ops").get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok()
                assert said["state"] == "redeemed"
        wait_until("checkpoints and totals", lambda: maker.is_written(*coupons))
        assert len(list(maker.database.fronts.find({"seen": {"$exists": True}}))) == 1
    finally:
        for front in both:
            front.end()
    maker.verify()
