"""What is secret stays so: it stands in no log, no error, no core file and no list of processes; files are for whom they are."""
import ctypes
import os
import pathlib
import platform
import re
import resource
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest

from client import Http, http_request
from stack import BUILD, GUESSES, PROCESSES, SETTINGS, SLOW_DATABASE, WEBHOOKS, WORKERS, Stack, age_s, children, wait_until

ROLES = ("storefront", "reporting", "ops")
SOMEBODY = 65534  # the user nobody
TGKILL = {"x86_64": 234, "aarch64": 131}
WRAPPER = """#!/bin/sh
for word in "$0" "$@"; do printf '%s\\n' "$word" >> {log}; done
exec {program} "$@"
"""


class Planted:
    """Secrets that are made for this test and found nowhere else, by what they are."""

    def __init__(self):
        self.found_by = {}

    def __setitem__(self, name, secret):
        assert len(secret) >= 10, f"{secret} could be found by chance"
        self.found_by[name] = secret

    def __getitem__(self, name):
        return self.found_by[name]

    def within(self, data):
        """The names of those that stand in the bytes or text; of an API key also its secret half alone."""
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        return [name for name, secret in self.found_by.items() if secret in text or secret.split("_")[-1] in text]


@pytest.fixture(scope="module")
def planted():
    return Planted()


@pytest.fixture(scope="module")
def database_user(stack, planted):
    """A user of the shared copy's mongod, with a password; the URI that names both."""
    planted["database password"] = f"pass{secrets.token_hex(12)}"
    stack.mongo.admin.command("createUser", "keeper", pwd=planted["database password"], roles=["root"])
    host = (stack.var / "run" / "mongodb_uri").read_text().strip().split("@")[1]
    yield f"mongodb://keeper:{planted['database password']}@{host}&authSource=admin"
    stack.mongo.admin.command("dropUser", "keeper")


@pytest.fixture(scope="module")
def guarded(database_user, planted, tmp_path_factory):
    """A copy that has everything to hide: it logs in to the database with a password, and writes all logs that it can.
    Every program that its scripts start notes its command line in commands."""
    tools = tmp_path_factory.mktemp("tools")
    for name in ("curl", "nginx", "setsid"):
        program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        (tools / name).write_text(WRAPPER.format(log=tools / "commands", program=program))
        (tools / name).chmod(0o755)
    # a database of its own in the shared copy's mongod
    s = Stack(SETTINGS + SLOW_DATABASE + WEBHOOKS + GUESSES + "[mongodb]\ndatabase = guarded\n[log]\nlevel = debug\n")
    s.environment.update(MONGODB_URI=database_user, COUPONS_ACCESS_LOG="1", PATH=f"{tools}:{os.environ['PATH']}")
    s.commands = tools / "commands"
    try:
        s.start()
        for role in ROLES:
            planted[f"{role} key"] = s.key(role)
        yield s
    finally:
        if s.mongo:
            s.mongo.drop_database("guarded")
        s.stop()
        s.remove()


@pytest.fixture(scope="module")
def said(guarded, planted):
    """A day of the service, all that can be answered, right and wrong, with every secret in every place where a caller may
    put it; (reply, what its caller knows) of each call."""
    ops, shop = guarded.client("ops"), guarded.client("storefront")
    replies = []

    def note(who, reply, *own):
        replies.append((reply, set(own) | {f"{who} key"}))
        return reply

    for name in ("free code", "taken code", "unknown code", "retired code"):
        planted[name] = f"CODE{secrets.token_hex(10)}"
    planted["webhook secret"] = "whsec_" + secrets.token_hex(32)
    planted["user"] = f"user{secrets.token_hex(10)}"
    planted["idempotency key"] = f"idem{secrets.token_hex(10)}"
    codes = ("free code", "taken code", "retired code")
    coupon = guarded.imported([planted[name] for name in codes], cap={"per_user": 100})
    take = {"user": planted["user"], "code": planted["taken code"]}
    note("storefront", shop.take(coupon, **take, key=planted["idempotency key"]).expect(201), "taken code", "user")
    for name in codes + ("unknown code",):
        other = {"user": "somebody-else", "code": planted[name]}
        if name in ("taken code", "unknown code"):
            why = "code_taken" if name == "taken code" else "code_not_found"
            note("storefront", shop.take(coupon, "somebody-else", code=planted[name])).problem(why)
        note("storefront", shop.post("/coupons/-/resolve", other))
        note("storefront", shop.post(f"/coupons/{coupon}/check", other))
        one = f"/coupons/{coupon}/codes/{planted[name]}"
        for path in (one, f"{one}/no-such?x={planted[name]}"):
            note("ops", ops.get(path), name, "user")
            note("storefront", shop.get(path))
            note("ops", ops.post(path, b"x" * 70000), name)     # refused by nginx itself, and noted
            note("ops", ops.delete(path), name)
    note("ops", ops.post(f"/coupons/{coupon}/codes/{planted['retired code']}/retire"), "retired code")
    for path in (f"/coupons/{coupon}/users/{planted['user']}", f"/coupons/-/users/{planted['user']}",
                 f"/coupons/{coupon}/redemptions?user={planted['user']}"):
        note("storefront", shop.get(path), "user", "taken code")
        note("storefront", shop.post(path, b"x" * 70000), "user")
    hook = {"url": "http://127.0.0.1:9/", "events": ["redemption.batch"], "secret": planted["webhook secret"]}
    made = note("ops", ops.post("/coupons/-/webhooks", hook).expect(201), "webhook secret").json()["id"]
    for wrong in ({"events": ["no such"]}, {"url": "x"}, {"secret": planted["webhook secret"][:-1] + "!"}):
        note("ops", ops.post("/coupons/-/webhooks", {**hook, **wrong}))
    for path in ("/coupons/-/webhooks", f"/coupons/-/webhooks/{made}", f"/coupons/-/webhooks/{made}/deliveries"):
        note("ops", ops.get(path))
        note("storefront", shop.get(path))
    note("ops", ops.patch(f"/coupons/-/webhooks/{made}", {"events": ["coupon.low_stock"]}))
    note("ops", ops.post(f"/coupons/-/webhooks/{made}/rotate", {"secret": hook["secret"]}), "webhook secret")
    for role in ROLES:
        for value in (f"Bearer {planted[f'{role} key']}x", f"Basic {planted[f'{role} key']}", planted[f"{role} key"]):
            note(role, guarded.client().get(f"/coupons/{coupon}", headers={"Authorization": value}))
    for role in ROLES:
        for text in (f'{{"user": "{planted["user"]}", "code": "{planted["free code"]}"', f'["{planted["free code"]}"]'):
            note(role, guarded.client(role).post(f"/coupons/{coupon}/redemptions", text.encode(), idempotency_key="k"))
        for path in ("-/metrics", "-/jobs", f"{coupon}/counts", f"{coupon}/refusals"):
            note(role, guarded.client(role).get(f"/coupons/{path}"))
    long = planted["free code"] * 4000
    raw = http_request("GET", f"/coupons/{coupon}/codes/{long}", [("Authorization", f"Bearer {ops.key}")], None)
    raw += http_request("GET", "/coupons", [("Authorization", f"Bearer {ops.key}{'x' * 70000}")], None)
    replies += [(reply, {"free code"}) for reply in ops.raw(raw, replies=2, shut=True)]
    return replies


def processes_of(stack):
    """The copy's processes, with all that come from them."""
    found, new = set(), [int((stack.var / "run" / f"{name}.pid").read_text()) for name in ("coupond", "nginx")]
    while new:
        found.update(new)
        new = [child for pid in new for child in children(pid) if child not in found]
    return found


def logs_of(stack):
    """Everything that was written for people to read; {path: text}."""
    return {str(path): path.read_text(errors="replace") for path in (stack.var / "log").rglob("*") if path.is_file()}


def search(planted, found):
    """{where: what stands there} of whatever should not."""
    return {where: names for where, text in found.items() if (names := planted.within(text))}


# ---- replies, logs ----

def test_replies_show_nobody_what_is_not_theirs(said, planted):
    assert len(said) > 80
    for reply, own in said:
        head = "".join(f"{name}: {value}\n" for name, value in reply.headers)
        shown = set(planted.within(head + reply.body.decode("utf-8", "replace"))) - own
        assert not shown, f"{shown}\n{reply}"
        assert not [name for name in own if name.endswith("key")] or not set(planted.within(reply.body)) & {
            f"{role} key" for role in ROLES}, f"a reply shows the caller's key\n{reply}"


def test_no_log_shows_a_secret(stack, guarded, said, planted):
    """Nor mongod's, which is the shared copy's."""
    shop = guarded.client("storefront")
    pid = guarded.pid("worker-0")
    for worker in range(WORKERS):  # nginx meets sockets that do not answer, and some that are not there
        path = guarded.var / "run" / f"worker-{worker}.sock"
        path.rename(f"{path}.away")
    try:
        user, code = f"/coupons/x/users/{planted['user']}", f"/coupons/x/codes/{planted['free code']}"
        for method, target in (("GET", user), ("GET", code), ("POST", f"{code}/retire")):
            shop.close()
            shop.request(method, target, may_fail=True)
            guarded.client("ops").request(method, target, may_fail=True)
    finally:
        for worker in range(WORKERS):
            path = guarded.var / "run" / f"worker-{worker}.sock"
            pathlib.Path(f"{path}.away").rename(path)
    assert guarded.pid("worker-0") == pid
    guarded.couponctl("doctor")
    logs = logs_of(guarded)
    wait_until("the access log", lambda: "/codes/* " in (guarded.var / "log" / "access.log").read_text())
    assert "event=" in logs[str(guarded.var / "log" / "coupond.log")]
    assert search(planted, logs_of(guarded)) == {}
    assert search(planted, {"mongod": (stack.var / "log" / "mongod.log").read_text(errors="replace")}) == {}


def test_a_database_that_refuses_the_password_is_reported_without_it(database_user, planted):
    useless = [database_user.replace(*change) for change in (
        ("keeper:", "nobody:"), ("@", "%zz@"), ("@", "@@"), ("mongodb://", "mongodb+srv://"), ("mongodb://", ""))]
    for uri in useless:
        s = Stack(SETTINGS + "[mongodb]\nserver_selection_timeout_ms = 500\n")
        s.environment["MONGODB_URI"] = uri
        try:
            done = s.script("run", "--detach")
            assert done.returncode != 0, f"{uri} should be of no use\n{done.stdout}"
            assert search(planted, {**logs_of(s), "scripts/run": done.stdout}) == {}
            for tool in (["verify"], ["doctor"], ["config"], ["keys", "list"]):
                assert search(planted, {str(tool): s.couponctl(*tool).stdout}) == {}
        finally:
            s.script("stop")
            s.remove()


def test_the_database_holds_no_key(guarded, said, planted):
    for name in guarded.mongo["guarded"].list_collection_names():
        stored = repr(list(guarded.mongo["guarded"][name].find()))
        shown = [found for found in planted.within(stored) if found.endswith(" key") and found != "idempotency key"]
        assert not shown and planted["database password"] not in stored, f"{shown} in {name}"


# ---- processes ----

def test_no_process_shows_a_secret_by_its_command_line_or_environment(guarded, said, planted):
    """Root sees the environment of all; others do not even see that. A reload still knows the database."""
    guarded.script("reload", status=0)  # it returns when the processes of before are gone
    pids = processes_of(guarded)
    assert len(pids) >= len(PROCESSES) + 3
    shown = {f"{pid} {name}": pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
             for pid in pids for name in ("cmdline", "environ")}
    assert search(planted, shown) == {}
    assert any(b"MONGODB_URI=*" in text for text in shown.values()), "the environment was not looked at"


def test_no_program_that_the_scripts_start_gets_a_secret_as_an_argument(guarded, said, planted):
    for name, *arguments in (["stop"], ["run", "--detach"], ["restart"]):  # started again, it tries the keys that it has
        guarded.script(name, *arguments, status=0)
    commands = guarded.commands.read_text()
    assert "key-check" in commands and "nginx.conf" in commands, commands
    assert planted.within(commands) == []


@pytest.mark.parametrize("option", ["--key", "--mongodb"])
def test_couponctl_hides_what_it_was_given(guarded, planted, database_user, option):
    value = planted["ops key"] if option == "--key" else database_user
    with subprocess.Popen([BUILD / "couponctl", option, value, "top"],
                          env=guarded.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tool:
        try:
            shown = pathlib.Path(f"/proc/{tool.pid}/cmdline")
            wait_until("couponctl to have read its arguments", lambda: b"***" in shown.read_bytes())
            assert planted.within(shown.read_bytes()) == []
        finally:
            tool.kill()


# ---- memory ----

@pytest.fixture
def plain(stack):
    """A coupond beside the shared copy's, on its database, started by somebody without special rights who permits core files:
    (its directory, its pids, what makes a process one of that somebody's)."""
    if "address" in BUILD.name:
        pytest.skip("a leak checker reads the process that it checks")
    place = pathlib.Path(tempfile.mkdtemp(prefix="coupons-test-plain-"))
    binary = shutil.copy(BUILD / "coupond", place / "coupond")
    shutil.copy(stack.var / "coupond.ini", place / "coupond.ini")
    uri = (stack.var / "run" / "mongodb_uri").read_text().strip()

    def become():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
            os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)

    if os.getuid() == 0:
        os.chown(place, SOMEBODY, SOMEBODY)
    place.chmod(0o755)
    options = [f"coupond.run_dir={place}", f"log.path={place}/log", f"receipts.seed_file={place}/none",
               f"mongodb.high_water_file={place}/high_water"]
    command = [binary, "-c", place / "coupond.ini", *(word for option in options for word in ("-o", option))]
    with subprocess.Popen(command, cwd=place,
                          env={**stack.environment, "MONGODB_URI": uri}, preexec_fn=become) as master:
        try:
            wait_until("it to be at work", lambda: all((place / f"{name}.pid").exists() for name in PROCESSES))
            pids = [master.pid, *children(master.pid)]
            wait_until("all to have begun", lambda: min(map(age_s, pids)) > 1)
            yield place, pids, become
        finally:
            master.kill()
    wait_until("its processes to end", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids))
    shutil.rmtree(place)


def test_nobody_else_reads_the_memory_of_the_service(plain):
    """Its memory, environment and the like belong to root, who does not run it: not even its own user reads them."""
    place, pids, become = plain
    with subprocess.Popen(["sleep", "60"], preexec_fn=become) as other:
        owner = pathlib.Path(f"/proc/{other.pid}/environ").stat().st_uid
        other.kill()
    if owner == 0:
        pytest.skip("root's processes belong to root in any case")
    assert len(pids) == len(PROCESSES) + 1
    for pid in pids:
        for name in ("environ", "mem", "maps", "fd"):
            assert pathlib.Path(f"/proc/{pid}/{name}").stat().st_uid == 0, f"{pid}: {name}"
        assert re.search(r"^Max core file size +0 +0 ", pathlib.Path(f"/proc/{pid}/limits").read_text(), re.M)


def test_who_dies_leaves_no_core_file(plain):
    place, pids, become = plain
    subprocess.run(["/bin/sh", "-c", "kill -ABRT $$"], cwd=place, preexec_fn=become, check=False)
    found = list(place.glob("core*"))
    if not found:
        pytest.skip("this machine leaves no core file where a process dies")
    for path in found:
        path.unlink()
    log = place / "log"
    for count, pid in enumerate(pids[1:], 1):
        threads = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
        # the main thread waits for signals; the others die of this one
        assert ctypes.CDLL(None).syscall(TGKILL[platform.machine()], pid, threads[-1], signal.SIGSEGV) == 0
        wait_until(f"{pid} to die", lambda: log.read_text().count("signal=11") == count)
    os.kill(pids[0], signal.SIGSEGV)
    wait_until("the master to die", lambda: not (pathlib.Path(f"/proc/{pids[0]}/task").exists() and children(pids[0])))
    assert not list(place.glob("core*"))


# ---- files, sockets ----

def test_files_and_sockets_are_for_those_they_are_for(guarded):
    """{what: the most that it may permit}."""
    most = {"keys": 0o700, "keys/*": 0o600, "run/mongodb_uri": 0o600, "run/*.sock": 0o660, "log/coupond.log": 0o640}
    for pattern, mode in most.items():
        found = list(guarded.var.glob(pattern))
        assert found, pattern
        for path in found:
            assert path.stat().st_mode & 0o777 & ~mode == 0, f"{path}: {path.stat().st_mode & 0o777:o}"
    sockets = [path for path in (guarded.var / "run").iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    assert len(sockets) == WORKERS + 1, sockets  # and that of metrics
    assert all(path.stat().st_mode & 0o777 == 0o660 for path in sockets), sockets
    assert not [path for path in (guarded.var / "nginx").rglob("body/**/*") if path.is_file()], "an import was left behind"


@pytest.mark.full
def test_who_is_not_of_the_sockets_group_cannot_reach_a_worker(guarded, tmp_path):
    path = guarded.var / "run" / "worker-0.sock"
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    os.chmod(guarded.var, 0o755)
    probe = (f"import os, socket; os.setgroups([]); os.setgid({SOMEBODY}); os.setuid({SOMEBODY}); "
             f"socket.socket(socket.AF_UNIX).connect({str(path)!r})")
    done = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True)
    assert done.returncode != 0 and "PermissionError" in done.stderr, done
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(str(path))
    assert Http(guarded.port).get("/coupons/-/health").status == 200
