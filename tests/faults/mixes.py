"""The table of all faults, and the mixes of them that run by name."""
import dataclasses

import clients
import clocks
import database
import pair
import processes
import resources
from effort import effort
from fault import PAUSE_S, TOGETHER

FAULTS = {**processes.ROWS, **processes.CRASHES, **database.ROWS, **clocks.ROWS, **clients.ROWS, **resources.ROWS,
          **pair.ROWS}
CALM_DOWN_S = 2  # of load, when the last one is healed
SLOW = {"coupond is replaced", "kill coupond"}  # take many seconds


@dataclasses.dataclass(frozen=True)
class Mix:
    """faults: names of FAULTS; short: seconds of it without --long, 0 if it is in the long run alone; however few they are, each fault
    comes; together: so many at a time; pause_s: between their starts; workers: of coupond; fronts: one, or two; slack_ms: how far
    its clock may be from ours."""
    faults: tuple
    short: int
    long: int
    together: int = TOGETHER
    pause_s: tuple = PAUSE_S
    workers: int = 2
    fronts: int = 1
    slack_ms: int = 100


PROCESSES, COMMANDS = tuple(processes.ROWS), (*database.COMMANDS, "the disk is slow")
QUICK = tuple(name for name in PROCESSES if name not in SLOW)
EVERYDAY = (*QUICK, *database.MEMBERS, *COMMANDS, *clients.ROWS, *resources.ROWS)

MIXES = {
    "everyday": Mix(EVERYDAY, short=effort(15, 100), long=600),
    "processes": Mix(PROCESSES, short=0, long=300),
    "crash points": Mix((*processes.CRASHES, "kill the reporter", "kill a worker of nginx"), short=0, long=300),
    "workers": Mix(("kill a worker", "kill all workers"), short=0, long=400, pause_s=(0.02, 0.5), workers=4),
    "members": Mix(tuple(database.MEMBERS), short=0, long=300),
    "primaries": Mix(("kill the primary",), short=0, long=600, together=1, pause_s=(0.5, 2)),
    "commands": Mix(COMMANDS, short=0, long=300),
    "clients": Mix((*clients.ROWS, *resources.ROWS), short=0, long=300),
    "clocks": Mix((*clocks.ROWS, "the primary's clock jumps"), short=0, long=300, slack_ms=clocks.SLACK_MS),
    "fail-overs": Mix(("kill the primary", "kill a worker"), short=0, long=600),
    "fronts": Mix(tuple(pair.ROWS), short=0, long=300, fronts=2),
}
