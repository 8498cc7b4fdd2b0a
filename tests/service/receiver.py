"""Somebody who receives webhooks, and verifies them by the specification alone: Standard Webhooks 1.0."""
import base64
import collections
import contextlib
import hashlib
import hmac
import http.server
import json
import socket
import sys
import threading
import time

import contract

Event = collections.namedtuple("Event", "id type data timestamp signatures headers body at size path")


def signature(secret, event_id, timestamp, body):
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    content = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A sender that was killed closes its connection: nothing to tell. What an assertion says, it says."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Receiver:
    """Listens at a port of 127.0.0.1. `answer(event)` says what it answers: a status, or (status, headers, body); it may
    sleep. What it accepted (2xx) is in `events`, everything in `attempts`."""

    def __init__(self, answer=lambda event: 200, port=0):
        self.answer, self.events, self.attempts = answer, [], []
        self.lock, self.connections = threading.Lock(), set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                receiver.connections.add(self.connection)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.took(self, body)

            def do_GET(self):
                receiver.attempts.append(("GET", self.path))
                self.send_error(405)

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def took(self, handler, body):
        event = self.read(handler, body)
        with self.lock:
            self.attempts.append(event)
        answer = self.answer(event)
        status, headers, reply = answer if isinstance(answer, tuple) else (answer, {}, b"")
        if 200 <= status < 300:
            with self.lock:
                self.events.append(event)
        try:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(reply)))
            handler.end_headers()
            handler.wfile.write(reply)
        except OSError:
            pass  # it did not wait for us

    @staticmethod
    def read(handler, body):
        document = json.loads(body)
        assert set(document) == {"type", "timestamp", "data"}, document
        headers = {name.lower(): value for name, value in handler.headers.items()}
        assert headers["content-type"] == "application/json", headers
        contract.contract().check_event(document["type"], body)
        return Event(headers["webhook-id"], document["type"], document["data"], int(headers["webhook-timestamp"]),
                     headers["webhook-signature"].split(" "), headers, body, time.time(), len(body), handler.path)

    def of(self, *types, coupon=None):
        """What was accepted of these types, each once: a receiver drops repeats by the id."""
        seen, events = set(), []
        with self.lock:
            accepted = list(self.events)
        for event in accepted:
            if event.id not in seen and (not types or event.type in types) and coupon in (None, event.data["coupon"]):
                events.append(event)
            seen.add(event.id)
        return events

    def entries(self, coupon):
        return [entry for event in self.of("redemption.batch", coupon=coupon) for entry in event.data["entries"]]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):  # those that are kept
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def is_signed(event, *secrets):
    """By each of the secrets, in this order, and no others."""
    return event.signatures == [signature(s, event.id, event.timestamp, event.body) for s in secrets]


def assert_signed(event, *secrets):
    assert is_signed(event, *secrets), event
    assert abs(event.timestamp - event.at) < 60, event
