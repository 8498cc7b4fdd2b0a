"""FastCGI as nginx speaks it to a worker: records out, records in. https://fastcgi-archives.github.io/FastCGI_Specification.html"""
import struct


BEGIN_REQUEST, ABORT_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT, STDERR = range(1, 8)
RESPONDER, KEEP_CONN = 1, 1
CONTENT_MAX = 65535


def record(kind, content, request=1):
    """One record; content of any length becomes as many as it needs, and b'' an empty one, which ends a stream."""
    out = []
    for at in range(0, max(len(content), 1), CONTENT_MAX):
        part = content[at:at + CONTENT_MAX]
        padding = -len(part) % 8
        out.append(struct.pack(">BBHHBx", 1, kind, request, len(part), padding) + part + b"\0" * padding)
    return b"".join(out)


def length(n):
    return bytes([n]) if n < 128 else struct.pack(">I", n | 1 << 31)


def pairs(params):
    return b"".join(length(len(k)) + length(len(v)) + k + v for k, v in params)


def begin(keep=True, request=1):
    return record(BEGIN_REQUEST, struct.pack(">HB5x", RESPONDER, KEEP_CONN if keep else 0), request)


def request(params, body=b"", keep=True):
    """A whole request. params: (name, value) pairs of bytes."""
    stdin = record(STDIN, body) if body else b""
    return begin(keep) + record(PARAMS, pairs(params)) + record(PARAMS, b"") + stdin + record(STDIN, b"")


def params_of(method, target, headers, body, request_id="test", address="127.0.0.1"):
    """What nginx makes of an HTTP request."""
    method, target = encoded(method), encoded(target)
    out = [(b"REQUEST_METHOD", method), (b"REQUEST_URI", target), (b"REMOTE_ADDR", encoded(address)),
           (b"REQUEST_ID", encoded(request_id)), (b"CONTENT_LENGTH", b"%d" % len(body) if body is not None else b"")]
    for name, value in headers:
        name = encoded(name).upper().replace(b"-", b"_")
        out.append((name if name == b"CONTENT_TYPE" else b"HTTP_" + name, encoded(value)))
    return out


def encoded(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


class Decoder:
    """Feed it bytes; it returns what each ended request wrote to STDOUT."""

    def __init__(self):
        self.buffer, self.out = b"", b""
        self.ended = 0

    def feed(self, data):
        self.buffer += data
        done = []
        while len(self.buffer) >= 8:
            _, kind, _, size, padding = struct.unpack(">BBHHBx", self.buffer[:8])
            if len(self.buffer) < 8 + size + padding:
                break
            content = self.buffer[8:8 + size]
            self.buffer = self.buffer[8 + size + padding:]
            if kind == STDOUT:
                self.out += content
            elif kind == END_REQUEST:
                done.append(self.out)
                self.out = b""
                self.ended += 1
        return done


def reply_of(text):
    """(status, headers, body) of a CGI reply."""
    head, found, body = text.partition(b"\r\n\r\n")
    assert found, f"a worker's reply has no header: {text[:500]!r}"
    headers = [tuple(part.strip() for part in line.decode("latin-1").split(":", 1)) for line in head.split(b"\r\n")]
    status = next((int(v.split()[0]) for n, v in headers if n.lower() == "status"), 200)
    return status, [(n, v) for n, v in headers if n.lower() != "status"], body
