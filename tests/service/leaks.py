"""One worker under valgrind answers 10,000 requests of every kind, and has lost no memory when it ends.

Named so that pytest runs it only when asked for: `COUPONS_TESTS=leaks scripts/test`. COUPONS_LEAKS: how many requests.
What valgrind says of reads and writes outside of what was allocated, and of values never set, is a failure as well.
"""
import contextlib
import itertools
import json
import os
import signal
import subprocess

import pytest

from client import Direct
from stack import BUILD, wait_until
from swarm import Call, DirectWay, Swarm, by_code, step, take

REQUESTS = int(os.environ.get("COUPONS_LEAKS", "10000"))
VALGRIND = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
            "--num-callers=30"]
# Under valgrind one thread runs at a time, some thirty times as slowly: nobody is to be given up for that.
PATIENT = ["coupond.workers=1", "worker.request_deadline_ms=60000"]


class Checked:
    """A second coupond on the stack's database, every process of it under valgrind."""

    def __init__(self, stack):
        self.stack, self.folder = stack, stack.var / "checked"
        self.folder.mkdir()
        settings = [f"coupond.run_dir={self.folder}", *PATIENT]
        uri = (stack.var / "run" / "mongodb_uri").read_text().strip()
        with open(self.folder / "out", "w") as out:
            self.process = subprocess.Popen(
                [*VALGRIND, f"--log-file={self.folder}/valgrind.%p", BUILD / "coupond", "-c", stack.environment["COUPONS_CONFIG"],
                 *itertools.chain(*(("-o", setting) for setting in settings))],
                env={**stack.environment, "MONGODB_URI": uri}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_until("a worker under valgrind to answer", self.ready, 120, every=0.2)

    def ready(self):
        assert self.process.poll() is None, f"it ended: {(self.folder / 'out').read_text()}{self.stack.log()[-2000:]}"
        with contextlib.suppress(OSError, AssertionError):
            return Direct(self.socket).get("/coupons/-/ready").status == 200

    @property
    def socket(self):
        return self.folder / "worker-0.sock"

    def end(self):
        """Stop it as an operator would; {process id: what valgrind said of it}."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        return {path.suffix[1:]: path.read_text(errors="replace") for path in self.folder.glob("valgrind.*")}


@pytest.fixture
def checked(another_stack):
    checked = Checked(another_stack())
    yield checked
    if checked.process.poll() is None:
        checked.process.kill()


def reads(coupon, other, i):
    """What changes nothing, and what is refused for its form."""
    return [
        Call("GET", f"/coupons/{coupon}/counts"),
        Call("GET", f"/coupons/{coupon}"),
        Call("GET", "/coupons"),
        Call("GET", f"/coupons/{coupon}/users/u-{i // 2}"),
        Call("GET", f"/coupons/-/users/u-{i // 2}"),
        Call("GET", f"/coupons/{coupon}/redemptions?limit=20"),
        Call("GET", f"/coupons/{coupon}/redemptions?from=2999-01-01T00:00:00Z", headers={"Accept": "text/csv"}),
        Call("GET", f"/coupons/{coupon}/redemptions?user=u-{i // 2}", headers={"Accept": "text/csv"}),
        Call("GET", f"/coupons/{coupon}/counts", headers={"Accept": "image/png"}),
        Call("GET", f"/coupons/{coupon}/slots/{i % 1000}"),
        Call("GET", f"/coupons/{coupon}/slots?limit=20"),
        Call("GET", f"/coupons/{coupon}/ledger?after={max(0, i // 10 - 20)}"),
        Call("GET", f"/coupons/{coupon}/codes/NO-SUCH-CODE"),
        Call("GET", f"/coupons/{coupon}/reports?period=hour&tz=Europe/Berlin"),
        Call("GET", "/coupons/-/reports?period=day&group=coupon", headers={"Accept": "text/csv"}),
        Call("GET", f"/coupons/{coupon}/refusals"),
        Call("GET", "/coupons/-/jobs"),
        Call("GET", "/coupons/-/webhooks"),
        Call("GET", "/coupons/-/metrics"),
        Call("GET", "/coupons/-/problems/sold_out"),
        Call("GET", "/coupons/-/openapi.json") if i % 50 == 0 else Call("GET", "/coupons/-/receipt-keys"),
        Call("GET", "/coupons/no-such/counts"),
        Call("GET", f"/coupons/{coupon}/redemptions?cursor=forged"),
        Call("DELETE", f"/coupons/{coupon}"),
        Call("POST", f"/coupons/{coupon}/check", {"user": f"u-{i}"}),
        Call("POST", "/coupons/-/resolve", {"code": f"nobody-{i}", "user": f"u-{i}"}),
        Call("POST", f"/coupons/{coupon}/redemptions", b'{"user": "u', f"half-{i}"),
        Call("POST", f"/coupons/{coupon}/redemptions", {"user": "u", "unknown": [1, {"a": None}]}, f"unknown-{i}"),
        Call("POST", f"/coupons/{coupon}/redemptions", {"user": f"u-{i}"}),
        Call("POST", "/coupons", {"id": other, "title": "again", "cap": {"total": 1}}),
        Call("PATCH", f"/coupons/{other}", {"title": f"the {i}th"}, headers={"If-Match": "*"}),
    ]


def takings(coupon, other, i):
    return [
        take(coupon, f"u-{i}", f"k-{i}", metadata={"basket": i}),
        take(coupon, f"u-{i - 1}", f"k-{i - 1}", metadata={"basket": i - 1}),
        take(coupon, f"u-{i}", f"h-{i}", state="reserved", order={"id": f"o-{i}", "amount_minor": 5000, "currency": "EUR"}),
        take(coupon, f"u-{i}", f"i-{i}", state="issued"),
        take(other, f"u-{i}", f"s-{i}"),
        Call("POST", f"/coupons/{coupon}/redemptions/batch",
             {"items": [{"user": f"b-{i}-{j}", "key": f"b-{i}-{j}"} for j in range(5)]}),
        Call("DELETE", f"/coupons/-/users/u-{i - 40}") if i % 10 == 0 else take(coupon, f"u-{i}", f"h-{i}", state="reserved"),
    ]


def later(coupon, body):
    """The next step of a redemption that was just made."""
    at, state = body["id"], body["state"]
    verbs = {"reserved": ("redeem", "cancel", "reserve"), "issued": ("redeem", "cancel", "reserve"), "redeemed": ("reverse", None)}
    verb = verbs[state][body["slot"] % len(verbs[state])] if state in verbs else None
    if verb is None:
        return Call("GET", f"/coupons/{coupon}/redemptions/{at}")
    return step(coupon, at, verb, key=f"{verb}-{at}" if verb in ("redeem", "reserve") else None)


def mixed(crowd, coupon, other):
    """Endless: reads and takings in turn, and a step of what was taken meanwhile."""
    seen = 0
    for i in itertools.count(1):
        yield from (calls := takings(coupon, other, i)) if i % 3 else reads(coupon, other, i)
        for call in crowd().done[seen:]:
            seen += 1
            if call.reply.status == 201 and call.target == f"/coupons/{coupon}/redemptions":
                yield later(coupon, json.loads(call.reply.body))


def test_a_worker_that_answered_ten_thousand_requests_has_lost_no_memory(checked):
    stack = checked.stack
    coupon = stack.coupon(slots=REQUESTS * 2, cap={"total": REQUESTS * 2, "per_user": 9}, codes={"source": "generated"}, reserve_s=3,
                          discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"})
    other = stack.coupon(slots=5)
    calls = itertools.islice(mixed(lambda: crowd, coupon, other), REQUESTS)
    crowd = Swarm([DirectWay(checked.socket, stack.key("ops"))], calls, connections=8)
    worker = (checked.folder / "worker-0.pid").read_text().strip()
    crowd.start()
    crowd.join()
    codes = by_code(crowd.result())
    assert sum(codes.values()) == REQUESTS, codes
    assert not [code for code in codes if code in ("internal", "not_found", "forbidden")], codes
    assert min(codes["200"], codes["201"], codes["201 replayed"], codes["bad_request"], codes["sold_out"]) > REQUESTS / 200, codes
    said = checked.end()
    assert worker in said and f"pid={worker} event=worker.stopped" in stack.log(), f"it did not end in order: {sorted(said)}"
    loud = {pid: text for pid, text in said.items() if text.strip()}
    assert not loud, "\n".join(f"{'the worker' if pid == worker else pid}: {text[:5000]}" for pid, text in loud.items())
    stack.verify()
