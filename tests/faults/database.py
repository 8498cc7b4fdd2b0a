"""Faults at the database: members of its replica set die, sleep, are cut off; commands fail; its disk is slow, its
clock jumps.

All need `stack.replica_set` (see replica_set.py).
"""
import signal
import threading
import time

import pymongo.errors

from fault import Fault, NotNow, Row
from interpose import HOUR_NS
from replica_set import ELECTION_MS
from stack import wait_until

LOST_S = (ELECTION_MS / 1000 + 1, ELECTION_MS / 1000 + 4)  # long enough for an election
REPLICATES_S = 8
TURNED_S = (8, 12)  # three members restart meanwhile
SOCKET_TIMEOUT = "[mongodb]\nsocket_timeout_ms = 1500\n"
CALLED = ["insert", "update", "find", "aggregate"]  # what the service's requests send
WRITES = ["insert", "update"]
OURS = "coupons"  # the appName of the service's connections
OFF_S = 300  # for a fail point to be off again, once its member answers
NOT_PRIMARY, SHUTDOWN, CONCERN_FAILED = 10107, 91, 64


class SetFault(Fault):
    """One at the members of the replica set."""

    def __init__(self, stack):
        super().__init__(stack)
        self.set = stack.replica_set

    def settled(self):
        """The primary, where all is well; a majority must be left afterwards."""
        if not self.set.is_settled():
            raise NotNow
        return self.set.primary()


# ---- members ----

class KillPrimary(SetFault):
    """kill -9; what it had acknowledged to a majority must be there when another takes over."""

    def start(self, chance):
        primary = self.settled()
        at = self.set.kill(primary)
        self.happened(primary.name, at)

    def heal(self):
        self.set.heal()


class StepDown(SetFault):
    """The primary hands over; for a while it may not be elected again."""

    def start(self, chance):
        primary = self.settled()
        at = time.monotonic()
        try:
            primary.admin("replSetStepDown", 3, secondaryCatchUpPeriodSecs=1, force=True)
        except pymongo.errors.AutoReconnect:
            pass  # it closes connections of clients
        except pymongo.errors.OperationFailure as e:  # it had no time for it
            raise NotNow from e
        try:
            wait_until(f"{primary.name} to step down", lambda: (primary.hello() or {}).get("secondary"), 10, 0.01)
        except AssertionError as e:  # nobody saw it: it may be primary again
            raise NotNow from e
        self.happened(primary.name, at)

    def heal(self):
        self.set.settle()


class LosePrimary(SetFault):
    """The primary is cut off from the others (its clients stay attached), or sleeps; then it comes back, and may think
    that nothing has changed. It happened if another was elected meanwhile, and, where it was awake, clients still asked it."""

    def __init__(self, stack, how):
        super().__init__(stack)
        self.how, self.lost, self.at, self.asked = how, None, None, None

    def start(self, chance):
        self.lost, self.at = self.settled(), time.monotonic()
        getattr(self.set, self.how)(self.lost)
        self.asked = None if self.lost.paused else self._asked()

    def _asked(self):
        """How many commands of clients the member has got; None: it does not say."""
        try:
            counters = self.lost.admin("serverStatus")["opcounters"]
        except pymongo.errors.PyMongoError:
            return None
        return sum(counters[kind] for kind in ("insert", "update", "query"))

    def heal(self):
        self.set.another_primary(self.lost)
        asked = None if self.lost.paused else self._asked()
        if self.lost.paused:
            self.happened(f"{self.lost.name}, by a pause", self.at)
        elif None not in (asked, self.asked) and asked > self.asked:
            self.happened(f"{self.lost.name}, {asked - self.asked} commands came meanwhile", self.at)
        self.set.heal()


class SleepMajority(SetFault):
    """All secondaries sleep: the primary alone can promise nothing, and what it wrote meanwhile may be gone."""

    def start(self, chance):
        primary = self.settled()
        at = time.monotonic()
        for member in self.set.members:
            if member is not primary:
                self.set.pause(member)
        self.happened(f"all but {primary.name}", at)

    def heal(self):
        self.set.heal()


class RestartInTurn(SetFault):
    """Each member ends by SIGTERM and starts again, the primary last: as an upgrade does."""

    def start(self, chance):
        primary = self.settled()
        self.failure = None
        in_turn = [m for m in self.set.members if m is not primary] + [primary]
        self.turning = threading.Thread(target=self._turn, args=(in_turn,))
        self.turning.start()

    def _turn(self, members):
        try:
            for member in members:
                at = self.set.kill(member, signal.SIGTERM)
                self.happened(member.name, at)
                self.set.heal()
        except BaseException as e:  # reported by heal
            self.failure = e

    def heal(self):
        self.turning.join()
        if self.failure:
            raise self.failure


# ---- commands ----

class FailPoint(SetFault):
    """One of the server's own fail points, at every member. It happened when the primary says that it entered it."""

    def __init__(self, stack, point, mode, data):
        super().__init__(stack)
        self.point, self.mode, self.data = point, mode, data
        self.running = []

    def start(self, chance):
        primary = self.set.find_primary()
        if not primary or any(thread.is_alive() for thread in self.running):
            raise NotNow
        self.ending = threading.Event()
        self.running = [threading.Thread(target=self._hold, args=(member, member is primary), daemon=True)
                        for member in self.set.members]
        for thread in self.running:
            thread.start()

    def _hold(self, member, is_primary):
        """On until healed; then off, also where nobody answered that it is on: a command may arrive after its caller gave up, or at
        the member's next process. Who sleeps just then is asked again, until it answers or is gone."""
        reply = self._configure(member, self.mode, data=self.data)
        if reply and is_primary:
            try:  # `count` is of all spells so far
                member.admin("waitForFailPoint", self.point, timesEntered=reply["count"] + 1, maxTimeMS=4000)
                self.happened(self.point)
            except pymongo.errors.PyMongoError:
                pass  # it was not entered, or the primary is gone
        self.ending.wait()
        wait_until(f"{self.point} to be off at {member.name}",
                   lambda: not member.alive or self._configure(member, "off"), OFF_S, 0.1)

    def _configure(self, member, mode, **more):
        try:
            return member.hello() and member.admin("configureFailPoint", self.point, mode=mode, **more)
        except pymongo.errors.PyMongoError:
            return None

    def heal(self):
        self.ending.set()
        for thread in self.running:
            thread.join(0.5)  # not longer: a member may sleep

    def end(self):
        for thread in self.running:
            thread.join(OFF_S + 10)


class ShutdownPlanted(FailPoint):
    """Clients hear that the primary shuts down, and it does not. A driver then sends it nothing until its next hello, which
    comes when the set changes, or after ten seconds. A new configuration is such a change."""

    def heal(self):
        super().heal()
        wait_until("a new configuration", self._reconfigure, OFF_S, 0.1)

    def _reconfigure(self):
        primary = self.set.find_primary()
        try:
            config = primary and primary.admin("replSetGetConfig")["config"]
            anew = config and {**config, "version": config["version"] + 1}
            return anew and primary.admin("replSetReconfig", anew, maxTimeMS=4000)
        except pymongo.errors.PyMongoError:
            return None


def fails(probability, commands, settings="", make=FailPoint, **what):
    """A row: these commands of the service fail so often."""
    data = {"failCommands": commands, "appName": OURS, **what}
    options = {"point": "failCommand", "mode": {"activationProbability": probability}, "data": data}
    return Row(make, options, (1, 3), frozenset(["failCommand"]), 1, settings)


def concern_fails(code, make=FailPoint):
    """A row: writes are done, and their reply says that nobody knows whether a majority has them."""
    return fails(0.3, WRITES, make=make, writeConcernError={"code": code, "errmsg": "planted"})


# ---- disk and clock ----

class SlowDisk(SetFault):
    """Every fsync of every member takes longer."""

    def __init__(self, stack, sync_ms):
        super().__init__(stack)
        self.sync_ms, self.pids = sync_ms, []

    def start(self, chance):
        sync_ms = chance.randint(*self.sync_ms)
        self.pids = [m.pid for m in self.set.members if m.alive]
        for pid in self.pids:
            self.set.interpose.set(pid, sync_us=1000 * sync_ms)
        try:
            wait_until("a slow fsync", lambda: any(map(self.set.interpose.count, self.pids)), 30)
        except AssertionError as e:  # nobody writes at present
            self.heal()
            raise NotNow from e
        self.happened(f"{sync_ms} ms")

    def heal(self):
        for pid in self.pids:
            self.set.interpose.clear(pid)


class ClockJumps(SetFault):
    """The primary's wall clock, from which the service takes its time, jumps by so many hours; and later back. Some waits of
    mongod go by that clock: a primary from which nobody can replicate any more is restarted, as its operator would."""

    def __init__(self, stack, hours):
        super().__init__(stack)
        self.hours, self.jumped, self.pid = hours, None, None

    def start(self, chance):
        primary = self.settled()
        hours, before = chance.choice(self.hours), primary.admin("hello")["localTime"]
        self.jumped, self.pid = primary, primary.pid
        self.set.interpose.set(self.pid, skew_ns=hours * HOUR_NS)
        moved = (primary.admin("hello")["localTime"] - before).total_seconds() / 3600
        assert abs(moved - hours) < 0.1, f"the clock of {primary.name} moved by {moved} h instead of {hours} h"
        self.happened(f"{hours:+} h")

    def heal(self):
        self.set.interpose.clear(self.pid)
        if self.jumped.alive and self.jumped.pid == self.pid and not self.set.replicates(REPLICATES_S):
            self.set.kill(self.jumped)
            self.set.heal()


SET = frozenset(["the replica set"])
DISK = frozenset(["mongod's table"])
LOST_REPLIES = {"point": "waitAfterCommandFinishesExecution", "mode": "alwaysOn",
                "data": {"ns": "coupons.ledger", "commands": ["insert"]}}

MEMBERS = {
    "kill the primary": Row(KillPrimary, lasts_s=(0.5, 3), holds=SET, nodes=3),
    "the primary steps down": Row(StepDown, lasts_s=(0.5, 2), holds=SET, nodes=3),
    "the primary is cut off": Row(LosePrimary, {"how": "cut_off"}, LOST_S, SET, 3),
    "the primary sleeps": Row(LosePrimary, {"how": "pause"}, LOST_S, SET, 3),
    "the majority sleeps": Row(SleepMajority, lasts_s=(0.5, 4), holds=SET, nodes=3),
    "members restart in turn": Row(RestartInTurn, lasts_s=TURNED_S, holds=SET, nodes=3),
}
COMMANDS = {
    "connections drop": fails(0.1, CALLED, closeConnection=True),
    "commands are refused": fails(0.2, CALLED, errorCode=NOT_PRIMARY),
    "write concerns fail": concern_fails(CONCERN_FAILED),
    "write concerns meet a shutdown": concern_fails(SHUTDOWN, ShutdownPlanted),
    "commands wait": fails(0.1, CALLED, blockConnection=True, blockTimeMS=400),
    "appends land late": fails(0.05, WRITES, SOCKET_TIMEOUT, blockConnection=True, blockTimeMS=2500),
    "replies are lost": Row(FailPoint, LOST_REPLIES, (2, 3.5), frozenset(["a fail point"]), 1, SOCKET_TIMEOUT),
}
SURROUNDINGS = {
    "the disk is slow": Row(SlowDisk, {"sync_ms": (20, 300)}, (1, 3), DISK, 1),
    "the primary's clock jumps": Row(ClockJumps, {"hours": (-1, 1)}, (2, 5), DISK | SET, 3),
}
ROWS = {**MEMBERS, **COMMANDS, **SURROUNDINGS}
