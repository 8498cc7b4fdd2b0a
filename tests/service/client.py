"""Clients that send exactly what they are given, through nginx or straight to a worker, and replies that know the contract."""
import csv
import gzip
import io
import itertools
import json
import re
import socket
import time

import contract
import fastcgi
from problems import PROBLEMS

TIMEOUT_S = 120
LATE_S, LATE_TRIES = 4, 4  # how long a request waits that met its deadline, and how often it is sent then
SHORT_S = 0.2  # between the tries of an impatient copy, which end after TIMEOUT_S
keys = itertools.count(1)
public_keys = set()  # those of the role public


def strict_json(text):
    """JSON as RFC 8259 has it: UTF-8, no NaN, no member twice."""
    def once(members):
        names = [name for name, _ in members]
        assert len(names) == len(set(names)), f"a member stands twice in {text[:500]!r}"
        return dict(members)

    def never(word):
        raise AssertionError(f"{word} is no JSON: {text[:500]!r}")

    return json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=never)


class Reply:
    """One reply, with the request that it answers, so that a failure shows both."""

    def __init__(self, asked, status, headers, body):
        self.asked, self.status, self.headers, self.body = asked, status, headers, body

    def header(self, name):
        """The field's value, None without; a field that must be single and is not fails."""
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        if name.lower() == "vary" and values:  # a list: nginx has a line of its own
            return ", ".join(values)
        assert len(values) <= 1, f"{name} came {len(values)} times\n{self}"
        return values[0] if values else None

    def json(self):
        return strict_json(gzip.decompress(self.body) if self.header("Content-Encoding") == "gzip" else self.body)

    def rows(self):
        """Of CSV, by its heading."""
        return list(csv.DictReader(io.StringIO(self.body.decode(), newline=""), strict=True))

    def lines(self):
        """Of NDJSON."""
        return [strict_json(line) for line in self.body.splitlines()]

    def code(self):
        """The problem's code, or None."""
        return self.json().get("code") if (self.header("Content-Type") or "").startswith("application/problem+json") else None

    def __str__(self):
        head = "".join(f"{n}: {v}\n" for n, v in self.headers)
        return f"asked: {self.asked}\ngot: {self.status}\n{head}\n{self.body[:2000].decode('utf-8', 'replace')}"

    def expect(self, status):
        assert self.status == status, f"expected {status}\n{self}"
        assert self.header("X-Request-Id"), f"no X-Request-Id\n{self}"
        return self

    def ok(self, status=200):
        """The body of a reply that must have this status."""
        return self.expect(status).json()

    def problem(self, code, at=None):
        """A whole problem document with this code; `at`: it must point there. Returns it."""
        status, retry = PROBLEMS[code]
        assert self.status == status, f"expected {status} {code}\n{self}"
        assert self.header("Content-Type") == "application/problem+json", f"no problem document\n{self}"
        p = self.json()
        assert p.get("code") == code, f"expected {code}\n{self}"
        assert p["type"] == f"/coupons/-/problems/{code}" and p["status"] == status, f"type or status\n{self}"
        assert isinstance(p["title"], str) and p["title"] and isinstance(p["detail"], str), f"title or detail\n{self}"
        assert p["retry"] is retry or retry is None and isinstance(p["retry"], bool), f"retry\n{self}"
        assert p["request_id"] == self.header("X-Request-Id"), f"request_id\n{self}"
        if status in (429, 503):
            assert int(self.header("Retry-After")) >= 0, f"Retry-After\n{self}"
        if status == 401:
            assert re.match(r"Bearer\b", self.header("WWW-Authenticate") or ""), f"WWW-Authenticate\n{self}"
        if status == 405:
            assert self.header("Allow"), f"Allow\n{self}"
        if at is not None:
            assert at in [e["pointer"] for e in p["errors"]], f"expected an error at {at!r}\n{self}"
        for error in p.get("errors", []):
            assert set(error) == {"pointer", "detail"} and error["detail"], f"errors\n{self}"
        return p


def fields(key, body, idempotency_key, headers):
    """Header fields and the body's bytes."""
    out = dict(headers or {})
    if key is not None:
        out.setdefault("Authorization", f"Bearer {key}")
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        out.setdefault("Content-Type", "application/json")
    if idempotency_key is not None:
        out["Idempotency-Key"] = idempotency_key
    return [(n, v) for n, v in out.items() if v is not None], body


class Caller:
    """The verbs, over one kept connection of any kind, as connect() makes it: _exchange(method, target, headers, body) -> status, header
    fields, body, and whether the other end closes. A 5xx is a failure of its own; but a request that waited for long, because the machine
    has other work, is repeated if that is safe: it got `busy`, reads, or does the same if it is done twice. impatient: the copy's
    deadlines are so short that a slow machine meets them at once."""

    key = socket = None
    path, impatient = "", False

    def request(self, method, target, body=None, idempotency_key=None, headers=None, may_fail=False):
        sent, data = fields(self.key, body, idempotency_key, headers)
        for _ in range(int(TIMEOUT_S / SHORT_S) if self.impatient else LATE_TRIES):
            began = time.monotonic()
            reply = self._send(method, target, sent, data)
            contract.contract().check(method, target, data, reply, public=self.key in public_keys)
            same = method == "GET" or idempotency_key or ("If-Match", "*") in sent or target.startswith("/coupons/-/users/")
            safe = reply.status == 503 and (same or reply.code() == "busy")
            if may_fail or not safe or time.monotonic() - began < LATE_S and not self.impatient:
                break
            print(f"{reply.code()} after {time.monotonic() - began:.1f} s: {method} {target}")
            time.sleep(SHORT_S if self.impatient else 0)
        assert reply.status < 500 or may_fail, f"a 5xx\n{reply}"
        return reply

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def _send(self, method, target, headers, body):
        asked = f"{self.path} {method} {target} {headers} {(body or b'')[:1000]!r}".lstrip()
        for kept in (self.socket is not None, False):
            self.socket = self.socket or self.connect()
            try:
                *reply, closing = self._exchange(method, target, headers, body)
            except ConnectionError as e:
                self.close()
                if kept:  # it was closed while it was idle
                    continue
                raise AssertionError(f"asked: {asked}\ngot: {e}") from e
            if closing:
                self.close()
            return Reply(asked, *reply)

    def get(self, target, **how):
        return self.request("GET", target, **how)

    def post(self, target, body=None, **how):
        return self.request("POST", target, body, **how)

    def patch(self, target, body, match="*", **how):
        headers = dict(how.pop("headers", {}))
        if match is not None:
            headers["If-Match"] = match
        return self.request("PATCH", target, body, headers=headers, **how)

    def delete(self, target, **how):
        return self.request("DELETE", target, **how)

    def take(self, coupon, user, key=None, **members):
        """Take a slot; without key, under one that was never used before."""
        return self.post(f"/coupons/{coupon}/redemptions", {"user": user, **members}, idempotency_key=key or f"key-{next(keys)}")

    def take_each(self, coupon, users, **members):
        """Each of these users takes one, one after the other."""
        return [self.take(coupon, user, **members).ok(201) for user in users]

    def step(self, redemption, verb, key=None, **members):
        """One of the verbs on what was answered to a taking or a step; reserve and redeem under a key, a new one unless given."""
        at = f"/coupons/{redemption['coupon']}/redemptions/{redemption['id']}/{verb}"
        key = (key or f"step-{next(keys)}") if verb in ("reserve", "redeem") else None
        return self.post(at, members or None, idempotency_key=key)


def http_request(method, target, headers, body):
    head = [fastcgi.encoded(method) + b" " + fastcgi.encoded(target) + b" HTTP/1.1", b"Host: coupons.test"]
    head += [fastcgi.encoded(n) + b": " + fastcgi.encoded(v) for n, v in headers]
    if body is not None and "content-length" not in [n.lower() for n, _ in headers]:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + (body or b"")


class HttpDecoder:
    """Feed it bytes; it returns (status, headers, body) of each complete reply. heads: replies that have no body."""

    def __init__(self, head_only=False):
        self.buffer, self.head_only = b"", head_only
        self.closing = False

    def feed(self, data):
        self.buffer += data
        done = []
        while (one := self._one()) is not None:
            done.append(one)
        return done

    def _one(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = self.buffer[:end].decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        headers = [(n, v.strip()) for n, v in (line.split(":", 1) for line in lines[1:])]
        lower = {n.lower(): v for n, v in headers}
        rest = self.buffer[end + 4:]
        if self.head_only or status in (204, 304):
            body, rest = b"", rest
        elif lower.get("transfer-encoding") == "chunked":
            unchunked = self._unchunk(rest)
            if unchunked is None:
                return None
            body, rest = unchunked
        else:
            size = int(lower.get("content-length", 0))
            if len(rest) < size:
                return None
            body, rest = rest[:size], rest[size:]
        self.buffer = rest
        self.closing = lower.get("connection", "").lower() == "close"
        return status, headers, body

    @staticmethod
    def _unchunk(rest):
        body = []
        while True:
            line, found, after = rest.partition(b"\r\n")
            if not found:
                return None
            size = int(line, 16)
            if len(after) < size + 2:
                return None
            body.append(after[:size])
            rest = after[size + 2:]
            if size == 0:
                return b"".join(body), rest


class Http(Caller):
    """Through nginx, over one kept connection; as who has the address `source`, one of 127.0.0.0/8."""

    def __init__(self, port, key=None, source="127.0.0.1"):
        self.port, self.key, self.source = port, key, source

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S, (self.source, 0))

    def _exchange(self, method, target, headers, body):
        decoder = HttpDecoder(method == "HEAD")
        self.socket.sendall(http_request(method, target, headers, body))
        while True:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError(f"closed after {decoder.buffer!r}")
            for reply in decoder.feed(more):
                assert not decoder.buffer, f"bytes after the reply: {decoder.buffer[:500]!r}"
                return *reply, decoder.closing

    def raw(self, data, replies=1, shut=False, head_only=False):
        """Send these bytes over a connection of their own; the replies that come, until there are so many or it closes."""
        decoder, seen = HttpDecoder(head_only), []
        with self.connect() as s:
            try:
                s.sendall(data)
                if shut:
                    s.shutdown(socket.SHUT_WR)
                while len(seen) < replies:
                    more = s.recv(1 << 20)
                    if not more:
                        break
                    seen += [Reply(repr(data[:500]), *one) for one in decoder.feed(more)]
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has enough
        return seen


class HttpOverSocket(Http):
    """Through nginx, by a socket in the file system."""

    def __init__(self, path, key=None):
        super().__init__(None, key)
        self.path = str(path)

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(TIMEOUT_S)
        s.connect(self.path)
        return s


class Direct(Caller):
    """Straight to a worker's socket, as nginx would, so that its choice of a worker is ours; as who has the address. `more`: FastCGI
    parameters that are no header fields."""

    def __init__(self, path, key=None, address="127.0.0.1", patience_s=TIMEOUT_S, more=()):
        self.path, self.key, self.address, self.patience_s, self.more = str(path), key, address, patience_s, [*more]

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(self.patience_s)
        s.connect(self.path)
        return s

    def _exchange(self, method, target, headers, body):
        decoder = fastcgi.Decoder()
        params = fastcgi.params_of(method, target, headers, body, address=self.address) + self.more
        self.socket.sendall(fastcgi.request(params, body or b""))
        while True:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("closed")
            for text in decoder.feed(more):
                return *fastcgi.reply_of(text), False
