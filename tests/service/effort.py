"""How much the tests do: the everyday run has little time, `scripts/test --long` has more (it sets COUPONS_TESTS_LONG=1)."""
import os

LONG = os.environ.get("COUPONS_TESTS_LONG") == "1"


def effort(everyday, long):
    """The one or the other; a test whose name gives a number keeps it in both."""
    return long if LONG else everyday


def seconds(variable, everyday, long):
    """Of a test that runs for as long as it is told: by the variable, else as above."""
    return float(os.environ.get(variable) or effort(everyday, long))
