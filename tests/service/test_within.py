"""The clock by which the other tests say that something was too late: within.py."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import pytest

import within as clock
from stack import state_of, wait_until

HERE = pathlib.Path(__file__).parent
SPIN = "while True: pass"


@pytest.mark.parametrize("passed_s, withheld_s, said", [
    (1, 0, "in time"), (2, 0, "in time"), (2, 1.9, "in time"),  # in time whatever was withheld
    (3, 0, "late"), (3, 0.9, "late"), (3, 1.1, "in time"), (4, 1.9, "late"), (4, 2, "in time"),
    (4, 2.1, None), (10, 5, "late"), (180, 170, None), (3, 5, None)])
def test_late_is_what_took_longer_than_the_machine_explains(passed_s, withheld_s, said):
    assert clock.verdict(2, passed_s, withheld_s) == said


@pytest.mark.full
def test_time_is_withheld_from_who_is_ready_and_does_not_run():
    """Three busy processes on one processor: each waits most of the time; one that sleeps waits for nothing."""
    cpu = min(os.sched_getaffinity(0))
    with contextlib.ExitStack() as ending:
        def start(text):
            process = ending.enter_context(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE))
            ending.callback(process.kill)
            process.stdout.readline()  # it is past what it begins with
            os.sched_setaffinity(process.pid, {cpu})
            return process.pid

        sleeper = start("import time; print(flush=True); time.sleep(600)")
        busy = [start(f"print(flush=True)\n{SPIN}") for _ in range(3)]
        wait_until("the sleeper to sleep", lambda: state_of(sleeper) == "S")
        before, began = clock.delays_s([*busy, sleeper]), time.monotonic()
        wait_until("three seconds", lambda: time.monotonic() > began + 3)
        passed_s, after = time.monotonic() - began, clock.delays_s([*busy, sleeper])
        waited = {thread: after[thread] - before[thread] for thread in before}
    assert sum(waited[str(pid)] for pid in busy) > passed_s, waited
    assert waited[str(sleeper)] < 0.1, waited


@pytest.mark.full
def test_what_is_late_by_itself_fails(monkeypatch):
    monkeypatch.setattr(clock, "stolen_s", lambda: 0.0)
    monkeypatch.setattr(clock, "delays_s", lambda pids: {})
    with pytest.raises(AssertionError, match="the nap took .* 0.05 are promised"), clock.within(0.05, "the nap"):
        time.sleep(0.5)
    assert not clock.not_measured


@pytest.mark.full
def test_what_could_not_be_measured_is_not_passed(tmp_path):
    """pytest counts it as skipped, and says why; an assertion that fails stays one."""
    (tmp_path / "test_it.py").write_text("""
import itertools, time, within
stolen = itertools.count(0, 1000)
within.stolen_s = lambda: next(stolen)

def test_late():
    with within.within(0.01, "the nap"):
        time.sleep(0.1)

def test_wrong():
    with within.within(0.01, "the nap"):
        time.sleep(0.1)
    assert 1 == 2

def test_good():
    with within.within(60, "nothing"):
        pass
""")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "conftest", tmp_path],
                          env={**os.environ, "PYTHONPATH": str(HERE), "COUPONS_PYTEST": ""}, text=True, capture_output=True, cwd=tmp_path)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "not measured: the nap took" in done.stdout, done.stdout
