"""The database that scripts/run starts: nobody gets in without its password."""
import contextlib
import os
import pathlib
import shutil
import stat
import subprocess

import pymongo
import pymongo.errors
import pytest

from ports import free_port
from stack import ROOT, SETTINGS, SLOW_DATABASE, Stack, wait_until

REFUSED = 13  # Unauthorized
WRITES = {"insert": "keys", "documents": [{"_id": "mine", "role": "ops"}]}


def stranger(stack):
    """As any local user: the address without the password."""
    port = (stack.var / "run" / "mongod.port").read_text().strip()
    return pymongo.MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true", serverSelectionTimeoutMS=60000)


def is_closed(stack):
    with stranger(stack) as client:
        for database, command in (("coupons", WRITES), ("coupons", {"find": "keys"}), ("admin", {"listDatabases": 1}),
                                  ("admin", {"createUser": "me", "pwd": "x", "roles": ["root"]}), ("admin", {"shutdown": 1}),
                                  ("admin", {"replSetGetConfig": 1}), ("local", {"find": "oplog.rs"})):
            with pytest.raises(pymongo.errors.OperationFailure) as refused:
                client[database].command(command)
            assert refused.value.code == REFUSED, f"{command}: {refused.value}"


def test_a_client_without_the_password_is_refused(stack):
    is_closed(stack)


@pytest.mark.parametrize("user, password, source", [("coupons", "wrong", "admin"), ("keeper", "coupons", "admin"), ("__system", "x", "local")])
def test_a_wrong_password_is_refused(stack, user, password, source):
    port = (stack.var / "run" / "mongod.port").read_text().strip()
    with pytest.raises((pymongo.errors.OperationFailure, pymongo.errors.ConfigurationError)):
        pymongo.MongoClient("127.0.0.1", int(port), directConnection=True, username=user, password=password, authSource=source).admin.command("ping")


@pytest.mark.full
def test_the_first_user_is_not_for_whoever_comes_first(tmp_path):
    """A fresh database, looked at from the moment its port is open, until the service is ready: each try is refused."""
    with Stack(SETTINGS + SLOW_DATABASE) as s:
        s.script("stop")
        shutil.rmtree(s.var / "db")
        for name in ("storefront", "reporting", "ops"):  # of the database that is gone
            (s.var / "keys" / name).unlink()
        port, seen = int((s.var / "run" / "mongod.port").read_text()), []
        starting = subprocess.Popen([ROOT / "scripts" / "run", "--detach"], env=s.environment, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        client = pymongo.MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=50, connect=False)
        while starting.poll() is None:
            try:
                seen.append(client.admin.command("createUser", "me", pwd="x", roles=["root"]))
            except pymongo.errors.OperationFailure as e:
                seen.append(e.code)
            except pymongo.errors.ConnectionFailure:
                pass
        assert starting.returncode == 0
        assert seen and set(seen) <= {REFUSED}, set(map(str, seen))
        is_closed(s)


# ---- what the service itself may do there ----

def test_the_service_may_use_its_own_database_and_nothing_else(stack):
    """And it works, verifies and is well with that: every other test has it so."""
    with pymongo.MongoClient((stack.var / "run" / "mongodb_uri").read_text().strip()) as client:
        assert client.coupons.command({"find": "keys", "limit": 1})["ok"]
        for database, command in (("other", {"find": "keys"}), ("other", {"insert": "x", "documents": [{}]}), ("admin", {"find": "system.users"}),
                                  ("admin", {"createUser": "me", "pwd": "x", "roles": ["root"]}), ("admin", {"shutdown": 1}),
                                  ("admin", {"grantRolesToUser": "coupons", "roles": ["root"]}), ("admin", {"replSetStepDown": 1}),
                                  ("coupons", {"createUser": "me", "pwd": "x", "roles": []}), ("coupons", {"profile": 2})):
            with pytest.raises(pymongo.errors.OperationFailure) as refused:
                client[database].command(command)
            assert refused.value.code == REFUSED, f"{command}: {refused.value}"


# ---- CVE-2025-14847: before it has asked for a password it shows its memory to whoever compresses with zlib ----

def compressors(client):
    return client.admin.command("hello", compression=["snappy", "zlib", "zstd"]).get("compression")


def leak(stack, *arguments):
    """What doctor says of it: (level, text)."""
    [line] = [line for line in stack.couponctl("doctor", *arguments).stdout.splitlines() if line[6:].startswith("leak ")]
    return line[:4].strip(), line


def test_our_mongod_takes_no_zlib(stack):
    with stranger(stack) as client:
        assert compressors(client) == ["snappy", "zstd"]
    assert leak(stack)[0] == "ok"


def mongod_program():
    return shutil.which("mongod") or subprocess.run(
        ["bash", "-euc", ". scripts/lib.sh; mongod_path"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()


@pytest.mark.full
def test_doctor_says_so_of_another_mongod(stack, tmp_path):
    port = free_port()
    uri = f"mongodb://127.0.0.1:{port}/?replicaSet=rs0"
    server = subprocess.Popen([mongod_program(), "--replSet", "rs0", "--dbpath", tmp_path, "--bind_ip", "127.0.0.1", "--port", str(port),
                               "--nounixsocket"], stdout=subprocess.DEVNULL)
    try:
        with pymongo.MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=60000) as client:
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]})
            wait_until("a primary", lambda: client.admin.command("hello")["isWritablePrimary"])
            fixed = client.server_info()["versionArray"] >= [6, 0, 27]
        level, line = leak(stack, "--mongodb", uri)
        assert level == ("ok" if fixed else "fail") and "CVE-2025-14847" in line, line
        assert fixed or all(version in line for version in ("8.2.3", "8.0.17", "7.0.28", "6.0.27", "snappy,zstd")), line
    finally:
        server.kill()
        server.wait()


def test_secrets_are_in_files_for_their_owner_alone(stack):
    """And in no command line."""
    uri = (stack.var / "run" / "mongodb_uri").read_text().strip()
    password = (stack.var / "keys" / "mongodb_password").read_text()
    assert len(password) == 64 and f":{password}@" in uri
    for name in ("run/mongodb_uri", "keys/mongodb_password", "db/keyfile"):
        assert (stack.var / name).stat().st_mode & 0o777 == 0o600, name
    shown = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown[path.parent.name] = path.read_bytes()
        except OSError:
            continue
    mongod = (stack.var / "run" / "mongod.pid").read_text().strip()
    key = (stack.var / "db" / "keyfile").read_text()
    assert b"--keyFile" in shown[mongod]
    assert not [text for text in shown.values() if password.encode() in text or key.encode() in text]


@pytest.mark.full
def test_a_database_that_was_made_without_a_password_is_taken_over(another_stack):
    """What is in it stays, and it is closed; one with another password than this copy's gets this copy's."""
    s = another_stack()
    coupon = s.coupon(slots=3)
    s.client("storefront").take(coupon, "u").expect(201)
    s.script("stop")
    program = mongod_program()
    port = (s.var / "run" / "mongod.port").read_text().strip()
    # as the version before passwords started it, and it goes on running
    subprocess.run([program, "--replSet", "rs0", "--dbpath", s.var / "db", "--bind_ip", "127.0.0.1", "--port", port, "--nounixsocket",
                    "--logpath", s.var / "log" / "mongod.log", "--logappend", "--pidfilepath", s.var / "run" / "mongod.pid", "--fork"],
                   check=True, stdout=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC"})
    def is_open(client):
        with contextlib.suppress(pymongo.errors.NotPrimaryError):  # its set is being looked for
            return client.admin.command("listDatabases")["ok"]

    with stranger(s) as client:
        wait_until("the database to answer a stranger", lambda: is_open(client))
    (s.var / "keys" / "mongodb_password").unlink()
    (s.var / "db" / "keyfile").unlink()
    s.script("run", "--detach", status=0)
    is_closed(s)
    assert s.counts(coupon)["redeemed"] == 1
    s.mongo.close()
    s.connect()
    s.verify(coupon)


# ---- whose process it is, where root starts it ----

NOBODY = 65534


def mongod_uid(stack):
    """Of the process; all that it has written is the same user's."""
    pid = (stack.var / "run" / "mongod.pid").read_text().strip()
    uids = {int(uid) for uid in next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                                     if line.startswith("Uid:")).split()[1:]}
    assert len(uids) == 1, uids
    return uids.pop()


def owners(stack):
    found = set()
    for path in [stack.var / "db", *(stack.var / "db").rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # mongod writes some anew
            found.add(path.lstat().st_uid)
    return found


def start(stack, **how):
    return stack.script("run", "--detach", **how, status=0).stdout


@pytest.fixture
def reachable(monkeypatch):
    """A copy in a place that every user can get to; not started yet."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    monkeypatch.delenv("COUPONS_TEST_DIR", raising=False)
    with contextlib.ExitStack() as undo:
        s = Stack(SETTINGS + SLOW_DATABASE)
        undo.callback(s.remove)
        undo.callback(s.stop)
        s.var.chmod(0o755)
        yield s


@pytest.mark.full
def test_mongod_is_not_root_s_where_another_user_can_get_to_its_place(reachable):
    """Also with a database that was root's before, and after a time in which it had to be root's."""
    s = reachable.start()
    user = mongod_uid(s)
    assert user != 0 and owners(s) == {user}
    assert stat.S_IMODE((s.var / "db").stat().st_mode) == 0o700
    for name, owner in (("db/keyfile", user), ("run/mongodb_uri", 0), ("keys/mongodb_password", 0)):
        at = (s.var / name).stat()
        assert (at.st_uid, stat.S_IMODE(at.st_mode)) == (owner, 0o600), name
    coupon = s.coupon(slots=5)

    def again(mode, said):
        """Stopped, and started with this mode of its place; what is there is still there, and it can be written."""
        s.script("stop")
        s.var.chmod(mode)
        assert ("mongod runs as root" in start(s)) is said
        taken = s.counts(coupon)["redeemed"]
        s.client("storefront").take(coupon, f"u-{taken}").expect(201)
        return taken

    assert again(0o755, False) == 0 and mongod_uid(s) == user
    assert again(0o700, True) == 1 and mongod_uid(s) == 0, "nobody else gets there"
    assert again(0o755, False) == 2 and mongod_uid(s) == user and owners(s) == {user}
    s.script("stop")
    for path in [s.var / "db", *(s.var / "db").rglob("*")]:
        os.chown(path, 0, 0)  # as it was before
    assert again(0o755, False) == 3 and mongod_uid(s) == user and owners(s) == {user}
    s.verify(coupon)


def test_a_database_stays_its_owner_s(reachable):
    """Root starts it as whoever had it before, who can therefore have it again."""
    s = reachable
    (s.var / "db").mkdir()
    os.chown(s.var / "db", NOBODY, NOBODY)
    s.start()
    assert mongod_uid(s) == NOBODY and owners(s) == {NOBODY}


def plant_all(s, victim):
    """All of it is somebody else's."""
    (s.var / "log").mkdir()
    (s.var / "log" / "coupond.out").symlink_to(victim)
    for path in (s.var, s.var / "log"):
        os.chown(path, NOBODY, NOBODY)


def plant_folder(s, victim):
    (s.var / "log").symlink_to(victim.parent)
    os.chown(s.var / "log", NOBODY, NOBODY, follow_symlinks=False)


def plant_file(s, victim):
    """Whose folder it was before."""
    (s.var / "log").mkdir()
    (s.var / "log" / "coupond.out").symlink_to(victim)
    os.chown(s.var / "log" / "coupond.out", NOBODY, NOBODY, follow_symlinks=False)


def plant_anything(s, victim):
    """Anybody can, at any time."""
    s.var.chmod(0o777)


@pytest.mark.parametrize("plant", [plant_all, plant_folder, plant_file, plant_anything])
def test_root_writes_nothing_through_links_of_others(reachable, tmp_path, plant):
    victim = tmp_path / "coupond.out"
    victim.write_text("root's own")
    plant(reachable, victim)
    done = reachable.script("run", "--detach")
    assert done.returncode == 1 and any(words in done.stdout for words in ("somebody else", "others can write")), done.stdout
    assert victim.read_text() == "root's own" and [path.name for path in tmp_path.iterdir()] == ["coupond.out"]


@pytest.mark.full
def test_who_may_not_write_a_copy_s_place_is_told(reachable):
    s = reachable.start()
    s.script("stop")
    s.environment["COUPONS_BUILD"] = os.environ.get("COUPONS_BUILD", "build")  # that is not theirs either
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    def tells(words):
        done = subprocess.run([*as_nobody, ROOT / "scripts" / "run", "--detach"], env=s.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        last = done.stdout.splitlines()[-1]
        assert done.returncode == 1 and words in last and str(s.var) in last, done.stdout

    tells("cannot write")
    for path in [s.var, *s.var.rglob("*")]:
        if s.var / "db" not in (path, *path.parents):
            os.chown(path, NOBODY, NOBODY)
    tells("belongs to")
