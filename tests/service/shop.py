"""The programs on the page for shops, and a way to the service on which the first two answers to every call get lost."""
import collections
import contextlib
import html
import http.client
import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import time

PAGE = pathlib.Path(__file__).parents[2] / "app" / "static" / "docs" / "checkout.html"
# The page's patience, ten times as long: the machine may have much other work.
PATIENCE = {
    "sh": {"--max-time 10 ": "--max-time 100 ", "--retry-max-time 60 ": "--retry-max-time 600 "},
    "py": {"timeout=10,": "timeout=100,", "patience_s=30": "patience_s=300"},
    "php": {"CURLOPT_TIMEOUT => 10,": "CURLOPT_TIMEOUT => 100,", "patience_s = 30": "patience_s = 300"},
    "ts": {"timeout(10_000)": "timeout(100_000)", "patienceMs = 30_000": "patienceMs = 300_000"},
}
CODES = ["FLYER-1", "FLYER-2", "FLYER-3"]
HOLD_S = 3  # of the coupon with codes
# What a program prints: how each order ended, and what its customer was charged.
ENDS = {
    "found": [True, 500],
    "unknown_code": [None, 0],
    "paid": ["redeemed", 3700],
    "unpaid": ["cancelled", 0],
    "unpaid_again": ["cancelled", 0],
    "then_paid": ["redeemed", 3700],
    "paid_again": ["redeemed", 0],
    "refused": ["order_not_eligible", 500],
    "late": ["redeemed", 3700],
    "lapsed": ["expired", 0],
    "after_lapse": ["redeemed", 3700],
    "several": ["redeemed redeemed", 3200],
    "several_again": ["redeemed redeemed", 0],
    "several_unpaid": ["cancelled cancelled", 0],
    "several_refused": ["code_not_found", 0],
}


def program(language):
    """All that the page says in this language, from top to bottom."""
    pieces = re.findall(rf'<pre tabindex="0" data-language="{language}">(.*?)</pre>', PAGE.read_text(), re.S)
    text = "<?php\n" * (language == "php") + "\n\n".join(html.unescape(piece) for piece in pieces) + "\n"
    for short, long in PATIENCE[language].items():
        assert short in text
        text = text.replace(short, long)
    return text


@contextlib.contextmanager
def losing(port, spared=None):
    """Yield the port of a server before that one: of each POST, the first answer becomes outcome_unknown, and the second is none.

    Nobody asks again before Retry-After. spared: a coupon of which holds are answered at once.
    """
    seen, said, early = collections.Counter(), {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def ask(self, body=None):
            behind = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
            behind.request(self.command, self.path, body, {name: self.headers[name] for name in
                                                           ("Authorization", "Content-Type", "Idempotency-Key") if name in self.headers})
            answer = behind.getresponse()
            status, content, headers = answer.status, answer.read(), {"Content-Type": answer.headers["Content-Type"]}
            behind.close()
            return status, content, headers

        def do_GET(self):
            self.answer(*self.ask())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == f"/coupons/{spared}/redemptions" and json.loads(body)["state"] == "reserved":
                self.answer(*self.ask(body))
                return
            call = self.path, self.headers["Idempotency-Key"]
            seen[call] += 1
            if seen[call] == 2 and time.monotonic() - said[call] < 0.95:  # timers may end a little early
                early.append(call)
            status, content, headers = self.ask(body)
            if seen[call] == 2:
                self.close_connection = True
                return
            if seen[call] == 1:
                status, content = 503, json.dumps({"code": "outcome_unknown"}).encode()
                headers = {"Content-Type": "application/problem+json", "Retry-After": "1"}
                said[call] = time.monotonic()
            self.answer(status, content, headers)

        def answer(self, status, content, headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, early
    finally:
        server.shutdown()
        server.server_close()


def check_out(stack, folder, *command):
    """Run a shop that checks out orders: paid, not paid, tried again, too small, paid after their hold has ended, with several coupons; ENDS
    is what it prints."""
    discount = {"kind": "amount", "amount_minor": 500, "currency": "EUR", "min_spend_minor": 2000}
    coupon = stack.coupon(slots=5, discount=discount)
    coded = stack.imported(CODES, discount=discount, reserve_s=HOLD_S)
    second = stack.coupon(slots=3, codes={"source": "shared", "shared": ["SECOND"]}, discount=discount)
    with losing(stack.port, spared=coded) as (port, early):
        done = subprocess.run([str(word) for word in (*command, coupon, coded, HOLD_S, second)], cwd=folder, text=True, timeout=900,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              env={**os.environ, "COUPONS_URL": f"http://127.0.0.1:{port}/coupons", "COUPONS_KEY": stack.key("storefront")})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not early
    assert json.loads(done.stdout) == ENDS
    for one, redeemed in (coupon, 3), (coded, 2), (second, 1):
        assert {name: stack.counts(one)[name] for name in ("redeemed", "issued", "reserved")} == {
            "redeemed": redeemed, "issued": 0, "reserved": 0}
    reporting = stack.client("reporting")
    for user, code in ("u-4", CODES[0]), ("u-5", CODES[1]):
        taken = reporting.get(f"/coupons/{coded}/redemptions?user={user}").ok()["items"]
        assert [(one["state"], one["code"]) for one in taken][0] == ("redeemed", code), taken
        assert {one["state"] for one in taken[1:]} == {"expired"}, taken
