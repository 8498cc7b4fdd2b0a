"""The faults' tests use the service's stack, clients and ledger."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "service")]

from effort import FULL  # noqa: E402
from shown import figure, show  # noqa: E402,F401


def pytest_collection_modifyitems(config, items):
    """In the short form, without what has none."""
    if not FULL:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full")])
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_terminal_summary(terminalreporter):
    show(terminalreporter)
