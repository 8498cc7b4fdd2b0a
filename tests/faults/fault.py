"""What a fault is, and the scheduler that lets random mixes of them overlap, with quiet periods.

A file of faults (processes.py, ...) defines classes of Fault and ends in a table

    ROWS = {"kill a worker": Row(Kill, {"group": "worker"}), ...}

which mixes.py puts together to FAULTS and names in its mixes. Nothing else needs to know a fault.

Times are time.monotonic(). Everything random comes from the `chance` that is given (a random.Random of the run's seed).
"""
import dataclasses
import threading
import time

LULL_S = (2.0, 4.0)  # how long a quiet period lasts, everything healed
ACTIVE_S = (6.0, 12.0)  # how long faults come before the next quiet period
PAUSE_S = (0.05, 0.8)  # between one start and the next
OVERTIME_S = 900  # after the end, for faults that could not be started yet
TOGETHER = 3  # so many at a time at the most


@dataclasses.dataclass(frozen=True)
class Row:
    """One fault that mixes can name.

    options     given to make(stack, **options)
    lasts_s     (least, most) seconds between start and heal; (0, 0): it is over when start returns, as a kill is
    holds       names of what it has for itself ("worker", "the replica set", ...): what holds the same never overlaps
    nodes       0: any database; 1 or 3: a replica set of ours with so many members and enableTestCommands=1
    settings    lines for coupond.ini that it needs
    environment {name: value} for the processes of the service, or a function of the stack's directory that gives it
    """
    make: type
    options: dict = dataclasses.field(default_factory=dict)
    lasts_s: tuple = (0, 0)
    holds: frozenset = frozenset()
    nodes: int = 0
    settings: str = ""
    environment: object = None


class Fault:
    """One way to break a running service. One object lives as long as its mix; start and heal alternate.

    `moments`: when it really happened, one each time: [(time.monotonic(), note)]. happened() adds one, and is called
    only on evidence that it did (the pid is gone, the process is in state T, the server counted its failCommand), at
    that very moment or with `at`. From these come the requests in flight; without any moment the run fails.
    """

    def __init__(self, stack):
        self.stack = stack
        self.moments = []

    def happened(self, note="", at=None):
        self.moments.append((time.monotonic() if at is None else at, note))

    def start(self, chance):
        """Break it. What takes long (waiting for a process to live) comes before the moment. NotNow: not at present."""
        raise NotImplementedError

    def heal(self):
        """Undo it, whatever state it is in; called once after each start that returned, also when a run ends early. Others are
        started and healed meanwhile."""

    def end(self):
        """Called once, when all is healed: what can only then be seen. What must not be is an AssertionError."""


class NotNow(Exception):
    """The fault cannot be started at present (its process has just died, ...): another is tried instead."""


@dataclasses.dataclass
class Spell:
    """One start of a fault, until it was healed. `moments`: those of its fault until its next start; one may be seen late."""
    name: str
    started: float
    before: int  # moments of the fault that came earlier
    healed: float = None
    over: threading.Event = dataclasses.field(default_factory=threading.Event)  # to be healed now
    healer: threading.Thread = None
    moments: list = dataclasses.field(default_factory=list)


class Scheduler(threading.Thread):
    """Starts faults of {name: (Row, Fault)} until `seconds` are over and each has come, then heals what is left.

    A shuffled deck is dealt, so that each comes as often as the others, and every one before any comes again. They
    come for a while, a few at a time; then all are healed, and there is quiet, so that recovery can be seen. None starts
    before busy(): it is to meet requests. A thread of its own heals each when its time is up, however long another takes
    to start or to be healed: it may wait for just that.
    `spells`: what was started when; `lulls`: the quiet periods (from, to). What went wrong is reported by result().
    """

    def __init__(self, faults, chance, seconds, together=TOGETHER, pause_s=PAUSE_S, log=None, busy=lambda: True):
        super().__init__(daemon=True)
        self.faults, self.chance, self.seconds, self.together, self.pause_s = faults, chance, seconds, together, pause_s
        self.log, self.busy = log or (lambda text: None), busy
        self.spells, self.lulls, self.failure, self.deck = [], [], None, []
        self.running = {}
        self.ending = threading.Event()

    def run(self):
        try:
            end = time.monotonic() + self.seconds
            while not self.ending.is_set() and time.monotonic() < end + OVERTIME_S * bool(self._missing()):
                self._active(time.monotonic() + self.chance.uniform(*ACTIVE_S), end)
                self._lull()
        except BaseException as e:  # reported to whoever joins
            self.failure = e
        finally:
            self._heal_all()
            self._end()

    def _end(self):
        for name, (_, fault) in self.faults.items():
            try:
                fault.end()
            except Exception as e:  # reported to whoever joins
                self.failure = self.failure or e
            spells = [spell for spell in self.spells if spell.name == name]
            for spell, until in zip(spells, [*(after.before for after in spells[1:]), None]):
                spell.moments = fault.moments[spell.before:until]

    def _missing(self):
        """Faults that never happened yet."""
        return [name for name, (_, fault) in self.faults.items() if not fault.moments]

    def _active(self, until, end):
        while time.monotonic() < until and not self.ending.is_set() and (time.monotonic() < end or self._missing()):
            self.running = {name: spell for name, spell in self.running.items() if spell.healed is None}
            if len(self.running) < self.together:
                self._start_one()
            self.ending.wait(self.chance.uniform(*self.pause_s))

    def _lull(self):
        self._heal_all()
        begin = time.monotonic()
        self.ending.wait(self.chance.uniform(*LULL_S))
        self.lulls.append((begin, time.monotonic()))

    def _start_one(self):
        """The first of the deck that nothing stands in the way of; what could not start yet comes before a new deal."""
        while not self.busy():
            if self.ending.wait(0.001):
                return
        missing = self._missing()
        held = frozenset().union(*(self.faults[name][0].holds for name in self.running))
        others = sorted(set(self.faults) - set(self.deck))
        in_turn = self.chance.sample(missing, len(missing)) + self.deck + self.chance.sample(others, len(others))
        for name in in_turn:
            row, fault = self.faults[name]
            if name in self.running or row.holds & held:
                continue
            spell = Spell(name, time.monotonic(), len(fault.moments))
            try:
                fault.start(self.chance)
            except NotNow:
                continue
            self._dealt(name)
            self.spells.append(spell)
            self.running[name] = spell
            self.log(f"start {name}")
            spell.healer = threading.Thread(target=self._heal, args=(spell, self.chance.uniform(*row.lasts_s)), daemon=True)
            spell.healer.start()
            return

    def _dealt(self, name):
        if name not in self.deck:
            others = sorted(set(self.faults) - set(self.deck))
            self.deck += self.chance.sample(others, len(others))
        self.deck.remove(name)

    def _heal(self, spell, lasts_s):
        spell.over.wait(lasts_s)
        try:
            self.faults[spell.name][1].heal()
            if lasts_s:
                self.log(f"heal  {spell.name}")
        except Exception as e:  # reported to whoever joins
            self.failure = self.failure or e
            self.ending.set()
        spell.healed = time.monotonic()

    def _heal_all(self):
        for spell in self.running.values():
            spell.over.set()
        for spell in self.running.values():
            spell.healer.join()
        self.running = {}

    def end(self):
        self.ending.set()
        return self.result()

    def result(self):
        """The spells, once all is healed."""
        self.join(self.seconds + OVERTIME_S + 600)
        assert not self.is_alive(), "the faults do not come to their end"
        if self.failure:
            raise self.failure
        return self.spells
