"""Two fronts on one database: a coupon has one of them wherever it is asked for, and the other when that one is gone."""
import contextlib
import functools
import itertools
import os
import pathlib
import signal
import ssl
import time

import pytest

from client import Http
from fronts import Peer, certificate, coupon_of, fronts, home_of, serving
from ledger import Told
from ports import free_ports
from stack import GUESSES, SETTINGS, Stack, children, state_of, wait_until
from swarm import Swarm, by_code, swarm, take, taken


KEYLESS = 20  # requests a second


@pytest.fixture(scope="module")
def two():
    with fronts(settings=SETTINGS + GUESSES + "[audit]\npath = log/audit.log\n", COUPONS_RATE_KEYLESS=str(KEYLESS),
                COUPONS_TEST="1") as started:  # mongod takes orders to fail
        yield started
        started[0].verify()


@pytest.fixture
def coupons(two):
    """A coupon of each front, for calls that come in at the first: one that stays there, and one that goes on."""
    return [coupon_of(two, front, slots=100) for front in two]


def nginx_pids(front):
    master = int((front.var / "run" / "nginx.pid").read_text())
    return [master, *children(master)]


def conflicts(front):
    """How many batches its workers have decided again, because somebody else appended."""
    return front.metric("coupons_conflicts_total")


# ---- one coupon, one front ----

def test_a_coupon_has_one_front_wherever_it_is_asked_for(two):
    homes = [home_of(two, two[0].coupon()) for _ in range(16)]
    assert set(homes) == set(two), "each front serves some"


def test_takings_through_both_fronts_are_decided_by_one(two, coupons):
    for coupon, home in zip(coupons, two):
        def none_decided_twice():
            before = [conflicts(front) for front in two]
            names = [f"u-{time.monotonic_ns()}-{i}" for i in range(40)]
            calls = swarm([front.way() for front in two], [take(coupon, name, name, via=i % 2) for i, name in enumerate(names)], connections=16)
            assert {call.reply.status for call in calls} <= {201, 409}, calls
            return [conflicts(front) for front in two] == before

        wait_until(f"forty takings of {coupon} that one front decides", none_decided_twice)
        assert home_of(two, coupon) is home


def test_what_is_not_one_coupons_is_served_where_it_came_in(two):
    for path, route in (("/coupons?limit=1", "coupon_list"), ("/coupons/-/ready", "ready"), ("/coupons/-/users/anna", "wallet")):
        for front in two:
            before = [f.answered(route) for f in two]
            for _ in range(8):
                reply = front.client("ops").request("GET", path, may_fail=True)
                if reply.status != 200:  # the database was late
                    reply.problem("busy")
            more = [f.answered(route) - count for f, count in zip(two, before)]
            assert more == [8 * (f is front) for f in two] or (route == "ready" and more[two.index(front)] >= 8), (path, more)


SAME = ("Content-Type", "ETag", "Location", "Cache-Control", "X-Content-Type-Options", "Strict-Transport-Security", "Allow", "Vary",
        "Retry-After", "WWW-Authenticate", "RateLimit-Policy", "Accept-Patch", "Access-Control-Allow-Origin")


def test_an_answer_is_the_same_through_both_fronts(two):
    coupon = coupon_of(two, two[1], slots=3)
    taken = two[0].client("storefront").take(coupon, "anna", "first").expect(201)
    calls = [("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {"Idempotency-Key": "first"}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {"Idempotency-Key": "second"}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", {"user": "anna"}, {}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions", b"x" * 70_000, {}),
             ("storefront", "POST", f"/coupons/{coupon}/redemptions/batch", b"x" * 5_000_000, {}),
             ("storefront", "POST", f"/coupons/{coupon}/check", {"user": "berta"}, {"Origin": "https://shop.example"}),
             ("storefront", "GET", f"/coupons/{coupon}/redemptions/{taken.json()['id']}", None, {}),
             ("ops", "GET", f"/coupons/{coupon}", None, {}),
             ("ops", "HEAD", f"/coupons/{coupon}", None, {}),
             ("ops", "PUT", f"/coupons/{coupon}", None, {}),
             ("ops", "GET", f"/coupons/{coupon}", None, {"If-None-Match": "*"}),
             ("ops", "GET", f"/coupons/{coupon}/ledger", None, {}),
             ("ops", "GET", f"/coupons/{coupon}/redemptions", None, {"Accept": "text/csv"}),
             ("ops", "GET", f"/coupons/{coupon}/codes/a%20b%2Fc", None, {}),
             ("ops", "GET", "/coupons/never-made", None, {}),
             (None, "GET", f"/coupons/{coupon}", None, {})]
    for role, method, target, body, headers in calls:
        told = [front.client(role).request(method, target, body, headers={**headers, "X-Request-Id": "same"}) for front in two]
        shown = [(r.status, r.body, [r.header(name) for name in SAME], r.header("X-Request-Id")) for r in told]
        assert shown[0] == shown[1], f"{told[0]}\n\n{told[1]}"


def test_codes_are_imported_through_both_fronts(two):
    for front in two:
        coupon = coupon_of(two, two[1], cap={"total": 20_000}, codes={"source": "imported"})
        assert front.import_codes(coupon, [f"code-{i}" for i in range(20_000)])["imported"] == 20_000


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


@contextlib.contextmanager
def writing_of_views(front, **how):
    """mongod does this to every write of a user's view."""
    fail = functools.partial(front.mongo.admin.command, "configureFailPoint", "failCommand")
    fail(mode="alwaysOn", data={"failCommands": ["insert", "update"], "namespace": f"{front.database.name}.users", **how})
    try:
        yield
    finally:
        fail(mode="off")


def test_what_is_taken_at_one_front_is_in_the_wallet_at_the_other_at_once(two, coupons):
    (staying, going), shop = coupons, two[0].client("storefront")
    with writing_of_views(two[0], blockConnection=True, blockTimeMS=150):
        for i in range(10):
            for coupon, at in ((staying, two[1]), (going, two[0])):
                user = f"wallet-{coupon}-{i}"
                shop.take(coupon, user).ok(201)
                assert wallet(at, user) == {coupon: 1}, f"{user}, served by one front and asked for at the other"


@pytest.mark.full
def test_a_wallet_misses_nothing_that_a_killed_front_had_not_written():
    """Its workers cannot write views, and die. Until others have, the wallet is busy; not after it was started again, either."""
    with fronts(COUPONS_TEST="1") as (stays, dies):
        coupon = coupon_of([stays, dies], dies, slots=20)
        with writing_of_views(stays, errorCode=96):
            stays.client("storefront").take(coupon, "anna").expect(201)
            for pid in [dies.pid("coupond"), *children(dies.pid("coupond"))]:
                with contextlib.suppress(ProcessLookupError):  # its master has told it to end
                    os.kill(pid, signal.SIGKILL)
            read_wallet(stays, "anna").problem("busy")
        assert wallet(stays, "anna") == {coupon: 1}
        back(dies)
        for front in (stays, dies):
            assert wallet(front, "anna") == {coupon: 1}
        stays.verify()


# ---- who is believed ----

def test_the_callers_address_is_the_one_that_the_first_front_saw(two, coupons):
    """Whatever is sent besides: only another front is believed."""
    key = two[0].new_key("ops", "--networks", "127.3.0.0/16")
    forged = {"X-Coupons-Address": "127.3.0.5", "X-Forwarded-For": "127.3.0.5", "X-Real-IP": "127.3.0.5"}
    for coupon in coupons:
        for front in two:
            Http(front.port, key, "127.3.0.5").get(f"/coupons/{coupon}").expect(200)
            Http(front.port, key, "127.3.0.5").get(f"/coupons/{coupon}", headers={"X-Coupons-Address": "127.0.0.1"}).expect(200)
            assert Http(front.port, key).get(f"/coupons/{coupon}", headers=forged).status in (401, 403)
    two[0].client("ops").get(f"/coupons/{coupons[1]}", headers={**forged, "X-Request-Id": "who-asked"}).expect(200)
    lines = [line for front in two for line in (front.var / "log" / "audit.log").read_text().splitlines() if line.endswith(" request=who-asked")]
    assert [line.split(" from=")[1].split()[0] for line in lines] == ["127.0.0.1"], lines


def test_another_front_is_believed_and_served_at_once(two, coupons):
    """By its certificate: its word for the address counts, its requests were limited there, and none is sent on."""
    key = two[0].new_key("ops", "--networks", "127.3.0.0/16")
    for front in two:
        peer = Peer(front, key, two[0].var / "keys" / "peer")
        for coupon in coupons:
            before = [f.answered("coupon_get") for f in two]
            peer.get(f"/coupons/{coupon}", headers={"X-Coupons-Address": "127.3.0.5"}).expect(200)
            assert [f.answered("coupon_get") - count for f, count in zip(two, before)] == [f is front for f in two]
        assert peer.get(f"/coupons/{coupons[0]}", headers={"X-Coupons-Address": "127.4.0.5"}).status in (401, 403)


def test_limits_count_where_a_request_comes_in_and_there_alone(two, coupons):
    first, second = two
    path = f"/coupons/{coupons[1]}"
    peer = Peer(second, None, two[0].var / "keys" / "peer")
    for _ in range(5 * KEYLESS):
        peer.get(path).problem("unauthorized")
    caller = first.client()
    wait_until("the first front to refuse", lambda: caller.get(path).status == 429, every=0)
    second.client().get(path).problem("unauthorized")


def test_nobody_else_is_served_as_a_front(two, coupons, tmp_path):
    key = two[0].key("ops")
    for of in (None, certificate(tmp_path / "stranger")):
        for front in two:
            before = [f.answered("coupon_get") for f in two]
            with contextlib.suppress(ssl.SSLError, AssertionError):  # closed without an answer
                assert Peer(front, key, of).get(f"/coupons/{coupons[0]}").status == 400
            assert [f.answered("coupon_get") for f in two] == before


# ---- a front is gone ----

@contextlib.contextmanager
def takings(figure, by, coupon, what):
    """A crowd that takes through this front meanwhile, and repeats what has an unknown outcome. Everybody gets one redemption, and the
    ledger has these alone."""
    crowd = Swarm([by.way()], (take(coupon, f"u-{i}", f"k-{i}") for i in range(1_000_000)), connections=8, pause_s=0.005)
    crowd.start()
    try:
        wait_until("takings", lambda: len(crowd.done) > 100)
        began = time.monotonic()
        yield crowd
        more(crowd)
    finally:
        calls = crowd.end()
    assert set(by_code(calls)) <= {"201", "201 replayed"}, by_code(calls)
    ids = [body["id"] for body in taken(calls)]
    assert len(set(ids)) == len(ids) and set(ids) == set(Told(by, coupon).ids())
    by.verify(coupon)
    answers = sorted(call.answered_at for call in calls if call.answered_at > began)
    slowest = max(call.answered_at - call.asked_at for call in calls)
    figure(f"{what}: {max(b - a for a, b in zip(answers, answers[1:])):.2f} s without an answer, {slowest:.2f} s for the slowest call")


def more(crowd):
    target = len(crowd.done) + 200
    wait_until("more takings", lambda: len(crowd.done) > target)


def back(front):
    done = front.script("run", "--detach")
    assert done.returncode == 0, done.stdout


def test_a_front_that_is_killed_is_followed_by_another_at_once(two, figure):
    """Its nginx, with all connections."""
    entered, gone = two
    coupon = coupon_of(two, gone, slots=200_000)
    with takings(figure, entered, coupon, "a front's nginx is killed") as crowd:
        for pid in nginx_pids(gone):
            os.kill(pid, signal.SIGKILL)
        more(crowd)
        assert serving([entered], coupon, entered) is entered
        back(gone)
    assert home_of(two, coupon) is gone, "it leads again"


@pytest.mark.full
def test_a_front_whose_workers_are_gone_says_so_to_the_others(two, figure):
    """nginx lives, and coupond does not: nothing was sent to a worker, so the first front serves it, whatever the method."""
    entered, gone = two
    coupon = coupon_of(two, gone, slots=200_000)
    with takings(figure, entered, coupon, "a front's coupond is stopped") as crowd:
        pid = gone.signal("coupond", signal.SIGTERM)
        wait_until("coupond to end", lambda: state_of(pid) is None)
        more(crowd)
        for role, method, path, body in (("ops", "GET", f"/coupons/{coupon}", None), ("ops", "PATCH", f"/coupons/{coupon}", {"title": "Changed"}),
                                         ("storefront", "POST", f"/coupons/{coupon}/check", {"user": "anna"})):
            entered.client(role).request(method, path, body, headers={"If-Match": "*"}).expect(200)
        back(gone)
    assert home_of(two, coupon) is gone


def noted_as_gone(front):
    """The others of which its coupond tells nginx that they are gone."""
    return [path.name for path in (front.var / "run" / "fronts").glob("*")]


def test_a_front_that_does_not_answer_is_passed_by_until_it_does(two):
    """It is asked apart from calls: so the first call after that does not wait for it, either."""
    entered, asleep = two
    coupon = coupon_of(two, asleep)
    pids = nginx_pids(asleep)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until("it to be noted as gone", lambda: noted_as_gone(entered))
        assert serving([entered], coupon, entered) is entered
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_until("it to be back", lambda: not noted_as_gone(entered))
    assert home_of(two, coupon) is asleep


@pytest.mark.full
def test_a_front_that_sleeps_is_followed_by_another(two, figure):
    """Who waits for it when it falls asleep waits until its time is out, and hears that the outcome is unknown; no other call does."""
    entered, asleep = two
    coupon = coupon_of(two, asleep, slots=200_000)
    with takings(figure, entered, coupon, "a front's nginx sleeps") as crowd:
        pids = nginx_pids(asleep)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            more(crowd)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    assert home_of(two, coupon) is asleep


@pytest.mark.full
def test_what_was_sent_to_nobody_is_sent_to_one_worker_and_no_more():
    """The coupon's front is not reached, so the call is served where it came in; when that is late, too, it may have been carried out."""
    with fronts(settings=SETTINGS + GUESSES + "[worker]\nrequest_deadline_ms = 1000\n") as (entered, away):
        coupon = coupon_of([entered, away], away, slots=5)
        calls, before = 0, entered.answered("redemption_check")
        nginx = nginx_pids(away)

        def check():
            nonlocal calls
            calls += 1
            return entered.client("storefront").request("POST", f"/coupons/{coupon}/check", {"user": "u"}, may_fail=True)

        stopped = [entered.signal("runner", signal.SIGSTOP), *(entered.signal(f"worker-{i}", signal.SIGSTOP) for i in range(entered.workers))]
        try:
            for pid in nginx:
                os.kill(pid, signal.SIGSTOP)
            check().problem("outcome_unknown")
            for pid in stopped[1:]:
                os.kill(pid, signal.SIGCONT)
            wait_until("a worker that is awake", lambda: check().status == 200)  # it takes what was sent before first
        finally:
            for pid in (*stopped, *nginx):
                os.kill(pid, signal.SIGCONT)
        served = entered.answered("redemption_check") - before
        assert served <= calls, f"{calls} calls were served {served} times"


@pytest.mark.full
def test_a_call_that_a_front_is_late_with_is_sent_to_no_other(figure):
    """As with one front: whoever is slow has enough to do, and it may still be carried out."""
    with fronts(settings=SETTINGS + GUESSES + "[worker]\nrequest_deadline_ms = 10000\n") as (entered, slow):
        coupon = coupon_of([entered, slow], slow, cap={"policy": "none"})
        prober = entered.signal("runner", signal.SIGSTOP)  # which would have the slow one passed by
        workers = [slow.signal(f"worker-{i}", signal.SIGSTOP) for i in range(slow.workers)]
        served = 0  # by the first front, which passes by one that takes too long to connect: nothing was sent to it

        def take_once():
            return entered.client("storefront").request("POST", f"/coupons/{coupon}/redemptions", {"user": f"u-{served}"},
                                                        idempotency_key="once", may_fail=True)

        def late():
            nonlocal served
            reply = take_once()
            served += reply.status == 201
            return reply.status != 201 and reply

        try:
            wait_until("a call that the slow one has got", late).problem("outcome_unknown")
            assert entered.answered("redemption_take") == served
        finally:
            for pid in (*workers, prober):
                os.kill(pid, signal.SIGCONT)
        wait_until("the answer of the one that was slow", lambda: take_once().status == 201)
        assert entered.counts(coupon)["redeemed"] == served + 1
        entered.verify()


# ---- one reporter ----

def folded(front):
    return front.metric("coupons_reporter_batches_total")


def reporting(two):
    """The front whose reporter is at work, and the other one."""
    def at_work():
        lease = two[0].database.watermarks.find_one({"_id": "reporter-lease"}) or {"by": ""}
        return [front for front in two if lease["by"].endswith(f":{front.var}/run")]

    [front] = wait_until("a reporter at work", at_work)
    return front, two[1 - two.index(front)]


@pytest.mark.full
def test_one_front_reports_and_another_takes_over(two, coupons):
    at_work, _ = reporting(two)
    shop, users = two[0].client("storefront"), itertools.count()

    def adds():
        """The fronts whose reporters add a taking to the totals."""
        before = [folded(front) for front in two]
        shop.take(coupons[0], f"r-{next(users)}").expect(201)
        wait_until("the taking to be in the totals", lambda: [folded(front) for front in two] != before)
        return [front for front, count in zip(two, before) if folded(front) > count]

    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])
    at_work, standing_by = reporting(two)
    asleep = at_work.signal("reporter", signal.SIGSTOP)
    try:
        wait_until("the other one to add a taking", lambda: adds() == [standing_by])
    finally:
        os.kill(asleep, signal.SIGCONT)
    wait_until("the one that was asleep to have a successor", lambda: at_work.pid("reporter") not in (None, asleep))
    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])
    standing_by.kill("reporter")
    wait_until("one reporter to add a taking", lambda: adds() == [reporting(two)[0]])


# ---- scripts/run --members 3 --fronts 2 ----

@pytest.fixture
def whole():
    """A replica set of three, and two fronts, started by one command; and a client of either front."""
    stack = Stack(SETTINGS + GUESSES)
    stack.options, stack.port = ("--members", 3, "--fronts", 2), free_ports(2)
    stack.environment["COUPONS_PORT"] = str(stack.port)
    with stack:
        yield stack, [Http(stack.port + i, stack.key("storefront")) for i in range(2)]


def processes_of(stack):
    """Of all processes, those that have to do with the copy."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(stack.var) in (place / "cmdline").read_text() and state_of(int(place.name)):
                found.append(int(place.name))
    return found


@pytest.mark.full
def test_one_command_starts_three_members_and_two_fronts(whole):
    stack, shops = whole
    coupon = stack.coupon(slots=100)
    users = itertools.count()

    def both_take():
        for shop in shops:
            user = f"u-{next(users)}"
            wait_until(f"{user} to have one", lambda: shop.post(f"/coupons/{coupon}/redemptions", {"user": user}, idempotency_key=user,
                                                                may_fail=True).status == 201)

    both_take()
    hello = stack.mongo.admin.command("hello")
    assert len(hello["hosts"]) == 3 and (stack.var / "front-2" / "run" / "coupond.pid").exists()

    primary = next(path for path in stack.var.glob("run/mongod*.port") if hello["primary"].endswith(f":{path.read_text().strip()}"))
    os.kill(int(primary.with_suffix(".pid").read_text()), signal.SIGKILL)
    both_take()

    again = stack.script("run", "--detach", *stack.options)
    assert again.returncode == 0 and "Already running" in again.stdout, again.stdout
    wait_until("three members at work", lambda: sorted(m["stateStr"] for m in stack.mongo.admin.command("replSetGetStatus")["members"])
               == ["PRIMARY", "SECONDARY", "SECONDARY"])
    restarted = stack.script("restart")
    assert restarted.returncode == 0 and f"Restarted ({stack.var}/front-2)" in restarted.stdout, restarted.stdout
    both_take()

    stack.stop()
    assert processes_of(stack) == []
    stack.start()
    both_take()

    stack.stop()
    stack.options = ("--members", 3)
    stack.start()
    for script in ("reload", "restart"):  # front-2 is there, and does not run
        done = stack.script(script)
        assert done.returncode == 0, done.stdout
    added = stack.script("run", "--detach", "--fronts", 2)
    assert added.returncode == 0 and "front-2/run/peer.sock" in (stack.var / "nginx" / "nginx.conf").read_text(), added.stdout
    both_take()
    assert stack.script("run", "--detach", "--fronts", 1).returncode == 0
    assert stack.counts(coupon)["redeemed"] == next(users)
    stack.verify()
