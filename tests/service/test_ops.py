"""Operating it: top, doctor; restart without a gap; logs; schema; backup and restore; units, TLS and man pages."""
import contextlib
import datetime
import glob
import grp
import json
import os
import platform
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.request

import pymongo
import pytest

import ledger
from own_nginx import certificate, own_nginx
from ports import free_port
from stack import BUILD, LONG_DRAIN, ROOT, Stack, wait_until
from swarm import PATIENCE_S, Swarm, by_code, swarm, taken, takers
from test_ctl import commands


def test_what_run_prints_can_be_pasted(monkeypatch):
    """Into a shell that knows nothing of this copy, whose place has a blank in its name."""
    with tempfile.TemporaryDirectory(prefix="two words ") as place, contextlib.ExitStack() as undo:
        monkeypatch.setenv("COUPONS_TEST_DIR", place)
        stack = Stack()
        undo.callback(stack.remove)
        undo.callback(stack.stop)
        done = stack.script("run", "--detach", status=0)
        steps = done.stdout.partition("A first coupon:\n")[2]
        bare = {name: os.environ[name] for name in ("PATH", "HOME", "COUPONS_BUILD") if name in os.environ}
        done = subprocess.run(["bash", "-e"], input=steps, cwd="/", env=bare, text=True, capture_output=True)
        assert done.returncode == 0 and '"state":"redeemed"' in done.stdout.splitlines()[-1], done.stdout + done.stderr


# ---- doctor ----

CHECKS = ["database", "leak", "replicas", "majority", "schema", "restored", "users", "indexes", "totals", "clock", "disk", "disk", "processes",
          "files", "sockets", "service", "keys", "receipts", "libraries", "libfcgi"]


def doctor(stack, status=0):
    """[(level, check, text)]"""
    printed, said = stack.ctl_apart("doctor", status=status)  # the driver's words on standard error are no checks
    lines = [re.fullmatch(r"(ok|warn|fail) +(\S+) +(.+)", line) for line in printed.splitlines()]
    assert all(lines), printed + said
    return [line.groups() for line in lines]


def finds(stack, check, *words):
    """Doctor fails, by this check alone, and its line says this."""
    failed = [(c, text) for level, c, text in doctor(stack, status=1) if level == "fail"]
    assert [c for c, _ in failed] == [check], failed
    for word in words:
        assert word in failed[0][1], failed


def test_doctor_is_content_with_a_fresh_copy(stack):
    lines = doctor(stack)
    assert [check for _, check, _ in lines] == CHECKS
    of_the_machine = ("disk", "libfcgi", "majority", "clock")  # how full, how old and how slow it is
    worse = [check for level, check, _ in lines if level != "ok" and check not in of_the_machine]
    version = int(re.search(r"MongoDB (\d+)\.", lines[0][2])[1])
    assert worse == (["database", "replicas"] if version < 7 else ["replicas"]), lines
    assert "libmongoc 1." in lines[0][2] and ("no security fixes" in lines[0][2]) == (version < 7), lines[0]


@pytest.mark.parametrize("version, level, word", [
    ("2.4.2-2", "warn", "CVE-2025-23016"), ("2.4.2-2+deb12u1", "ok", "2.4.2-2+deb12u1"), ("2.4.5-0.1", "ok", "2.4.5-0.1"),
    ("", "warn", "cannot determine its version")])
def test_doctor_warns_of_a_libfcgi_that_lacks_its_fix(stack, tmp_path, version, level, word):
    """As a dpkg says that stands first on PATH; the comparison is the real one's."""
    if not shutil.which("dpkg"):
        pytest.skip("dpkg is not there")
    query = tmp_path / "dpkg-query"
    query.write_text(f"#!/bin/sh\n[ -z '{version}' ] || echo 'ii {version}'\n")
    query.chmod(0o755)
    done = subprocess.run([ROOT / "scripts" / "couponctl", "doctor"], text=True, capture_output=True,
                          env={**stack.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    [line] = [line for line in done.stdout.splitlines() if line.split()[1] == "libfcgi"]
    assert line.split()[0] == level and word in line, line


@pytest.mark.parametrize("check, file, right, wrong, advice", [
    ("sockets", "run/worker-1.sock", 0o660, 0o666, "chmod 0660"), ("keys", "keys/storefront", 0o600, 0o644, "chmod go=")])
def test_doctor_sees_a_file_of_the_wrong_mode(stack, check, file, right, wrong, advice):
    path = stack.var / file
    path.chmod(wrong)
    try:
        finds(stack, check, path.name, f"{wrong:04o}", advice)
    finally:
        path.chmod(right)


def test_doctor_sees_a_front_with_another_key_of_receipts(stack):
    front = Stack()
    front.environment["MONGODB_URI"] = (stack.var / "run" / "mongodb_uri").read_text().strip()
    here, there = (s.var / "keys" / "receipt_seed" for s in (stack, front))

    def said():
        return stack.database.fronts.find_one({"_id": {"$regex": f":{front.var}/run$"}})

    def reload_with(text, keys):
        there.write_text(text)
        front.signal("coupond", signal.SIGHUP)
        wait_until("the front to tell of its keys", lambda: (seen := said()) and len(seen["receipts"].split()) == keys)

    with front:
        wait_until("the front to tell of itself", said)
        finds(stack, "receipts", str(front.var), "do not verify", str(here))
        reload_with(f"{here.read_text().strip()}\n{there.read_text().strip()}\n", 2)
        [line] = [line for line in doctor(stack) if line[1] == "receipts"]
        assert line[0] == "warn" and str(front.var) in line[2], line
        reload_with(here.read_text(), 1)
        [line] = [line for line in doctor(stack) if line[1] == "receipts"]
        assert line[0] == "ok" and "2 fronts" in line[2], line
    assert not said(), "it has stopped"


def test_a_front_that_stops_as_soon_as_it_serves_leaves_no_row(stack):
    front = Stack()
    front.environment["MONGODB_URI"] = (stack.var / "run" / "mongodb_uri").read_text().strip()
    before = stack.database.fronts.count_documents({})
    with front:
        wait_until("the front to tell of itself", lambda: stack.database.fronts.count_documents({}) == before + 1)
    assert stack.database.fronts.count_documents({}) == before


def test_doctor_sees_a_missing_index(stack):
    ledger = stack.database.ledger
    ledger.drop_index("due")
    try:
        finds(stack, "indexes", "ledger.due")
    finally:
        ledger.create_index([("_id.c", 1), ("_id.l", 1), ("due", 1), ("_id.seq", 1)], name="due",
                            partialFilterExpression={"due": {"$exists": True}})
    doctor(stack)


def test_doctor_sees_totals_that_cannot_be_read(stack):
    at = {"c": "held-up", "l": 0, "at": datetime.datetime(2026, 1, 1)}
    counts = dict.fromkeys(("issued", "reserved", "redeemed", "cancelled", "expired", "reversed", "discount_minor"), 0)
    for bad in ({"redeemed": "some"}, {"seq": 1.5}, {"expired": None}):
        stack.database.totals.insert_one({"_id": at, "seq": 1, **counts, **bad})
        try:
            finds(stack, "totals", "held-up", "couponctl reconcile")
        finally:
            stack.database.totals.delete_one({"_id": at})
    doctor(stack)


def test_doctor_sees_a_database_of_a_newer_version(beside):
    """Beside what it finds because nothing runs: a service would end."""
    stack = beside()
    stack.rest()
    stack.database.schema.update_one({"_id": "schema"}, {"$set": {"form": 99}})
    failed = {check: text for level, check, text in doctor(stack, status=1) if level == "fail"}
    assert "99" in failed["schema"] and "install the newer one" in failed["schema"], failed


def test_doctor_leaves_nothing_in_the_database(stack):
    doctor(stack)
    assert sorted(d["_id"] for d in stack.database.schema.find()) == ["installation", "schema"]


def test_doctor_says_what_is_wrong_where_nothing_runs(another_stack):
    stack = another_stack()
    assert stack.script("stop").returncode == 0
    failed = {check: text for level, check, text in doctor(stack, status=1) if level == "fail"}
    assert set(failed) == {"database", "processes", "sockets", "service"}, failed
    assert "No MongoDB server answers" in failed["database"] and "start it" in failed["processes"]


# ---- top ----

def test_top_prints_rates_and_counts_once_without_a_terminal(stack):
    coupon = stack.coupon(slots=50_000)  # more than are taken until the frame

    def frame():
        """One in which there were decisions."""
        text = stack.ctl("top", "--once", "--interval", 3, coupon)
        rate = re.search(r"^decisions +ok ([\d.]+)/s", text, re.M)
        assert rate, text
        return float(rate[1]) > 0 and text

    with Swarm([stack.way()], takers(coupon), connections=2, pause_s=0.02) as crowd:
        crowd.more(5)
        text = wait_until("a frame with decisions", frame)
    assert "\x1b" not in text, "no escapes where there is no terminal"
    assert re.search(r"^latency +p50 [\d.]+ ms +p99 [\d.]+ ms", text, re.M), text
    assert re.search(rf"^{coupon} +50000 +\d+ ", text, re.M), text
    assert coupon in stack.ctl("top", "--once", "--interval", 1), "without names: the newest active ones"


def test_top_says_when_nobody_answers(stack):
    assert stack.ctl("top", "--once", "--url", f"http://127.0.0.1:{free_port()}", status=3)
    assert stack.ctl("top", "--interval", "0", status=2)


def test_a_command_that_is_killed_leaves_nothing_in_shared_memory(stack):
    """A later process with its id would meet it."""
    as_users_do = {name: value for name, value in stack.environment.items() if name != "MONGOC_DISABLE_SHM"}
    with subprocess.Popen([BUILD / "couponctl", "top"], env=as_users_do, stdout=subprocess.PIPE) as top:
        try:
            assert top.stdout.read(1)
        finally:
            top.kill()
    assert not glob.glob(f"/dev/shm/*-{top.pid}")


# ---- restart, logs, schema ----

def test_a_restart_under_load_refuses_nobody(beside):
    """scripts/restart: two coupond side by side for a moment, and nginx from one to the other and back."""
    stack = beside(LONG_DRAIN)
    coupon = stack.coupon(slots=200_000)
    before, master = stack.pids(), stack.pid("coupond")
    with Swarm([stack.way()], takers(coupon), connections=16, again=(), pause_s=0.01, late_s=PATIENCE_S) as crowd:
        crowd.more(300)
        stack.script("restart", status=0)
        crowd.more(300)
    calls = crowd.done
    # A connection that nginx closes while it is idle may meet a request that is just being sent, once for each of the two
    # ways: it was never read, for its repeat over a new connection is no replay. Nothing else was repeated.
    assert by_code(calls) == {"201": len(calls)}, by_code(calls)
    assert sum(c.tries - 1 for c in calls) <= 2 * 16, [c for c in calls if c.tries > 1]
    assert stack.pid("coupond") not in (None, master)
    assert not set(before.values()) & set(stack.pids().values())
    assert not (stack.var / "run" / "next").exists()
    assert set(ledger.LaneLedger(stack, coupon).ids()) == {b["id"] for b in taken(calls)}
    stack.verify()
    doctor(stack)


def test_logs_are_rotated_without_losing_a_line(beside):
    stack = beside()
    log = stack.var / "log" / "coupond.log"
    log.rename(log.with_suffix(".log.1"))
    stack.signal("coupond", signal.SIGUSR1)
    wait_until("a new log", log.exists)
    stack.signal("worker-0", signal.SIGKILL)
    wait_until("a line in it", lambda: "event=process.died process=worker-0" in log.read_text())
    wait_until("the successor's line in it", lambda: re.search(r"role=worker-0 .*event=worker.started", log.read_text()))


def test_a_reload_that_is_refused_does_not_speak_for_the_one_before(beside):
    """Whose settings are in force hears so, though the next ones came, and were refused, while the processes of before drained."""
    stack = beside("[coupond]\ndrain_s = 300\n")
    config = stack.var / "coupond.ini"
    before = stack.signal("worker-0", signal.SIGSTOP)
    with subprocess.Popen([ROOT / "scripts" / "reload"], env=stack.environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        wait_until("the successors to take over", lambda: "event=reload.done" in stack.log())
        config.write_text(config.read_text() + "[log]\nlevel = perhaps\n")
        stack.signal("coupond", signal.SIGHUP)
        os.kill(before, signal.SIGCONT)
        said = first.communicate()[0]
    assert first.returncode == 0 and not said, said
    wait_until("the next one to be refused", lambda: "event=reload.refused" in stack.log())


def test_a_reload_makes_the_logs_json_and_as_quiet_as_set(beside):
    """In every process, the successors as well as the master; what was written before stays as it is."""
    stack = beside("[audit]\npath = log/audit.log\n")
    coupon, config = stack.coupon(slots=1), stack.var / "coupond.ini"
    audit, text = stack.var / "log" / "audit.log", config.read_text()

    def reload_with(settings):
        """What the log has from then on, as objects."""
        config.write_text(text + settings)
        stack.script("reload", status=0)
        length = len(stack.log())
        return lambda: [json.loads(line) for line in stack.log()[length:].split("\n")[:-1]]

    lines = reload_with("[log]\nformat = json\n")
    stack.kill("worker-0")
    wait_until(lambda: f"the death and the successor: {lines()}", lambda: {("process.died", "master"), ("worker.started", "worker-0")} <=
               {(line["event"], line["role"]) for line in lines()})
    for line in lines():
        assert list(line)[:5] == ["time", "level", "role", "pid", "event"] and isinstance(line["pid"], int), line
    [died] = [line for line in lines() if line["event"] == "process.died"]
    assert (died["level"], died["role"], died["process"], died["signal"]) == ("error", "master", "worker-0", 9), died

    at = len(audit.read_text())
    stack.client("storefront").take(coupon, "u", "k").expect(201)
    line = json.loads(audit.read_text()[at:])
    assert (line["call"], line["status"], line["coupon"], line["from"]) == ("redemption_take", 201, coupon, "127.0.0.1"), line

    lines, died = reload_with("[log]\nformat = json\nlevel = error\n"), stack.pid("worker-0")
    stack.kill("worker-0")
    wait_until("its successor", lambda: stack.pid("worker-0") not in (None, died))
    wait_until("an answer of it", lambda: stack.direct(0, "ops").get("/coupons/-/health", may_fail=True).status == 200)
    assert {line["level"] for line in lines()} == {"error"}, lines()


def test_a_newer_database_is_refused_with_what_to_do(beside):
    stack = beside()
    assert stack.database.schema.find_one({"_id": "schema"})["form"] == 2
    stack.database.schema.update_one({"_id": "schema"}, {"$set": {"form": 7}})
    (stack.var / "second").mkdir()
    again = subprocess.run([BUILD / "coupond", "-c", stack.environment["COUPONS_CONFIG"], "-o", f"coupond.run_dir={stack.var}/second"],
                           env={**stack.environment, "MONGODB_URI": (stack.var / "run" / "mongodb_uri").read_text().strip()},
                           text=True, timeout=120, capture_output=True)
    assert again.returncode == 78, again.stderr
    assert "has schema 7" in again.stderr and "Start the newer version" in again.stderr, again.stderr


# ---- the replica set that scripts/run makes ----

@contextlib.contextmanager
def no_service(another_stack):
    """A database alone, and what makes a replica set of it: (pymongo's client, replset_init(address))."""
    stack = another_stack()
    stack.rest()
    host, port = stack.mongo.address

    def replset_init(address):
        return subprocess.run([BUILD / "couponctl", "replset-init", stack.var / "db" / "keyfile",
                               stack.var / "keys" / "mongodb_password", "coupons", "rs0", address],
                              text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    with pymongo.MongoClient(host, port, directConnection=True, username="__system", password=(stack.var / "db" / "keyfile").read_text(),
                             authSource="local", authMechanism="SCRAM-SHA-256") as own:
        yield own, port, replset_init


def members(mongo):
    return [m["host"] for m in mongo.admin.command("replSetGetConfig")["config"]["members"]]


def test_a_replica_set_gets_its_new_address_though_connections_drop(another_stack):
    """A server whose set does not know it drops connections, also the one that carries the new address."""
    with no_service(another_stack) as (mongo, port, replset_init):
        mongo.admin.command("configureFailPoint", "failCommand", mode={"times": 2},
                            data={"failCommands": ["replSetReconfig"], "closeConnection": True, "failInternalCommands": True})
        done = replset_init(f"localhost:{port}")
        assert done.returncode == 0, done.stdout
        assert members(mongo) == [f"localhost:{port}"]
        again = replset_init(f"127.0.0.1:{port}")
        assert again.returncode == 0 and members(mongo) == [f"127.0.0.1:{port}"], again.stdout


def test_a_replica_set_of_several_members_keeps_them(another_stack):
    with no_service(another_stack) as (mongo, port, replset_init):
        config = mongo.admin.command("replSetGetConfig")["config"]
        config["members"].append({"_id": 1, "host": f"127.0.0.1:{free_port()}", "votes": 0, "priority": 0})
        config["version"] += 1
        mongo.admin.command("replSetReconfig", config, force=True)
        before = members(mongo)
        refused = replset_init(f"localhost:{port}")
        assert refused.returncode == 1 and "it has several members" in refused.stdout, refused.stdout
        assert members(mongo) == before


# ---- backup and restore ----

def restored(another_stack, files, keys):
    """A copy whose database has these files."""
    stack = another_stack()
    assert stack.script("stop").returncode == 0
    shutil.rmtree(stack.var / "db")
    shutil.copytree(files, stack.var / "db")
    shutil.rmtree(stack.var / "keys")
    shutil.copytree(keys, stack.var / "keys")
    (stack.var / "db" / "mongod.lock").unlink(missing_ok=True)
    stack.mongo.close()
    return stack.start()


def holds_what_was_acknowledged(stack, coupon, calls):
    said = {b["id"] for b in taken(calls)}
    stored = set(ledger.LaneLedger(stack, coupon).ids())
    assert said <= stored, f"{len(said - stored)} of {len(said)} were acknowledged before the backup, and are not in it"
    stack.verify()
    doctor(stack)
    sample = calls[0]
    again = stack.client("storefront").take(coupon, sample.body["user"], sample.key)
    assert again.expect(201).body == sample.reply.body, "a key gives its first answer, also after a restore"
    stack.client("storefront").take(coupon, "somebody-new").expect(201)
    stack.verify()


@pytest.mark.full
def test_a_copy_of_a_cleanly_stopped_database_is_a_backup(another_stack, tmp_path):
    stack = another_stack()
    coupon = stack.coupon(slots=2000)
    calls = swarm([stack.way()], takers(coupon, 1000), connections=16)
    assert stack.script("stop").returncode == 0
    shutil.copytree(stack.var / "db", tmp_path / "db")
    shutil.copytree(stack.var / "keys", tmp_path / "keys")
    stack.mongo.close()
    stack.start()
    swarm([stack.way()], takers(coupon, 1500), connections=16)  # what comes after is not in it
    back = restored(another_stack, tmp_path / "db", tmp_path / "keys")
    assert back.counts(coupon)["redeemed"] == 1000
    holds_what_was_acknowledged(back, coupon, calls)


@pytest.mark.full
def test_a_copy_of_a_locked_database_is_a_backup_while_the_service_goes_on(another_stack, tmp_path):
    """fsyncLock, copy, unlock, under load: callers wait meanwhile, or repeat."""
    stack = another_stack()
    coupon = stack.coupon(slots=50_000)
    with Swarm([stack.way()], takers(coupon), connections=8, pause_s=0.005) as crowd:
        crowd.more(500)
        stack.mongo.admin.command("fsync", lock=True)
        try:
            acknowledged = list(crowd.done)
            shutil.copytree(stack.var / "db", tmp_path / "db")
        finally:
            stack.mongo.admin.command("fsyncUnlock")
        crowd.more(200)
    calls = crowd.done
    assert set(by_code(calls)) <= {"201", "201 replayed"}, by_code(calls)
    stack.verify()
    back = restored(another_stack, tmp_path / "db", stack.var / "keys")
    holds_what_was_acknowledged(back, coupon, [c for c in acknowledged if c.reply])


# ---- conf/ and nginx/ ----

def one_address_holds_a_hundred_requests(port, trusting):
    """By limit_conn: with as many bodies on their way that do not come, the next request is refused."""
    def status():
        try:
            with urllib.request.urlopen(f"https://localhost:{port}/coupons/-/health", context=trusting) as reply:
                return reply.status
        except urllib.error.HTTPError as refused:
            assert json.load(refused)["code"] == "rate_limited"
            return refused.code

    with contextlib.ExitStack() as slow:
        def half_a_body():
            s = slow.enter_context(trusting.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"))
            s.sendall(b"POST /coupons/x/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            s.setblocking(False)
            return s

        def is_given_up(s):
            try:
                return s.recv(1) is not None
            except ssl.SSLWantReadError:
                return False
            except OSError:
                return True

        def refused():
            """With a hundred, of which nginx gives each up after a while: then there is another one."""
            held[:] = [half_a_body() if is_given_up(s) else s for s in held]
            return status() == 429

        held = [half_a_body() for _ in range(100)]
        wait_until("the next one to be refused", refused)
    wait_until("it to be served again", lambda: status() == 200)


def headers_at(port, trusting, path):
    try:
        with urllib.request.urlopen(f"https://localhost:{port}{path}", context=trusting) as reply:
            return reply.headers
    except urllib.error.HTTPError as refused:
        return refused.headers


@pytest.mark.filterwarnings("ignore:.*TLSv1_1:DeprecationWarning")
def test_the_front_speaks_tls_as_the_example_says(stack, tmp_path):
    """nginx/tls.conf and nginx/hardening.conf in an nginx of their own, before this copy's workers."""
    tls, plain = free_port(), free_port()
    certificate(tmp_path, "DNS:localhost")

    def example(name):
        text = (ROOT / "nginx" / name).read_text().replace("/etc/ssl/coupons", str(tmp_path)).replace("coupons.example.com", "localhost")
        text = "\n".join(line for line in text.splitlines() if "[::]" not in line)
        return re.sub(r"listen 80\b", f"listen 127.0.0.1:{plain}", re.sub(r"listen 443\b", f"listen 127.0.0.1:{tls}", text))

    (tmp_path / "tls.conf").write_text(example("tls.conf").replace(" backlog=4096", ""))
    (tmp_path / "hardening.conf").write_text(example("hardening.conf"))
    text = (stack.var / "nginx" / "nginx.conf").read_text()
    listen, limit = (re.search(pattern, text)[0] for pattern in (r"listen [^;]*;", r"limit_conn coupons_address \d+;"))
    changes = [(f"    server {{\n        {listen}",
                f"    include {tmp_path}/hardening.conf;\n    server {{\n        include {tmp_path}/tls.conf;"),
               (limit, "limit_conn coupons_address 100;")]
    with own_nginx(stack, tmp_path, *changes):
        trusting = ssl.create_default_context(cafile=tmp_path / "fullchain.pem")
        with urllib.request.urlopen(f"https://localhost:{tls}/coupons/-/health", context=trusting) as reply:
            assert json.load(reply) == {"status": "alive"}
        for path in ("/coupons/-/health", "/coupons/-/docs/", "/coupons/-/dashboard/app.js", "/coupons/-/openapi.json", "/coupons/-/problems/busy",
                     "/coupons/-/problems/none", "/coupons", "/elsewhere"):
            assert headers_at(tls, trusting, path)["Strict-Transport-Security"] == "max-age=63072000", path
        one_address_holds_a_hundred_requests(tls, trusting)
        old = ssl.create_default_context(cafile=tmp_path / "fullchain.pem")
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((urllib.error.URLError, ssl.SSLError)):
            urllib.request.urlopen(f"https://localhost:{tls}/coupons/-/health", context=old)
        blind = ssl._create_unverified_context()
        with pytest.raises((urllib.error.URLError, ssl.SSLError)):  # not by its name: no handshake
            urllib.request.urlopen(f"https://127.0.0.1:{tls}/coupons/-/health", context=blind)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{plain}/coupons/-/health")
        assert refused.value.code == 403 and json.load(refused.value)["code"] == "forbidden"


def test_the_logs_are_turned_and_who_writes_them_is_told(tmp_path):
    """conf/logrotate/coupons, with a folder and a user that are here, and in place of systemctl a note that it was called."""
    text = (ROOT / "conf/logrotate/coupons").read_text()
    us = f"{pwd.getpwuid(os.geteuid()).pw_name} {grp.getgrgid(os.getegid()).gr_name}"
    for there, here in (("/var/log/coupons/", f"{tmp_path}/"), ("su coupons coupons", f"su {us}"),
                        ("create 0640 coupons coupons", f"create 0640 {us}"), ("systemctl kill", f"echo > {tmp_path}/said")):
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    (tmp_path / "rules").write_text(text)
    (tmp_path / "rules").chmod(0o644)
    tmp_path.chmod(0o755)
    log = tmp_path / "coupond-blue.log"
    log.write_text("a line\n")
    done = subprocess.run(["logrotate", "--force", "--verbose", "--state", tmp_path / "state", tmp_path / "rules"], text=True,
                          capture_output=True)
    assert done.returncode == 0 and "error:" not in done.stderr, done.stderr
    assert (log.read_text(), log.with_suffix(".log.1").read_text()) == ("", "a line\n")
    said = (tmp_path / "said").read_text()
    assert "--signal=USR1" in said and "coupond@*.service" in said, said


UNITS = {  # name: (what it is made of, how exposed it may be: nginx begins as root, and gives that up by itself)
    "coupond@blue.service": ("", "coupond@.service", 2.5),
    "nginx.service": ("[Unit]\nDescription=nginx\n[Service]\nExecStart=/bin/true\n", "nginx-hardening.conf", 6.0),
}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not there")
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_one_and_hardened(tmp_path, name):
    before, file, most = UNITS[name]
    text = before + (ROOT / "conf/systemd" / file).read_text()
    unit = tmp_path / name
    unit.write_text(re.sub(r"/usr/(sbin/coupond|lib/coupons/first-keys)", "/bin/true", text).replace("Documentation=", "#Documentation="))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True, capture_output=True, timeout=60)
    assert name not in checked.stderr, checked.stderr
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], text=True, capture_output=True, timeout=60)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert level and float(level[1]) < most, rated.stdout[-300:]


@pytest.mark.parametrize("file", ["coupond@.service", "nginx-hardening.conf"])
def test_a_unit_has_its_limits(file):
    """And what its processes reach, the deliverer of webhooks among them, is not cut off as a whole."""
    given = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / "conf/systemd" / file).read_text(), re.MULTILINE))
    assert re.fullmatch(r"\d+[MG]", given["MemoryMax"]) and int(given["TasksMax"]) > 0
    assert set(given["IPAddressDeny"].split()) == {"link-local", "multicast"}


# What the programs were built with: gcc names its options in what it writes for debuggers.
HARDENED = {"-d": ["FLAGS_1.* NOW", "FLAGS_1.* PIE"], "-l": ["GNU_RELRO", "GNU_STACK.* RW "],
            "--dyn-syms": ["__v?snprintf_chk", "__stack_chk_fail"]}


@pytest.mark.skipif(BUILD.name not in ("build", "build-dev"), reason="sanitizers bring checks of their own")
@pytest.mark.parametrize("program", ["coupond", "couponctl"])
def test_a_program_is_hardened(program):
    path = BUILD / program
    for option, wanted in HARDENED.items():
        said = subprocess.run(["readelf", "-W", option, path], text=True, capture_output=True, check=True).stdout
        for pattern in wanted:
            assert re.search(pattern, said), f"{program}: no {pattern} in readelf {option}\n{said[-3000:]}"
    if platform.machine() == "x86_64" and os.environ.get("CC", "gcc") == "gcc":
        for option in (b"-fstack-clash-protection", b"-fcf-protection"):
            assert option in path.read_bytes(), f"{program}: built without {option}"


def test_the_units_options_are_settings(stack):
    """What the unit says by -o, coupond understands."""
    unit = (ROOT / "conf/systemd/coupond@.service").read_text()
    options = re.findall(r"-o (\S+)", unit)
    assert options
    arguments = [word for option in options for word in ("-o", option.replace("%i", "blue"))]
    done = subprocess.run([BUILD / "coupond", "-c", ROOT / "conf/coupond.ini", *arguments, "-T"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


MAN = ROOT / "conf" / "man"


@pytest.mark.parametrize("page", sorted(p.name for p in MAN.iterdir()))
def test_a_man_page_has_no_fault(page):
    if shutil.which("man") is None:
        pytest.skip("man is not there")
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", MAN / page], text=True, capture_output=True,
                          env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and not done.stderr, done.stderr
    text = re.sub(".\b", "", done.stdout)  # bold is printed twice
    assert "NAME" in text and "EXIT STATUS" in text, text


def test_every_command_of_couponctl_is_in_its_page(stack):
    page = re.sub(r"\\(.)", r"\1", (MAN / "couponctl.1").read_text())
    for command in commands(stack):
        # in the help a single word is followed by its arguments or its explanation
        entries = re.findall(r"^\.B[RI]? \"?([a-z -]+?) *\"?(?: [\"\[].*| \[.*)?$", page, re.M)
        assert any(command == entry or command.split()[0] == entry for entry in entries), f"{command} is not in couponctl.1: {entries}"


def test_every_option_of_a_command_is_in_the_page(stack):
    page, listed = (MAN / "couponctl.1").read_text().replace("\\-", "-"), commands(stack)
    groups = {word for word in {c.split()[0] for c in listed} if stack.couponctl(word, "--help").stdout.startswith("  couponctl ")}
    missing = []
    for command in listed:
        words = command.split() if command.split()[0] in groups else command.split()[:1]
        for option in re.findall(r"--[a-z][a-z-]+", stack.ctl(*words, "--help")):
            if option != "--usage" and not re.search(rf"{option}\b(?!-)", page):
                missing.append(f"{' '.join(words)} {option}")
    assert not missing, missing


def test_every_option_of_coupond_is_in_its_page():
    usage = subprocess.run([BUILD / "coupond", "-h"], text=True, capture_output=True).stdout
    page = (MAN / "coupond.8").read_text().replace("\\-", "-")
    for option in re.findall(r"^  (-\w)", usage, re.M):
        assert re.search(rf"^\.BI? \"?{option}\b", page, re.M), f"{option} is not in coupond.8"
    for name in re.findall(r"\b(TERM|HUP|USR\d)\b", usage):
        assert f".B SIG{name}\n" in page, f"SIG{name} is not in coupond.8"


def test_a_copys_own_settings_go_before_the_tracked_file(stack, tmp_path):
    environment = {name: value for name, value in stack.environment.items() if name != "COUPONS_CONFIG"} | {"COUPONS_VAR": str(tmp_path)}

    def in_force():
        printed = subprocess.run([ROOT / "scripts" / "couponctl", "config"], env=environment, text=True, capture_output=True, check=True).stdout
        return re.search(r"^queue_max = (\d+)", printed, re.MULTILINE)[1]

    assert in_force() == "1024"
    (tmp_path / "coupond.ini").write_text("[worker]\nqueue_max = 77\n")
    assert in_force() == "77"
