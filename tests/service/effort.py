"""How much the tests do, by COUPONS_TESTS_EFFORT: `short`, as every day; `full`, as .ci/run and scripts/test --all; `long`: --long."""
import os

import pytest

LEVELS = ("short", "full", "long")
LEVEL = LEVELS.index(os.environ.get("COUPONS_TESTS_EFFORT") or "short")
FULL = LEVEL >= LEVELS.index("full")


def effort(short, full, long=None):
    """One of them; a test whose name gives a number keeps it. Without a third, `long` is as `full`."""
    return (short, full, full if long is None else long)[LEVEL]


def in_full(*values):
    """A row of a table of parameters that the short form leaves out: another row shows the same."""
    return pytest.param(*values, marks=pytest.mark.full)


def seconds(variable, short, full, long):
    """Of a test that runs for as long as it is set: by the variable, else as above."""
    return float(os.environ.get(variable) or effort(short, full, long))
