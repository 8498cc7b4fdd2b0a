"""The stack that the tests share, and those of their own."""
import contextlib
import functools
import inspect
import pathlib
import re
import sys
import time
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "faults"))  # interpose.py

import within  # noqa: E402
from effort import FULL  # noqa: E402
from shown import figure, show  # noqa: E402,F401
from stack import SETTINGS, SLOW_DATABASE, WORKERS, Stack, wait_until  # noqa: E402


@pytest.fixture(scope="session")
def stack():
    with Stack() as s:
        yield s
        s.verify()


@pytest.fixture
def another_stack():
    """A function that starts a copy with settings, a clock or workers of its own; it is stopped after the test."""
    with contextlib.ExitStack() as ending:
        def start(settings="", clock_offset_s=0, workers=WORKERS):
            return ending.enter_context(Stack(SETTINGS + SLOW_DATABASE + settings, clock_offset_s, workers))

        yield start


@pytest.fixture
def beside(stack):
    """As another_stack, with a database of its own on the mongod of the shared copy, which costs half as much: for a test that leaves
    that mongod alone, but for orders to fail that name the database, and asks nothing that it answers for all its databases together."""
    with contextlib.ExitStack() as ending:
        def start(settings="", clock_offset_s=0, workers=WORKERS):
            return ending.enter_context(Stack(SETTINGS + SLOW_DATABASE + settings, clock_offset_s, workers, beside=stack))

        yield start


@pytest.fixture
def ops(stack):
    return stack.client("ops")


@pytest.fixture
def reporting(stack):
    return stack.client("reporting")


@pytest.fixture
def storefront(stack):
    return stack.client("storefront")


@pytest.fixture
def nobody(stack):
    """Without a key."""
    return stack.client()


@pytest.fixture
def nothing_dies(stack):
    """No process of the service ends during the test."""
    before = wait_until("all processes to live", lambda: all((pids := stack.pids()).values()) and pids)
    yield
    assert stack.pids() == before, f"a process died: {before} before, {stack.pids()} after\n{stack.log()[-2000:]}"


# Begun first where files run side by side, so that what ends last is short.
LONGEST = ("test_dashboard.py", "test_import.py", "test_life.py", "test_reconcile.py", "test_webhooks.py", "test_ops.py",
           "test_erasure.py", "test_restored.py", "test_lanes.py", "test_fronts.py", "test_reports.py", "test_care.py",
           "test_crashes.py", "test_archive_removal.py", "test_shop.py", "test_replenish.py", "test_redemptions.py",
           "test_secrets.py", "test_metrics.py", "test_sweeper.py", "test_bad_input.py", "test_ctl.py", "test_receipts.py",
           "test_crash_points.py", "test_races.py", "test_codes.py", "test_policies.py", "test_stock.py", "test_docs.py",
           "test_commands.py", "test_many.py", "test_guesses.py", "test_public.py", "test_jobs.py", "test_rate.py",
           "test_in_seconds.py", "test_holds.py", "test_clock.py", "test_limits.py", "test_database.py", "test_archive.py",
           "test_fuzz.py", "test_ends.py")
PLACES = {name: place for place, name in enumerate(LONGEST)}


# Starting one costs more than all else that most tests do.
STARTS = re.compile(r'\b(Stack|Balanced|Browser|Installed)\(|\bscript\("run"')


@functools.cache
def starts_something(function):
    return bool(STARTS.search(inspect.getsource(function)))


def has_short_form(item):
    """Whoever starts a copy of the service, or a browser, for itself has none."""
    used = [fixtures[-1].func for name, fixtures in item._fixtureinfo.name2fixturedefs.items() if name != "stack"]
    return not item.get_closest_marker("full") and not any(map(starts_something, [item.function, *used]))


def pytest_collection_modifyitems(config, items):
    """The longest files first; in the short form, without the tests that have none."""
    if not FULL:
        left_out = [item for item in items if not has_short_form(item)]
        config.hook.pytest_deselected(items=left_out)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = len(left_out)
        items[:] = filter(has_short_form, items)
    items.sort(key=lambda item: PLACES.get(item.path.name, len(LONGEST)))


def pytest_terminal_summary(terminalreporter):
    show(terminalreporter)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """No day of UTC ends in the midst of a test, unless it is about that."""
    left_s = 86400 - time.time() % 86400
    if left_s < 120:
        time.sleep(left_s + 0.5)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test also shows what the service logged last that is worse than info; one that could not measure is not passed."""
    report = yield
    if report.when == "setup":
        within.not_measured.clear()
    if report.when == "call" and report.passed and within.not_measured:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1], f"not measured: {'; '.join(within.not_measured)}")
    if report.when == "call" and report.failed:
        stacks = [s for s in getattr(item, "funcargs", {}).values() if isinstance(s, Stack)]
        for s in stacks:
            lines = [line for line in s.log().splitlines() if "level=info" not in line]
            report.sections.append(("the service's log", "\n".join(lines[-15:])))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """What they left out, all the same, is in the sum."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    if left_out:
        node.config.pluginmanager.get_plugin("terminalreporter").stats["deselected"] = [types.SimpleNamespace()] * left_out
