"""The faults' tests use the service's stack, clients and ledger."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "service")]

from shown import figure, show  # noqa: E402,F401


def pytest_terminal_summary(terminalreporter):
    show(terminalreporter)
