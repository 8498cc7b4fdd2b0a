"""The scheduler: every fault comes, none that hold the same overlap, all are healed, a failure is reported."""
import random
import threading
import time

import pytest

import fault
from fault import Fault, NotNow, Row, Scheduler
from stack import wait_until


class Pretended(Fault):
    def __init__(self):
        super().__init__(None)
        self.on, self.times = False, 0

    def start(self, chance):
        assert not self.on, "started twice"
        self.on, self.times = True, self.times + 1
        self.happened()

    def heal(self):
        self.on = False


class Unwilling(Pretended):
    def start(self, chance):
        raise NotNow


class Settling(Pretended):
    """It is healed only when the other is."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def heal(self):
        wait_until("the other to be healed", lambda: not self.other.on)
        super().heal()


class Delayed(Pretended):
    """It starts only when the other, which was on before, is healed."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def start(self, chance):
        if not self.other.on:
            raise NotNow
        wait_until("the other to be healed", lambda: not self.other.on)
        super().start(chance)


class Broken(Pretended):
    def heal(self):
        super().heal()
        raise OSError("it cannot be healed")


@pytest.fixture
def hurry(monkeypatch):
    for name, value in (("LULL_S", (0.02, 0.03)), ("ACTIVE_S", (0.2, 0.3)), ("OVERTIME_S", 0.1)):
        monkeypatch.setattr(fault, name, value)


PAUSE_S = (0.0005, 0.001)


def run(rows, times=5, together=2):
    """Until all that can come have come so often."""
    faults = {name: (row, row.make()) for name, row in rows.items()}
    scheduler = Scheduler(faults, random.Random(1), 600, together, PAUSE_S)
    scheduler.start()
    willing = [fault for _, fault in faults.values() if not isinstance(fault, Unwilling)]
    wait_until("all", lambda: min(one.times for one in willing) >= times and scheduler.lulls or scheduler.failure)
    return scheduler, faults, scheduler.end()


def test_every_fault_comes_and_is_healed(hurry):
    rows = {name: Row(Pretended, lasts_s=(0.02, 0.05)) for name in "abcde"}
    scheduler, faults, spells = run(rows)
    times = [fault.times for _, fault in faults.values()]
    assert max(times) - min(times) <= 2, times
    assert not any(fault.on for _, fault in faults.values())
    assert all(spell.healed >= spell.started for spell in spells)
    overlapping = sum(b.started < a.healed for a, b in zip(spells, spells[1:]))
    assert overlapping > 3, "faults should overlap"
    for begin, end in scheduler.lulls:
        assert not any(spell.started < end and spell.healed > begin + 0.005 for spell in spells), "no quiet"


def test_what_holds_the_same_never_overlaps(hurry):
    rows = {name: Row(Pretended, lasts_s=(0.001, 0.01), holds=frozenset(["it"])) for name in "abc"}
    _, _, spells = run(rows, together=3)
    assert all(a.healed <= b.started for a, b in zip(spells, spells[1:]))


@pytest.mark.parametrize("waiting", [Settling, Delayed])
def test_a_fault_is_healed_in_time_whatever_waits_for_that(hurry, waiting):
    other = Pretended()
    rows = {"waiting": Row(lambda: waiting(other), lasts_s=(0.001, 0.01)), "other": Row(lambda: other, lasts_s=(0.05, 0.1))}
    _, _, spells = run(rows)
    of = {name: [spell for spell in spells if spell.name == name] for name in rows}
    assert any(a.started < b.healed and b.started < a.healed for a in of["waiting"] for b in of["other"]), "they should overlap"


def test_one_that_cannot_start_does_not_hold_up_the_others(hurry):
    _, faults, spells = run({"a": Row(Pretended), "b": Row(Unwilling)})
    assert {spell.name for spell in spells} == {"a"}


def test_a_failure_is_told_and_the_others_are_healed(hurry):
    rows = {"a": Row(Pretended, lasts_s=(9, 9)), "b": Row(Broken)}
    faults = {name: (row, row.make()) for name, row in rows.items()}
    scheduler = Scheduler(faults, random.Random(1), 60, pause_s=PAUSE_S)
    scheduler.start()
    with pytest.raises(OSError):
        scheduler.result()
    assert not scheduler.faults["a"][1].on


def test_it_ends_early_when_told(hurry):
    scheduler = Scheduler({"a": (Row(Pretended), Pretended())}, random.Random(1), 600)
    scheduler.start()
    wait_until("a fault", lambda: scheduler.spells)
    began = time.monotonic()
    assert scheduler.end() and time.monotonic() - began < 300


def test_none_starts_while_nobody_asks(hurry):
    busy = threading.Event()
    scheduler = Scheduler({"a": (Row(Pretended), Pretended())}, random.Random(1), 60, pause_s=PAUSE_S, busy=busy.is_set)
    scheduler.start()
    time.sleep(0.05)
    assert not scheduler.spells
    busy.set()
    wait_until("a fault", lambda: scheduler.spells)
    scheduler.end()
