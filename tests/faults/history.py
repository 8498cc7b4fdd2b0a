"""What happened in a run, one JSON object a line: every request, every answer, every fault, and the state at the end.

Times `t` are time.monotonic() in seconds; `begin` tells what the wall clock was. A line's member `e` says what it is:

    begin  {t, wall_ms, slack_ms, secret, seed, ...}    slack_ms: how far the service's clock may be from ours; secret: what
                                                        Idempotency-Keys are hashed under
    ask    {i, t, op, do, c, user, key, rid, body,      request i, an attempt at call op: take, reserve, redeem, cancel,
            part}                                       reverse (a POST), counts, user (a GET), patch, or erase, which
                                                        is of no coupon. part: an item of a batch that is not its first
    said   {i, t, out, status, code, replayed, body}    its outcome: ok, refused (nothing was done for it), unknown
    fault  {t, name, note, heals}                       it happened, and was healed at `heals`
    end    {coupons: {id: {...}}, names, verify}        all is healed, every call resolved. Of a coupon: ledgers and
                                                        events, of each lane; counts, users, report; how many slots were
                                                        asked for; where codes come in lists: these, the rows of GET
                                                        /codes, the jobs. names: {erased user: places where they stand}

Files may be read by check.py again at any time.
"""
import dataclasses
import json
import time


ASKED = ("i", "op", "do", "c", "user", "key", "rid", "body", "part", "t")


@dataclasses.dataclass
class Attempt:
    """One request. `told_at` None: it was never answered, and nobody waited any longer."""
    i: int
    op: int
    do: str
    coupon: str
    user: str
    key: str
    rid: str
    body: dict
    part: bool
    asked_at: float
    told_at: float = None
    out: str = "unknown"
    status: int = None
    code: str = None
    replayed: bool = False
    reply: dict = None


class Recorder:
    """Writes a history; used by one thread at a time."""

    def __init__(self, path, **about):
        self.file = open(path, "w")
        self.asked = 0
        self.out = set()  # requests that are not answered; may be looked at by any thread
        self._write("begin", t=time.monotonic(), wall_ms=time.time() * 1000, **about)

    def _write(self, event, **members):
        self.file.write(json.dumps({"e": event, **members}, separators=(",", ":")) + "\n")

    def ask(self, op, do, coupon, user=None, key=None, rid=None, body=None, part=False):
        self.asked += 1
        self._write("ask", i=self.asked, t=time.monotonic(), op=op, do=do, c=coupon, user=user, key=key, rid=rid,
                    body=body, part=part)
        if not part:
            self.out.add(self.asked)
        return self.asked

    def said(self, i, out, status=None, code=None, replayed=False, body=None):
        self.out.discard(i)
        self._write("said", i=i, t=time.monotonic(), out=out, status=status, code=code, replayed=replayed, body=body)

    def fault(self, t, name, note, heals):
        self._write("fault", t=t, name=name, note=note, heals=heals)

    def end(self, **state):
        self._write("end", **state)
        self.file.close()


class History:
    """A history, read: `attempts` in the order in which they were asked, `faults`, `begin`, `end`."""

    def __init__(self, lines):
        self.begin, self.end, self.faults, by_number = {}, {}, [], {}
        for line in lines:
            event = json.loads(line) if isinstance(line, str) else dict(line)
            kind = event.pop("e")
            if kind == "ask":
                one = Attempt(*(event[name] for name in ASKED))
                by_number[one.i] = one
            elif kind == "said":
                one = by_number[event["i"]]
                one.told_at, one.out, one.status, one.code = event["t"], event["out"], event["status"], event["code"]
                one.replayed, one.reply = event["replayed"], event["body"]
            elif kind == "fault":
                self.faults.append(event)
            else:
                setattr(self, kind, event)
        self.attempts = list(by_number.values())

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls(file)

    def wall_ms(self, t):
        """UTC in milliseconds at this time."""
        return self.begin["wall_ms"] + (t - self.begin["t"]) * 1000
