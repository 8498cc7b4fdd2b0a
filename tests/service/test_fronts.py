"""Fronts behind a load balancer, on one database: a coupon has one of them, and another when that one is gone."""
import concurrent.futures
import contextlib
import functools
import itertools
import os
import pathlib
import re
import signal
import time

import pytest

from client import Http
from fronts import Balanced, answered, coupon_of, home_of, nginx_pids, wait_for_unread
from halves import asleep
from ledger import LaneLedger
from stack import GUESSES, SETTINGS, Failing, children, state_of, wait_until
from swarm import Swarm, by_code, swarm, take, taken, takers


KEYLESS = 20  # requests a second


@pytest.fixture(scope="module")
def two():
    with Balanced(settings=SETTINGS + GUESSES + "[audit]\npath = log/audit.log\n", COUPONS_RATE_KEYLESS=str(KEYLESS),
                  COUPONS_TEST="1") as whole:  # mongod takes orders to fail
        yield whole
        whole.verify()


@pytest.fixture
def coupons(two):
    """A coupon of each front."""
    return [coupon_of(two, front, slots=100) for front in two.fronts]


# ---- one coupon, one front ----

def test_a_coupon_has_one_front_and_each_front_has_some(two):
    assert {id(home_of(two, two.coupon())) for _ in range(16)} == set(map(id, two.fronts))


def test_takings_of_a_coupon_are_decided_by_one_front(two, coupons):
    for coupon, home in zip(coupons, two.fronts):
        before = [answered(front, "redemption_take") for front in two.fronts]
        calls = swarm([two.way()], [take(coupon, f"u-{i}", f"u-{i}") for i in range(40)], connections=16)
        assert {call.reply.status for call in calls} == {201}, by_code(calls)
        more = [answered(front, "redemption_take") - count for front, count in zip(two.fronts, before)]
        assert [count > 0 for count in more] == [front is home for front in two.fronts], more


SAME = ("Content-Type", "ETag", "Location", "Cache-Control", "X-Content-Type-Options", "Strict-Transport-Security", "Allow", "Vary",
        "Retry-After", "WWW-Authenticate", "RateLimit-Policy", "Accept-Patch", "Access-Control-Allow-Origin")


def test_an_answer_is_what_the_front_says(two):
    """Also to paths that nginx would decode."""
    front = two.fronts[1]
    coupon = coupon_of(two, front, slots=3)
    taken_by_anna = two.client("storefront").take(coupon, "anna", "first").expect(201)
    two.client("storefront").take(coupon, "a/b", "slash").expect(201)
    calls = [("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {"Idempotency-Key": "first"}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {"Idempotency-Key": "second"}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", b"x" * 70_000, {}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions/batch", b"x" * 5_000_000, {}),
             ("storefront", "POST", f"/coupons/{coupon}/check", {"user": "berta"}, {"Origin": "https://shop.example"}),
             ("storefront", "GET", f"/coupons/{coupon}/redemptions/{taken_by_anna.json()['id']}", None, {}),
             ("storefront", "GET", f"/coupons/{coupon}/users/a%2Fb", None, {}),
             ("ops", "GET", f"/coupons/{coupon}", None, {}),
             ("ops", "HEAD", f"/coupons/{coupon}", None, {}),
             ("ops", "PUT", f"/coupons/{coupon}", None, {}),
             ("ops", "GET", f"/coupons/{coupon}", None, {"If-None-Match": "*"}),
             ("ops", "GET", f"/coupons/{coupon}/ledger", None, {}),
             ("ops", "GET", f"/coupons/{coupon}/redemptions", None, {"Accept": "text/csv"}),
             ("ops", "GET", f"/coupons/{coupon}/codes/a%20b%2Fc", None, {}),
             ("ops", "GET", f"//coupons/{coupon}", None, {}),
             ("ops", "GET", f"/coupons/x/%2e%2e/{coupon}", None, {}),
             ("ops", "GET", "/coupons/never-made", None, {}),
             (None, "GET", f"/coupons/{coupon}", None, {}),
             (None, "GET", "/coupons/-/dashboard", None, {}),
             (None, "GET", "/elsewhere", None, {})]
    for role, method, target, body, headers in calls:
        said = [by.client(role).request(method, target, body, headers={**headers, "X-Request-Id": "same"}) for by in (front, two)]
        shown = [(r.status, r.body, [r.header(name) for name in SAME], r.header("X-Request-Id")) for r in said]
        assert shown[0] == shown[1], f"{said[0]}\n\n{said[1]}"


def test_the_files_of_a_page_are_of_one_front(two):
    """Two fronts may have those of two versions."""
    os.utime(two.fronts[1].var / "nginx" / "pages" / "docs" / "index.html", (0, 0))
    assert len({two.client().get("/coupons/-/docs/").header("ETag") for _ in range(8)}) == 1


def test_lists_of_codes_pass_without_being_kept(two):
    """In either direction: the front keeps them."""
    places = [two.var / "balancer" / name for name in ("body", "proxy")]
    before = [place.stat().st_mtime_ns for place in places]
    for front in two.fronts:
        coupon = coupon_of(two, front, cap={"total": 100_000}, codes={"source": "imported"})
        codes = [f"a-code-of-this-list-{i}" for i in range(100_000)]
        assert two.import_codes(coupon, codes)["imported"] == len(codes)
        listed = two.client("ops").get(f"/coupons/{coupon}/codes", headers={"Accept": "text/csv"}).expect(200)
        assert listed.body.count(b"\n") == len(codes) + 1
    assert [place.stat().st_mtime_ns for place in places] == before, "a file was made"


# ---- what is done at one front is seen at the others ----

def read_wallet(front, user):
    return front.client("storefront").request("GET", f"/coupons/-/users/{user}?limit=1000", may_fail=True)


def wallet(front, user):
    """What the user holds by the first answer that is not `busy`."""
    def answer():
        reply = read_wallet(front, user)
        if reply.status != 503:
            return reply
        reply.problem("busy")
        return None

    reply = wait_until(f"the wallet of {user}", answer, every=0.05)
    return {item["coupon"]: item["held"] for item in reply.ok()["items"] if item["held"]}


def test_what_is_taken_at_one_front_is_in_the_wallet_at_the_other_at_once(two, coupons):
    with Failing(two, "lanes", "insert", "update", blockConnection=True, blockTimeMS=150):
        for i in range(10):
            for coupon, at, other in zip(coupons, two.fronts, reversed(two.fronts)):
                user = f"wallet-{coupon}-{i}"
                at.client("storefront").take(coupon, user).ok(201)
                assert wallet(other, user) == {coupon: 1}, f"{user}, served by one front and asked for at the other"


@pytest.mark.full
def test_a_wallet_misses_nothing_that_a_killed_front_acknowledged():
    """No checkpoint can be written, and all of the front's processes die: the ledger has what they took. Also once it is started again."""
    with Balanced() as whole:
        stays, dies = whole.fronts
        coupon = whole.coupon(slots=20)
        with Failing(whole, "lanes", "insert", "update"):
            dies.client("storefront").take(coupon, "anna").expect(201)
            kill([dies.pid("coupond"), *children(dies.pid("coupond"))])
            assert wallet(stays, "anna") == {coupon: 1}
        whole.back()
        for front in (stays, dies):
            assert wallet(front, "anna") == {coupon: 1}
        whole.verify()


# ---- who is believed ----

FORGED = {"X-Forwarded-For": "127.3.0.5", "X-Real-IP": "127.3.0.5", "Forwarded": "for=127.3.0.5"}


def test_the_callers_address_is_the_one_that_the_load_balancer_saw(two, coupons):
    """Whatever is sent besides."""
    key = two.new_key("ops", "--networks", "127.3.0.0/16")
    for coupon in coupons:
        Http(two.port, key, "127.3.0.5").get(f"/coupons/{coupon}").expect(200)
        Http(two.port, key, "127.3.0.5").get(f"/coupons/{coupon}", headers={"X-Forwarded-For": "127.0.0.1"}).expect(200)
        assert Http(two.port, key).get(f"/coupons/{coupon}", headers=FORGED).status in (401, 403)
    two.client("ops").get(f"/coupons/{coupons[1]}", headers={**FORGED, "X-Request-Id": "who-asked"}).expect(200)
    lines = [line for front in two.fronts for line in (front.var / "log" / "audit.log").read_text().splitlines()
             if line.endswith(" request=who-asked")]
    assert [line.split(" from=")[1].split()[0] for line in lines] == ["127.0.0.1"], lines


def test_a_front_believes_the_load_balancer_alone(beside):
    front = beside()
    front.environment["COUPONS_BALANCER"] = "127.0.0.9 127.8.0.0/16"
    assert front.script("stop").returncode == 0
    front.start()
    coupon, key = front.coupon(), front.new_key("ops", "--networks", "127.3.0.0/16")

    def asked_by(source, **headers):
        return Http(front.port, key, source).get(f"/coupons/{coupon}", headers=headers).status

    assert asked_by("127.3.0.5") == 200
    for balancer in ("127.0.0.9", "127.8.7.6"):
        assert asked_by(balancer, **{"X-Forwarded-For": "127.3.0.5"}) == 200
        assert asked_by(balancer, **{"X-Forwarded-For": "127.3.0.5, 127.4.0.5"}) in (401, 403), "the last is what the balancer saw"
        assert asked_by(balancer) in (401, 403)
    assert asked_by("127.0.0.1", **FORGED) in (401, 403)


def test_limits_count_callers_by_their_own_addresses(two, coupons):
    path = f"/coupons/{coupons[0]}"
    caller, another = (Http(two.port, None, source) for source in ("127.5.0.1", "127.5.0.2"))
    wait_until("the front to refuse", lambda: caller.get(path).status == 429, every=0)
    another.get(path).problem("unauthorized")


def test_the_request_id_is_one_from_the_caller_to_the_worker(two, coupons):
    for sent in ("of-the-caller", None, "not valid"):
        reply = two.client("ops").get(f"/coupons/{coupons[1]}", headers={"X-Request-Id": sent}).expect(200)
        said = reply.header("X-Request-Id")
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", said) and (said == sent) == (sent == "of-the-caller"), reply
        wait_until("it in the front's audit log", lambda: f" request={said}\n" in (two.fronts[1].var / "log" / "audit.log").read_text())


# ---- what the load balancer says itself ----

@pytest.mark.parametrize("sent, status, code", [
    (b"GET /coupons HTTP/1.1\r\n\r\n", 400, "bad_request"),
    (b"GET /coupons HTTP/9.9\r\nHost: x\r\n\r\n", 400, "bad_request"),
    (b"GET /coupons HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 400, "bad_request"),
    (b"GET /coupons?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "bad_request"),
    (b"POST /coupons HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", 400, "bad_request"),
    (b"TRACE /coupons HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed")],
    ids=["no host", "version", "header", "address", "chunk", "TRACE"])
def test_what_it_cannot_pass_on_is_a_problem_document(two, sent, status, code):
    [reply] = two.client().raw(sent)
    assert (reply.status, reply.header("Content-Type"), reply.json()["status"]) == (status, "application/problem+json", status), reply
    assert reply.json()["code"] == code and reply.json()["request_id"] == reply.header("X-Request-Id"), reply
    assert reply.header("X-Content-Type-Options") == "nosniff" and (reply.header("Allow") is None) == (status != 405), reply


def test_where_no_front_can_be_reached_it_is_busy(two, coupons):
    """Nothing was sent, so nothing happened."""
    for front in two.fronts:
        kill(nginx_pids(front))
    for _ in range(3):
        for method in ("GET", "DELETE"):
            two.client("ops").request(method, f"/coupons/{coupons[0]}", may_fail=True).problem("busy")
        two.client("storefront").post(f"/coupons/{coupons[1]}/redemptions", {"user": "u"}, idempotency_key="u", may_fail=True).problem("busy")
    two.back()
    for coupon in coupons:
        wait_until("its front to be asked again", lambda: two.client("ops").request("GET", f"/coupons/{coupon}", may_fail=True).status == 200)


# ---- a front is gone ----

def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # its master has asked it to end
            os.kill(pid, signal.SIGKILL)
    wait_until("them to be gone", lambda: not any(map(state_of, pids)))


def all_pids(front):
    return nginx_pids(front) + [front.pid("coupond"), *children(front.pid("coupond"))]


@contextlib.contextmanager
def takings(figure, by, coupon, what):
    """A crowd that takes through this front meanwhile, and repeats what has an unknown outcome. Everybody gets one redemption, and the
    ledger has these alone."""
    with Swarm([by.way()], takers(coupon), connections=8, pause_s=0.005) as crowd:
        crowd.more(100)
        began = time.monotonic()
        yield crowd
        crowd.more(200)
    calls = crowd.done
    assert set(by_code(calls)) <= {"201", "201 replayed"}, by_code(calls)
    ids = [body["id"] for body in taken(calls)]
    assert len(set(ids)) == len(ids) and set(ids) == set(LaneLedger(by, coupon).ids())
    by.verify(coupon)
    answers = sorted(call.answered_at for call in calls if call.answered_at > began)
    slowest = max(call.answered_at - call.asked_at for call in calls)
    figure(f"{what}: {max(b - a for a, b in zip(answers, answers[1:])):.2f} s without an answer, {slowest:.2f} s for the slowest call")


def led_again(two, coupon, front):
    wait_until("it to lead again", lambda: home_of(two, coupon) is front)


def test_a_killed_fronts_coupons_go_on_at_another(two, figure):
    stays, gone = two.fronts
    coupon = coupon_of(two, gone, slots=200_000)
    with takings(figure, two, coupon, "a front is killed") as crowd:
        kill(all_pids(gone))
        crowd.more(200)
        assert answered(stays, "redemption_take") > 0
        two.back()
    led_again(two, coupon, gone)


def test_a_front_whose_coupond_is_gone_is_passed_by(two, figure):
    """nginx lives. Who asked first hears that the outcome is unknown, or is served elsewhere, if the call only reads."""
    _, gone = two.fronts
    coupon = coupon_of(two, gone, slots=200_000)
    with takings(figure, two, coupon, "a front's coupond is stopped") as crowd:
        pid = gone.signal("coupond", signal.SIGTERM)
        wait_until("coupond to end", lambda: state_of(pid) is None)
        crowd.more(200)
        two.client("ops").get(f"/coupons/{coupon}").expect(200)
        two.back()
    led_again(two, coupon, gone)


def checked(two, coupon):
    """A call whose repeat the load balancer must leave to its caller."""
    return two.client("storefront").request("POST", f"/coupons/{coupon}/check", {"user": "u"}, may_fail=True)


def test_what_was_not_sent_goes_to_another_front(two):
    """However long the body is."""
    stays, gone = two.fronts
    coupon = coupon_of(two, gone, codes={"source": "imported"}, cap={"total": 100_000})
    before = answered(stays, "codes_import")
    kill(nginx_pids(gone))
    assert two.import_codes(coupon, [f"a-code-of-this-list-{i}" for i in range(100_000)])["imported"] == 100_000
    assert answered(stays, "codes_import") == before + 1
    two.back()
    led_again(two, coupon, gone)


def test_what_was_sent_goes_to_another_front_only_if_it_reads(two):
    stays, gone = two.fronts
    coupon = coupon_of(two, gone, slots=5)
    calls = {"redemption_check": functools.partial(checked, two, coupon),
             "coupon_get": functools.partial(two.client("ops").request, "GET", f"/coupons/{coupon}", may_fail=True)}
    for route, call in calls.items():
        before = answered(stays, route)
        pids = nginx_pids(gone)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            reply = pool.submit(call)
            wait_for_unread(gone.port)
            kill(pids)
        if route == "coupon_get":
            reply.result().expect(200)
        else:
            reply.result().problem("outcome_unknown")
        assert answered(stays, route) == before + (route == "coupon_get")
        two.back()
        led_again(two, coupon, gone)


@pytest.mark.full
def test_a_front_that_sleeps_is_passed_by(two, figure):
    """Who waits for it when it falls asleep, or tries it again, waits until its time is out, and hears that the outcome is unknown."""
    _, asleep = two.fronts
    coupon = coupon_of(two, asleep, slots=200_000)
    with takings(figure, two, coupon, "a front's nginx sleeps") as crowd:
        pids = nginx_pids(asleep)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            crowd.more(200)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    led_again(two, coupon, asleep)


@pytest.mark.full
def test_a_call_that_a_front_is_late_with_is_sent_to_no_other():
    """Whoever is slow has enough to do, and it may still be carried out."""
    with Balanced(settings=SETTINGS + GUESSES + "[worker]\nrequest_deadline_ms = 1000\n") as whole:
        for one in (whole, *whole.fronts):
            one.impatient = True
        other, slow = whole.fronts
        coupon = coupon_of(whole, slow, cap={"policy": "none"})
        calls = [lambda: whole.client("storefront").request("POST", f"/coupons/{coupon}/redemptions", {"user": "u"}, idempotency_key="once",
                                                            may_fail=True),
                 lambda: whole.client("ops").request("GET", f"/coupons/{coupon}", may_fail=True)]
        with asleep(slow, [f"worker-{i}" for i in range(slow.workers)]):
            for call in calls:
                call().problem("outcome_unknown")
            assert answered(other, "redemption_take") == answered(other, "coupon_get") == 0
        wait_until("the answer of the one that was slow", lambda: calls[0]().status == 201)
        assert whole.counts(coupon)["redeemed"] == 1
        whole.verify()


# ---- one reporter ----

def folded(front):
    return front.metric("coupons_reporter_batches_total")


def reporting(two):
    """The front whose reporter is at work, and the other one."""
    def at_work():
        lease = two.database.watermarks.find_one({"_id": "reporter-lease"}) or {"by": ""}
        return [front for front in two.fronts if lease["by"].endswith(f":{front.var}/run")]

    [front] = wait_until("a reporter at work", at_work)
    return front, two.fronts[1 - two.fronts.index(front)]


@pytest.mark.full
def test_one_front_reports_and_another_takes_over(two, coupons):
    at_work, _ = reporting(two)
    shop, users = two.client("storefront"), itertools.count()

    def adds():
        """The fronts whose reporters add a taking to the totals."""
        before = [folded(front) for front in two.fronts]
        shop.take(coupons[0], f"r-{next(users)}").expect(201)
        wait_until("the taking to be in the totals", lambda: [folded(front) for front in two.fronts] != before)
        return [front for front, count in zip(two.fronts, before) if folded(front) > count]

    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])
    at_work, standing_by = reporting(two)
    pid = at_work.pid("reporter")
    with asleep(at_work, ["reporter"]):
        wait_until("the other one to add a taking", lambda: adds() == [standing_by])
    wait_until("the one that was asleep to have a successor", lambda: at_work.pid("reporter") not in (None, pid))
    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])
    standing_by.kill("reporter")
    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])


# ---- scripts/run --members 3 --fronts 2 ----

def processes_of(stack):
    """Of all processes, those that have to do with the copy."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(stack.var) in (place / "cmdline").read_text() and state_of(int(place.name)):
                found.append(int(place.name))
    return found


@pytest.mark.full
def test_one_command_starts_three_members_and_two_fronts():
    with Balanced(members=3) as whole:
        coupon, users = whole.coupon(slots=100), itertools.count()

        def all_take():
            for at in (whole, *whole.fronts):
                shop, user = at.client("storefront"), f"u-{next(users)}"
                wait_until(f"{user} to have one", lambda: shop.post(f"/coupons/{coupon}/redemptions", {"user": user}, idempotency_key=user,
                                                                    may_fail=True).status == 201)

        all_take()
        hello = whole.mongo.admin.command("hello")
        assert len(hello["hosts"]) == 3 and (whole.var / "front-2" / "run" / "coupond.pid").exists()
        assert coupon in whole.ctl("coupon", "list")

        primary = next(path for path in whole.var.glob("run/mongod*.port") if hello["primary"].endswith(f":{path.read_text().strip()}"))
        kill([int(primary.with_suffix(".pid").read_text())])
        all_take()

        assert "Already running" in whole.script("run", "--detach", *whole.options, status=0).stdout
        wait_until("three members at work", lambda: sorted(m["stateStr"] for m in whole.mongo.admin.command("replSetGetStatus")["members"])
                   == ["PRIMARY", "SECONDARY", "SECONDARY"])
        for script, said in (("reload", ""), ("restart", f"Restarted ({whole.var}/front-2)")):
            assert said in whole.script(script, status=0).stdout
        all_take()

        kill(nginx_pids(whole.fronts[0]))
        assert "--fronts" in whole.script("run", "--detach", status=1).stdout
        balancer = int((whole.var / "run" / "balancer.pid").read_text())
        kill([balancer, *children(balancer)])
        whole.back()
        all_take()

        whole.stop()
        assert processes_of(whole) == []


@pytest.mark.full
def test_fronts_are_added_to_one_that_runs():
    with Balanced(count=3) as whole:
        coupon, users = whole.coupon(slots=100), itertools.count()
        whole.stop()
        for count in (1, 2, 3, 3):
            options = ("--fronts", count) if count > 1 else ()
            whole.script("run", "--detach", *options, status=0)
            for script in ("reload", "restart"):
                whole.script(script, status=0)
            for at in (whole, *(whole.fronts[:count] if count > 1 else ())):
                at.client("storefront").take(coupon, f"u-{next(users)}").expect(201)
        assert "front-3 runs too" in whole.script("run", "--detach", "--fronts", 2, status=1).stdout
        whole.connect()
        assert whole.counts(coupon)["redeemed"] == next(users)
        whole.verify()
