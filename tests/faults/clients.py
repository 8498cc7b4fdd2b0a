"""Clients that nobody wants: slow ones, ones that go away in the middle, floods of what is refused."""
import itertools
import random
import socket
import struct
import threading
import time

import pymongo
import pymongo.errors

from client import fields, http_request
from fault import Fault, Row
from stack import wait_until

SLOW = 150  # connections
TAKINGS = 100_000
MANY = 500  # refusals
COUNT_S = 180
NOTHING = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset


class Crowd(Fault):
    """Threads that call act() again and again until healed. What becomes of their connections is no failure."""

    threads = 1

    def start(self, chance):
        self.prepare()
        self.ending, self.failures, self.shown = threading.Event(), [], False
        chances = [random.Random(chance.random()) for _ in range(self.threads)]
        self.running = [threading.Thread(target=self._run, args=(chance,), daemon=True) for chance in chances]
        for thread in self.running:
            thread.start()

    def prepare(self):
        """Before the threads begin."""

    def show(self, note):
        """It happened, once in each spell."""
        if not self.shown:
            self.shown = True
            self.happened(note)

    def _run(self, chance):
        try:
            while not self.ending.is_set():
                try:
                    self.act(chance)
                except OSError:  # the service closes such connections, or is just not there
                    self.ending.wait(0.05)
        except BaseException as e:  # reported by heal
            self.failures.append(e)

    def act(self, chance):
        raise NotImplementedError

    def heal(self):
        self.ending.set()
        for thread in self.running:
            thread.join(300)
        if self.failures:
            raise self.failures[0]

    def connect(self, receive_bytes=None):
        s = socket.socket()
        s.settimeout(5)
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.connect(("127.0.0.1", self.stack.port))
        return s

    def taking(self, coupon, user):
        headers, body = fields(self.stack.key("storefront"), {"user": user}, f"key-of-{user}", {})
        return http_request("POST", f"/coupons/{coupon}/redemptions", headers, body)


class Slow(Crowd):
    """Many connections at a time: a byte of a header or of a body now and then, or a long answer that nobody reads.
    It happened when, after a while, most of them still stand."""

    def act(self, chance):
        sockets = []
        try:
            for i in range(SLOW):
                sockets.append(self.connect(4096))
                sockets[-1].sendall(self.first(i))
            while not self.ending.wait(0.05):
                chance.choice(sockets).sendall(b"x")
        finally:
            standing = sum(map(self.stands, sockets))
            if standing > SLOW // 2:
                self.show(f"{standing} of {SLOW} connections")
            for s in sockets:
                s.close()

    @staticmethod
    def first(i):
        if i % 3 == 0:
            return b"POST /coupons/slow/redemptions HTTP/1.1\r\nHost: slow\r\nX-Slow: "
        if i % 3 == 1:
            return b"POST /coupons/slow/redemptions HTTP/1.1\r\nHost: slow\r\nContent-Length: 60000\r\n\r\n"
        return b"GET /coupons/-/openapi.json HTTP/1.1\r\nHost: slow\r\n\r\n" * 4

    @staticmethod
    def stands(s):
        """The other side has not closed it."""
        s.setblocking(False)
        try:
            return bool(s.recv(1))
        except BlockingIOError:
            return True
        except OSError:
            return False


class Cut(Crowd):
    """They go away in the middle of a header, of a body, or before the answer comes: then their taking counts, for a
    coupon of their own."""

    threads = 2

    def __init__(self, stack):
        super().__init__(stack)
        self.coupon, self.users, self.whole = stack.coupon(slots=TAKINGS), itertools.count(), []

    def act(self, chance):
        request = self.taking(self.coupon, f"cut-{next(self.users)}")
        head = request.index(b"\r\n\r\n")
        end = chance.choice([chance.randrange(1, head), chance.randrange(head + 4, len(request)), len(request)])
        with self.connect() as s:
            if chance.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOTHING)
            if end == len(request):
                self.whole.append(request)
            s.sendall(request[:end])
            self.ending.wait(chance.random() * 0.01)
        self.show(f"{end} of {len(request)} bytes")

    def end(self):
        takers = wait_until("the database to count them", self.takers, COUNT_S)
        assert takers["n"] <= len(self.whole), f"{takers} users took something, {len(self.whole)} had asked to the end"

    def takers(self):
        """None: the database is away at present."""
        try:
            with pymongo.timeout(30):
                return {"n": len(self.stack.database.ledger.distinct("who.u", {"_id.c": self.coupon}))}
        except pymongo.errors.PyMongoError:
            return None


class Flood(Crowd):
    """As many requests as two threads can send, all of one kind that is refused: an unknown key, no key, an unknown
    coupon, no JSON."""

    threads = 2

    def prepare(self):
        self.refused = 0

    def kinds(self):
        key = self.stack.key("storefront")
        target, body = "/coupons/flood/redemptions", b'{"user": '
        return {
            "an unknown key": http_request("POST", target, *fields("nobody", {"user": "u"}, "k", {})),
            "no key": http_request("POST", target, *fields(None, {"user": "u"}, "k", {})),
            "an unknown coupon": http_request("POST", target, *fields(key, {"user": "u"}, "k", {})),
            "no JSON": http_request("POST", target, *fields(key, body, "k", {})),
        }

    def act(self, chance):
        kind, request = chance.choice(list(self.kinds().items()))
        until, at_once = time.monotonic() + 1, chance.choice([1, 32])
        with self.connect() as s:
            while not self.ending.is_set() and time.monotonic() < until:
                s.sendall(request * at_once)
                self.count(s, at_once)
        if self.refused >= MANY:
            self.show(f"{self.refused} refused, at last: {kind}")

    def count(self, s, wanted):
        """The answers, all of them refusals. Where the database is away they come slowly."""
        seen = b""
        while (answers := seen.count(b"HTTP/1.1 ")) < wanted or not seen.endswith(b"}"):
            if self.ending.is_set():
                return
            data = s.recv(1 << 20)
            if not data:
                raise ConnectionError("closed")
            seen += data
        assert seen.count(b"HTTP/1.1 4") + seen.count(b"HTTP/1.1 503") == answers, f"accepted: {seen[:2000]!r}"
        self.refused += answers


ROWS = {
    "slow clients": Row(Slow, lasts_s=(2, 5)),
    "clients go away": Row(Cut, lasts_s=(1, 4)),
    "clients flood": Row(Flood, lasts_s=(1, 3)),
}
