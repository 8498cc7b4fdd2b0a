"""Overload. Other work of the machine may fall into a try, so there are three; what is wrong in all of them is ours."""
import os

import pytest

from overload import measure, shortcomings

SECONDS = float(os.environ.get("COUPONS_OVERLOAD_S", "8"))
TRIES = 3


@pytest.mark.timeout(1800)  # each try has a stack of its own
def test_what_is_accepted_stays_at_its_peak_and_the_rest_is_refused_at_once(figure):
    for _ in range(TRIES):
        seen = measure(SECONDS)
        figure(f"twice the load that the queue takes: {seen}")
        if not shortcomings(seen):
            break
    assert not shortcomings(seen), f"{seen}: {', '.join(shortcomings(seen))}"
