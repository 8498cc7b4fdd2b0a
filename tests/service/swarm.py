"""Many clients at once: asyncio over kept connections, through nginx or straight to workers, with repeats under the same key."""
import asyncio
import dataclasses
import itertools
import json
import random
import threading
import time

import fastcgi
from client import LATE_S, HttpDecoder, Reply, fields, http_request
from problems import TRY_AGAIN

PATIENCE_S = 120


@dataclasses.dataclass
class Call:
    """A request and, once it was answered, its reply. `via`: which of the swarm's ways (None: any); `when`: not before this
    time.monotonic(), for which its client waits."""
    method: str
    target: str
    body: object = None
    key: str = None
    headers: dict = None
    via: int = None
    when: float = 0.0
    reply: Reply = None
    tries: int = 0
    asked_at: float = 0.0
    answered_at: float = 0.0


def take(coupon, user, key, via=None, when=0.0, **members):
    return Call("POST", f"/coupons/{coupon}/redemptions", {"user": user, **members}, key, via=via, when=when)


def takers(coupon, users=None, user="u", key="k"):
    """A taking by each of so many users, or without end, each under a key of its own."""
    return (take(coupon, f"{user}-{i}", f"{key}-{i}") for i in (itertools.count() if users is None else range(users)))


def step(coupon, redemption, verb, key=None, via=None, when=0.0, **members):
    """reserve and redeem need a key, cancel and reverse have none."""
    return Call("POST", f"/coupons/{coupon}/redemptions/{redemption}/{verb}", members or None, key, via=via, when=when)


class HttpWay:
    """Through nginx; as who has the address `source`, one of 127.0.0.0/8."""

    def __init__(self, port, bearer, source="127.0.0.1"):
        self.port, self.bearer, self.source = port, bearer, source

    def encode(self, call):
        return http_request(call.method, call.target, *fields(self.bearer, call.body, call.key, call.headers))

    def decoder(self):
        return HttpDecoder()

    async def connect(self, protocol):
        return await asyncio.get_running_loop().create_connection(protocol, "127.0.0.1", self.port,
                                                                         local_addr=(self.source, 0))


class DirectWay:
    """Straight to one worker, for a caller with the address `source`."""

    def __init__(self, path, bearer, source="127.0.0.1"):
        self.path, self.bearer, self.source = str(path), bearer, source

    def encode(self, call):
        headers, body = fields(self.bearer, call.body, call.key, call.headers)
        return fastcgi.request(fastcgi.params_of(call.method, call.target, headers, body, address=self.source), body or b"")

    def decoder(self):
        decoder = fastcgi.Decoder()
        decoder.closing = False
        feed = decoder.feed
        decoder.feed = lambda data: [fastcgi.reply_of(text) for text in feed(data)]
        return decoder

    async def connect(self, protocol):
        return await asyncio.get_running_loop().create_unix_connection(protocol, self.path)


class Connection(asyncio.Protocol):
    """One kept connection with at most one request out."""

    def __init__(self, way):
        self.way, self.transport, self.waiting, self.decoding = way, None, None, None

    def connection_made(self, transport):
        self.transport, self.decoding = transport, self.way.decoder()

    def data_received(self, data):
        for reply in self.decoding.feed(data):
            waiting, self.waiting = self.waiting, None
            if waiting and not waiting.done():
                waiting.set_result(reply)

    def connection_lost(self, error):
        self.transport = None
        if self.waiting and not self.waiting.done():
            self.waiting.set_exception(error or ConnectionResetError("closed"))

    @property
    def usable(self):
        return self.transport is not None and not self.decoding.closing

    async def ask(self, call, patience_s=PATIENCE_S):
        if self.transport is None:
            await asyncio.wait_for(self.way.connect(lambda: self), PATIENCE_S)
        if self.transport is None:
            raise ConnectionResetError("closed as soon as it was open")
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(self.way.encode(call))
        return await asyncio.wait_for(self.waiting, patience_s)

    def close(self):
        if self.transport:
            self.transport.abort()


class Swarm(threading.Thread):
    """Answers calls with so many connections, spread over the ways, until the calls or the swarm end; or for as long as a `with` lasts.

    A call that meets a broken connection, `busy` or `outcome_unknown` is repeated as it was, under its key: that is what the
    contract tells a client to do; with repeat=False it is left unanswered, and ends its client. again: the codes that are
    repeated. `busy` after late_s, because the machine has other work, is repeated in any case, as client.py does. pause_s: how long a
    client rests after each answer.
    """

    def __init__(self, ways, calls, connections=64, repeat=True, pause_s=0, again=TRY_AGAIN, late_s=LATE_S):
        super().__init__(daemon=True)
        self.pause_s, self.again, self.late_s = pause_s, again, late_s
        self.ways, self.calls, self.connections, self.repeat = ways, iter(calls), connections, repeat
        self.done, self.unanswered, self.failure, self.ending = [], [], None, False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()

    def run(self):
        try:
            asyncio.run(self._run())
        except BaseException as e:  # reported to whoever joins
            self.failure = e

    async def _run(self):
        await asyncio.gather(*(self._work(i) for i in range(self.connections)))

    async def _work(self, i):
        own = {}
        ways = itertools.count(i)
        try:
            while not self.ending:
                call = next(self.calls, None)
                if call is None:
                    return
                via = i % len(self.ways) if call.via is None else call.via
                if call.when:
                    await asyncio.sleep(max(0.0, call.when - asyncio.get_running_loop().time()))
                await self._answer(call, own, via, ways)
                if not call.reply:
                    self.unanswered.append(call)
                    return
                self.done.append(call)
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)
        finally:
            for connection in own.values():
                connection.close()

    async def _answer(self, call, own, via, ways):
        loop = asyncio.get_running_loop()
        call.asked_at = loop.time()
        while True:
            call.tries += 1
            tried_at = loop.time()
            connection = own.get(via)
            if not connection or not connection.usable:
                connection = own[via] = Connection(self.ways[via])
            try:
                reply = Reply(f"{call.method} {call.target} {call.key} {call.body}", *await connection.ask(call))
            except (ConnectionError, FileNotFoundError) as e:
                reply = None
                if not self.repeat:
                    return
                if loop.time() - call.asked_at > PATIENCE_S:
                    raise AssertionError(f"{call}: {e!r}") from e
            again = self.again if self.repeat else ()
            late = ("busy",) if loop.time() - tried_at >= self.late_s else ()
            if reply and not (reply.status == 503 and reply.code() in (*again, *late)):
                call.answered_at = loop.time()
                call.reply = reply
                return
            assert loop.time() - call.asked_at < PATIENCE_S, f"no answer in {PATIENCE_S} s\n{reply}"
            if call.via is None:
                via = next(ways) % len(self.ways)  # as a client that is sent to another front
            await asyncio.sleep(0.02)

    def more(self, count):
        """Wait until so many more calls are answered, or all are."""
        target = len(self.done) + count
        while len(self.done) < target and self.is_alive():
            time.sleep(0.001)
        if self.failure:
            raise self.failure

    def sees(self, wanted):
        """A condition for wait_until: one of the calls that are answered from now on is as wanted. Each is looked at once."""
        at = len(self.done)

        def seen():
            nonlocal at
            new = self.done[at:]
            at += len(new)
            return any(map(wanted, new))

        return seen

    def end(self):
        """No further calls; what is out is answered."""
        self.ending = True
        return self.result()

    def result(self):
        self.join(500)
        assert not self.is_alive(), "the swarm does not come to its end"
        if self.failure:
            raise self.failure
        return self.done


def swarm(ways, calls, connections=64, repeat=True, pause_s=0):
    """All calls, answered."""
    crowd = Swarm(ways, calls, connections, repeat, pause_s)
    crowd.start()
    return crowd.result()


def kill_under_load(stack, crowd, times, count):
    """Kill the workers in turn so often, each time count() answers later; the successor is awaited."""
    for number in range(times):
        crowd.more(count())
        assert crowd.is_alive(), f"the load ended after {number} kills: {len(crowd.done)} calls"
        stack.kill(f"worker-{number % stack.workers}")


def takings_and_returns(ways, coupon, count, connections):
    """So many calls by twenty users, who give back what they got; all, answered."""
    chance, crowd = random.Random(7), None

    def calls():
        ids, read = [], 0
        for i in range(count):
            new = crowd.done[read:]
            read += len(new)
            ids += [json.loads(call.reply.body)["id"] for call in new if call.reply.status == 201]
            rid = ids.pop(chance.randrange(len(ids))) if ids and chance.random() < 0.5 else None
            yield step(coupon, rid, "reverse") if rid else take(coupon, f"u-{chance.randrange(20)}", f"k-{i}")

    crowd = Swarm(ways, calls(), connections)
    crowd.start()
    done = crowd.result()
    assert set(by_code(done)) <= {"201", "200", "sold_out", "too_many_attempts"}, by_code(done)
    return done


def lower_cap(ops, coupon, crowd, ahead, busy_most=0):
    """Lower the total while the crowd takes: to so many ahead of the takings seen, at first too few, so that the cap races them,
    then ever more. Returns the total. Where slots move between lanes for a request's whole time, so many may get `busy`."""
    while True:
        lowered = len(crowd.done) + ahead
        reply = ops.patch(f"/coupons/{coupon}", {"cap": {"total": lowered}}, may_fail=busy_most > 0)
        if reply.status == 200:
            return lowered
        if reply.status == 503:
            reply.problem("busy")
            busy_most -= 1
        else:
            reply.problem("cap_below_taken")
        ahead *= 2


def by_code(calls):
    """How many replies there were of each kind: {"201": 5, "sold_out": 3}; replays as "201 replayed"."""
    counts = {}
    for call in calls:
        kind = call.reply.code() or str(call.reply.status)
        if call.reply.header("Idempotent-Replayed"):
            kind += " replayed"
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def taken(calls):
    """The bodies of the calls that got something."""
    return [json.loads(call.reply.body) for call in calls if call.reply.status in (200, 201)]
