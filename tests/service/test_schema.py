"""Two versions at work while one takes the other's place: what a version cannot read, it does not serve."""
import contextlib
import os
import shutil
import subprocess

import pytest

from client import Direct
from stack import BUILD, PATIENCE_S, ROOT, wait_until


def build(place, version, writes=False):
    """coupond as of a release that reads this version of what is stored, or writes it as well; of objects that are built already."""
    flags = f"-DSCHEMA_NEWEST_READ={version}" + writes * f""" -DSCHEMA_STEPS_AHEAD='{{{version}, "a step ahead", NULL}},'"""
    shutil.copytree(BUILD / "app", place / "app")
    (place / "app" / "store" / "schema.o").unlink()
    done = subprocess.run(["make", f"B={place}", place / "coupond"], cwd=ROOT, env={**os.environ, "CPPFLAGS": flags}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return place / "coupond"


@contextlib.contextmanager
def at_work(stack, program, name):
    """It, beside the stack and on its database; a caller of its first worker."""
    place = stack.var / name
    place.mkdir()
    uri = (stack.var / "run" / "mongodb_uri").read_text().strip()
    with open(place / "out", "w") as out:
        process = subprocess.Popen([program, "-c", stack.environment["COUPONS_CONFIG"], "-o", f"coupond.run_dir={place}"],
                                   env={**stack.environment, "MONGODB_URI": uri}, stdout=out, stderr=out)
    try:
        caller = Direct(place / "worker-0.sock", stack.key("storefront"))
        wait_until(f"{name} to serve", lambda: process.poll() is None and (place / "deliverer.pid").exists()
                   and caller.get("/coupons/-/ready", may_fail=True).status == 200)
        yield process, caller
        caller.close()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert process.returncode == 0, (place / "out").read_text()


@pytest.mark.full
@pytest.mark.timed
def test_a_process_that_meets_a_newer_schema_ends_and_one_that_reads_it_goes_on(beside, tmp_path):
    stack = beside()
    coupon = stack.coupon(slots=10)
    target = f"/coupons/{coupon}/redemptions"
    version = stack.database.schema.find_one({"_id": "schema"})["form"]
    before = stack.client("storefront").post(target, {"user": "u"}, idempotency_key="k").expect(201).json()
    master = stack.pid("coupond")
    with at_work(stack, build(tmp_path / "reads", version + 1), "reads") as (_, reads):
        reads.post(target, {"user": "v"}, idempotency_key="k-v").expect(201)
        assert stack.pid("coupond") == master
        with at_work(stack, build(tmp_path / "writes", version + 1, writes=True), "writes") as (_, writes):
            assert stack.database.schema.find_one({"_id": "schema"})["form"] == version + 1
            wait_until("the one that cannot read it to end", lambda: stack.pid("coupond") is None)
            assert f"event=schema.newer version={version + 1} newest_read={version}" in stack.log()
            for who in (reads, writes):
                assert who.post(target, {"user": "u"}, idempotency_key="k").expect(201).json() == before
                who.post(target, {"user": f"w-{who is reads}"}, idempotency_key=f"k-{who is reads}").expect(201)
    stack.verify(coupon)
