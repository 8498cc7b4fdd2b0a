"""Overload. What is counted must be right in each try. Other work of the machine may fall into a try, so there are some; rates and times
that are wrong in all of them are ours, unless other work took much of the processors each time."""
import pytest

from effort import seconds
from overload import OTHERS_MOST, measure, shortcomings, wrong

SECONDS = seconds("COUPONS_OVERLOAD_S", 4, 8, 8)
TRIES = 5


@pytest.mark.full
@pytest.mark.timeout(1800)  # each try has a stack of its own
def test_what_is_accepted_stays_at_its_peak_and_the_rest_is_refused_at_once(figure):
    tries = []
    while len(tries) < TRIES:
        seen = measure(SECONDS)
        tries.append(seen)
        figure(f"twice the load that the queue takes: {seen}")
        assert not wrong(seen), f"{seen}: {', '.join(wrong(seen))}"
        if not shortcomings(seen):
            return
    said = f"{seen}: {', '.join(shortcomings(seen))}"
    others = min(seen.others for seen in tries)
    if others > OTHERS_MOST:
        pytest.skip(f"not measured: others had {others:.0%} of the processors, and more: {said}")
    raise AssertionError(said)
