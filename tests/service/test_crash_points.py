"""Workers that die at named points between deciding and answering: nothing acknowledged is lost, nothing is taken twice."""
import pytest

from swarm import by_code, swarm, take, taken


@pytest.mark.parametrize("point", ["decided", "appended"])
def test_a_worker_that_dies_at_a_point_loses_nothing(monkeypatch, another_stack, point):
    """decided: before the append is sent. appended: the ledger has it, no view and no client knows. Every worker dies at its
    30th batch, and so do its successors."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", f"{point}:30")
    stack = another_stack()
    coupon = stack.coupon(slots=150)
    calls = swarm([stack.way()], [take(coupon, f"u-{i}", f"k-{i}") for i in range(200)], connections=2)
    deaths = stack.log().count("signal=9")
    got = taken(calls)
    assert deaths >= 2, f"the workers died {deaths} times; the log:\n{stack.log()[-3000:]}"
    assert len(got) == 150 and by_code(calls).get("sold_out") == 50, by_code(calls)
    assert len({r["slot"] for r in got}) == 150, "a slot went out twice"
    assert sorted(r["ordinal"] for r in got) == list(range(1, 151)), sorted(r["ordinal"] for r in got)
    stack.verify(coupon)
