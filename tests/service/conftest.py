"""The stack that the tests share, and those of their own."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from stack import SETTINGS, Stack  # noqa: E402


@pytest.fixture(scope="session")
def stack():
    s = Stack()
    try:
        yield s.start()
        s.verify()
    finally:
        s.stop()
        s.remove()


@pytest.fixture
def another_stack():
    """A function that starts a copy with settings or a clock of its own; it is stopped after the test."""
    started = []

    def start(settings="", clock_offset_s=0):
        s = Stack(SETTINGS + settings, clock_offset_s)
        started.append(s)
        return s.start()

    yield start
    for s in started:
        s.stop()
        s.remove()


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
    before = stack.pids()
    yield
    assert stack.pids() == before, f"a process died: {before} before, {stack.pids()} after\n{stack.log()[-2000:]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test also shows what the service logged last that is worse than info."""
    report = yield
    if report.when == "call" and report.failed:
        stacks = [s for s in getattr(item, "funcargs", {}).values() if isinstance(s, Stack)]
        for s in stacks:
            lines = [line for line in s.log().splitlines() if "level=info" not in line]
            report.sections.append(("the service's log", "\n".join(lines[-15:])))
    return report
