"""Workers that die at named points between reading a request and answering it: nothing acknowledged is lost, nothing is taken
twice."""
import os
import re
import subprocess

import pytest

from effort import in_full
from halves import SLOTS, dies_half_way, views_of
from stack import BUILD, HOOKS, ROOT, hooked, wait_until
from swarm import by_code, swarm, take, taken

# The points in the order in which a request passes them, and at which of their times a worker dies. Checkpoints are
# written for many batches at once. A worker that dies, its successor and the other one have 3 * N - 2 times between them
# before a second one must die: fewer than there are.
POINTS = {"parsed": 60, "decided": 25, "appended": 25, "views": 5, "checkpoint": 4, "answering": 60}
OFTEN = "[worker]\ncheckpoint_ms = 50\n"


@pytest.mark.parametrize("point", [in_full(point) if point in ("parsed", "checkpoint", "decided", "answering") else point for point in POINTS])
def test_a_worker_that_dies_at_a_point_loses_nothing(monkeypatch, beside, point):
    """Every worker dies when it passes the point for the Nth time, and so do its successors."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", f"{point}:{POINTS[point]}")
    stack = beside(OFTEN)
    coupon = stack.coupon(slots=150, codes={"source": "generated", "pick": "random"})  # of several buckets at a time
    calls = swarm([stack.way()], [take(coupon, f"u-{i}", f"k-{i}") for i in range(200)], connections=2, pause_s=0.02)
    deaths = stack.log().count("signal=9")
    at_the_point = len(re.findall(rf"event=crash\.point .*name={point}\n", stack.log()))
    got = taken(calls)
    assert at_the_point >= 2, f"{at_the_point} workers died at {point}; the log:\n{stack.log()[-3000:]}"
    assert deaths <= at_the_point, f"{deaths} deaths, {at_the_point} of them at {point}"
    assert len(got) == 150 and by_code(calls).get("sold_out") == 50, by_code(calls)
    assert len({r["slot"] for r in got}) == 150, "a slot went out twice"
    assert sorted(r["ordinal"] for r in got) == list(range(1, 151)), sorted(r["ordinal"] for r in got)
    stack.verify(coupon)


def test_a_checkpoint_is_half_written_when_a_worker_dies_there_and_becomes_what_the_ledger_says(monkeypatch, beside):
    """Looked at from outside, while everybody who would repair them sleeps."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "views:5")
    stack = beside(OFTEN)
    coupon = stack.coupon(slots=SLOTS)
    written, missing = dies_half_way(stack, coupon)
    assert written and missing, (written, missing)
    wait_until("all buckets to be written", lambda: not any(missing for _, missing in views_of(stack, coupon).values()))
    stack.verify(coupon)


@pytest.mark.parametrize("wrong", ["parts:3", "views", "views:0", "views:3x", ":1", "decided:-1"])
def test_a_point_that_there_is_not_is_refused_before_anything_starts(wrong, tmp_path):
    """With the names of all that there are: those of this test."""
    done = subprocess.run([hooked() / "coupond", "-o", f"coupond.run_dir={tmp_path}"], cwd=ROOT, text=True, timeout=30,
                          env={**os.environ, "COUPONS_CRASH_POINT": wrong}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == os.EX_USAGE, done
    assert f'COUPONS_CRASH_POINT is "{wrong}"' in done.stdout and f"one of {' '.join(POINTS)}\n" in done.stdout, done.stdout
    assert not list(tmp_path.iterdir()), "it has begun all the same"


def test_programs_that_ship_know_no_hooks():
    """The names stand in those with hooks in them, so it would be seen."""
    for hook in map(str.encode, HOOKS):
        assert hook in (hooked() / "coupond").read_bytes()
        for program in ("coupond", "couponctl"):
            assert hook not in (BUILD / program).read_bytes(), (program, hook)
