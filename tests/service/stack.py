"""One copy of the whole service -- nginx, coupond, mongod -- in a directory and on a port of its own."""
import configparser
import contextlib
import datetime
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zoneinfo

import pymongo

import exposition
from client import Direct, Http, keys, public_keys
from ports import free_port
from swarm import DirectWay, HttpWay

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("COUPONS_BUILD", "build")  # scripts/run takes the programs from there, too
WORKERS = 2
HELD_S = 9  # for ten seconds a worker holds what nobody reads, and waits for a body of which nothing comes
PATIENCE_S = 180  # that something comes is what is tested, not when: the machine may have much other work
# A caller's patience is long likewise: nobody is to get `busy` because of other work. So is that of couponctl with a database that
# pauses.
SETTINGS = """\
[worker]
request_deadline_ms = 20000
[mongodb]
server_selection_timeout_ms = 20000
[runner]
lease_ms = 2000
step_slots = 4096
[reporter]
tick_s = 1
"""
# Of copies whose database nobody kills or cuts off: where it is slow, it is so because of other work.
SLOW_DATABASE = """\
[mongodb]
connect_timeout_ms = 15000
socket_timeout_ms = 15000
server_selection_timeout_ms = 15000
wait_queue_timeout_ms = 15000
"""
# A removal of what is archived waits for as long as a request may take. This is the setting's default.
SOON_REMOVED = """\
[worker]
request_deadline_ms = 5000
"""
WEBHOOKS = """\
[webhooks]
http = allowed
networks = 127.0.0.0/8
timeout_ms = 15000
retry_first_ms = 50
retry_most_s = 1
lease_ms = 1000
"""
# Of copies that are stopped or reloaded under load: what is in flight may take as long as the machine needs.
LONG_DRAIN = """\
[coupond]
drain_s = 120
"""
# Of the copy that most tests share, and with it one key and one address: together they may look for more codes than one caller.
GUESSES = """\
[guesses]
per_user = 0
per_address = 0
keys_per_address = 0
"""
# Of a mongod that scripts/run starts. Each process of each copy logs in: making a key of its password was a fifth of what a start costs. And
# nobody reads what mongod writes down about itself.
MONGOD_PARAMETERS = "scramSHA256IterationCount=5000 scramIterationCount=5000 diagnosticDataCollectionEnabled=false"
# What only a coupond with tests/hooks/ in it obeys: a copy with these in its environment runs that one.
HOOKS = ("COUPONS_CRASH_POINT", "COUPONS_TEST_SHARDED")
# What is counted of executed lines goes with a process that is killed: under that build it is asked to end.
KILL = signal.SIGTERM if BUILD.name == "build-coverage" else signal.SIGKILL
# Processes that ended by themselves: an assertion failed (SIGABRT), they went astray (SIGSEGV and its like), or UBSan has
# spoken, whose words go to standard error whatever its options say, where ASan is in the same program.
DEATHS = re.compile(r"event=process\.(?:died|exited) .*child=(\d+) (?:signal=(?:4|6|7|8|11)|code=1)$")
OTHERS = ["reporter", "runner", "deliverer"]
databases = itertools.count(1)  # of those copies that have one beside another's
PROCESSES = [f"worker-{i}" for i in range(WORKERS)] + OTHERS


def wait_until(what, condition, seconds=PATIENCE_S, every=None):
    """Poll until the condition holds, and return what it gave; `what` may be a callable that tells the last thing seen. Without `every` it
    is asked the less often the longer it takes: asking costs those who are waited for."""
    began = time.monotonic()
    while True:
        seen = condition()
        if seen:
            return seen
        waited = time.monotonic() - began
        assert waited < seconds, f"waited {seconds} s for {what() if callable(what) else what}"
        time.sleep(min(max(0.01, waited / 20), 0.1) if every is None else every)


def age_s(pid):
    """How long the process has lived."""
    start = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")


def state_of(pid):
    """R, S, T, ... of /proc/PID/stat; None: there is none, or it waits to be reaped."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else state


def processor_s(pids):
    """The processor time that these processes have had so far."""
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def held_by(watermark):
    return {(lane["c"], lane["l"]) for lane in watermark.get("behind", [])}


def shortly_before_midnight(start, zone="UTC"):
    """Copies, made by start(), whose clocks show that a day of the zone ends within seconds; that midnight; seconds until it comes. One
    at a time: the next has more of the day left, and comes where starting took too long, or the caller goes on."""
    for ahead_s in (20, 60, 150, 400):
        now = datetime.datetime.now(zoneinfo.ZoneInfo(zone))
        midnight = datetime.datetime.combine(now.date() + datetime.timedelta(1), datetime.time(), now.tzinfo)
        midnight = midnight.astimezone(datetime.timezone.utc)
        offset_s = int((midnight - now).total_seconds()) - ahead_s
        stack = start(clock_offset_s=offset_s)
        left_s = midnight.timestamp() - time.time() - offset_s
        if left_s > max(ahead_s / 2, 3 * (ahead_s - left_s)):
            yield stack, midnight, left_s
        stack.undo.close()
    raise AssertionError(f"the day ends too early; a copy takes {ahead_s - left_s:.0f} s to start")


def write_settings(path, settings):
    """As the service's file of settings, in which each stands once: here a later line counts."""
    table = configparser.ConfigParser(strict=False, interpolation=None)
    table.read_string(settings)
    with open(path, "w") as file:
        table.write(file)


def hooked():
    """The folder of the programs with tests/hooks/ in them."""
    folder = BUILD / "hooks"
    assert (folder / "coupond").exists(), f"{folder}/coupond does not exist: run make hooks, with what {BUILD.name} was made with"
    return folder


class Stack:
    """beside: another one, on whose mongod this one has a database of its own."""

    def __init__(self, settings=SETTINGS + SLOW_DATABASE + WEBHOOKS + GUESSES + LONG_DRAIN, clock_offset_s=0, workers=WORKERS, beside=None):
        self.workers, self.beside = workers, beside and (beside.beside or beside)
        beside = self.beside
        self.var = pathlib.Path(tempfile.mkdtemp(prefix="coupons-test-", dir=os.environ.get("COUPONS_TEST_DIR")))
        config = self.var / "coupond.ini"
        self.database_name = f"beside-{next(databases)}" if beside else "coupons"
        own = f"[mongodb]\ndatabase = {self.database_name}\n" if beside else ""
        write_settings(config, f"{settings}{own}[coupond]\nworkers = {workers}\n")
        self.port = free_port()
        # One key and one address send what many would: they are held where test_rate.py and test_limits.py say so.
        self.environment = {"COUPONS_RATE": "50000", "COUPONS_CONNECTIONS": "20000", **os.environ,
                            "COUPONS_VAR": str(self.var), "COUPONS_PORT": str(self.port),
                            "COUPONS_CONFIG": str(config), "COUPONS_READY_S": str(PATIENCE_S),
                            "COUPONS_MONGOD_PARAMETERS": MONGOD_PARAMETERS, "COUPONS_TEST": "1"}  # mongod takes orders to fail
        for name in ("MONGODB_URI", "COUPONS_URL", "COUPONS_CLOCK_OFFSET_S"):
            self.environment.pop(name, None)
        if beside:
            self.environment["MONGODB_URI"] = (beside.var / "run" / "mongodb_uri").read_text().strip()
            beside.admit(self.database_name)
        for sanitizer in ("ASAN", "UBSAN", "TSAN"):  # what they find goes to files that stop() looks for
            given = os.environ.get(f"{sanitizer}_OPTIONS", "")
            self.environment[f"{sanitizer}_OPTIONS"] = f"{given}:log_path={self.var}/log/sanitizer"
        if clock_offset_s:
            self.environment["COUPONS_CLOCK_OFFSET_S"] = str(clock_offset_s)
        self.excused = set()  # pids that a test lets run out of memory
        self.own_transactions = 0  # that a test started
        self.options = ()  # of scripts/run
        self.names = itertools.count(1)
        self.fronts = [self]  # tests/faults/pair.py has two
        self.impatient = False  # see client.py
        self.database = None
        self.mongo = None

    # ---- running it ----

    def __enter__(self):
        """Started; what it leaves is removed at the end of the block, also when it could not start."""
        with contextlib.ExitStack() as undo:
            undo.callback(self.remove)
            undo.callback(self.stop)
            self.start()
            self.undo = undo.pop_all()
        return self

    def __exit__(self, *exception):
        self.undo.close()

    def start(self):
        self.script("run", "--detach", *self.options, status=0)
        for i in range(self.workers):  # one of them has said so
            with contextlib.closing(Direct(self.var / "run" / f"worker-{i}.sock", None)) as door:
                wait_until(f"worker-{i} to be ready", lambda: door.get("/coupons/-/ready", may_fail=True).status == 200)
        self.connect()
        return self

    def connect(self):
        """To its database: to our own mongod as who may do everything, which the service may not."""
        uri, key = (self.var / "run" / "mongodb_uri").read_text().strip(), (self.beside or self).var / "db" / "keyfile"
        if "//coupons:" in uri and key.exists():
            uri = re.sub("//coupons:[^@]*@", f"//__system:{key.read_text()}@", uri) + "&authSource=local&authMechanism=SCRAM-SHA-256"
        self.mongo = pymongo.MongoClient(uri)
        self.database = self.mongo[self.database_name]

    def admit(self, database):
        """The user of the service may have this database of our mongod, too."""
        self.mongo.admin.command("grantRolesToUser", "coupons", roles=[{"role": "readWrite", "db": database}])

    def stop(self):
        transactions = self.transactions()
        if self.mongo:
            self.mongo.close()
        self.script("stop", status=0)
        found = [path.read_text(errors="replace") for path in sorted(self.var.glob("log/sanitizer*"))]
        deaths = self.deaths()
        if deaths:
            found += ["\n".join(deaths), (self.var / "log" / "coupond.out").read_text(errors="replace")]
        assert not found, f"a sanitizer has spoken, or an assertion failed:\n{''.join(found)[:20000]}"
        assert transactions <= self.own_transactions, f"{transactions} transactions were started"

    def deaths(self):
        """What the log tells of processes that ended by themselves."""
        said = filter(None, map(DEATHS.search, self.log().splitlines()))
        return [found.string for found in said if int(found[1]) not in self.excused]

    def transactions(self):
        """How many the mongod has seen, if it still answers; the service starts none. Those of a copy beside another count there."""
        if not self.mongo or self.beside:
            return 0
        try:
            with pymongo.timeout(2):
                return self.mongo.admin.command("serverStatus")["transactions"]["totalStarted"]
        except pymongo.errors.PyMongoError:
            return 0

    def remove(self):
        keep = os.environ.get("COUPONS_TEST_KEEP")
        if not keep:
            shutil.rmtree(self.var, ignore_errors=True)
            if self.beside:
                with pymongo.timeout(60), contextlib.suppress(pymongo.errors.PyMongoError):  # it is one of many, and of no use to anybody
                    self.beside.mongo.drop_database(self.database_name)

    def script(self, name, *arguments, timeout=300, status=None):
        """scripts/name, for this copy; standard output and error together. `status`: what it must exit with."""
        environment = self.environment
        if any(hook in environment for hook in HOOKS):
            environment = environment | {"COUPONS_BUILD": hooked().relative_to(ROOT)}
        done = subprocess.run([ROOT / "scripts" / name, *map(str, arguments)], env=environment, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert ": runtime error: " not in done.stdout, f"scripts/{name}: UBSan has spoken\n{done.stdout}"
        words = " ".join(map(str, (name, *arguments)))
        assert status is None or done.returncode == status, f"scripts/{words}: exit {done.returncode}\n{done.stdout}"
        return done

    def couponctl(self, *arguments, **how):
        return self.script("couponctl", *arguments, **how)

    def ctl(self, *arguments, status=0, **how):
        """What couponctl prints; it must exit with this."""
        return self.couponctl(*arguments, status=status, **how).stdout

    def ctl_apart(self, *arguments, text=None, status=0):
        """What couponctl prints, and what it says on standard error."""
        done = subprocess.run([ROOT / "scripts" / "couponctl", *map(str, arguments)], env=self.environment, input=text, capture_output=True,
                              timeout=300)
        assert done.returncode == status, f"couponctl {arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.decode(), done.stderr.decode()

    def verify(self, *coupons, **how):
        """The ledger, replayed, is what is stored: everywhere, or in these coupons."""
        behind = self.below_watermarks({"_id.c": {"$in": coupons}} if coupons else {})
        assert not behind, f"arrived before the watermark, and not done: {behind}"
        self.ctl("verify", *coupons, **{"timeout": 300 if coupons else 1500, **how})

    def below_watermarks(self, query):
        """Lanes, of those that the query finds, of which a batch arrived before the reporter's watermark that its checkpoint, or totals, have
        not reached; or, of those since a webhook was made, before that one's, and it has a position that has not reached it. Those that
        a watermark holds are not meant."""
        reporters = self.database.watermarks.find_one({"_id": "reporter", "arrived": {"$exists": True}})
        hooks = list(self.database.webhooks.find({"arrived": {"$exists": True}}))
        wanted = [((*lane, kind), seq) for kind in ("checkpoint", "totals") if reporters
                  for lane, seq in self.newest(query | {"arrived": {"$lt": reporters["arrived"]}}).items() if lane not in held_by(reporters)]
        for hook in hooks:
            since = {"arrived": {"$lt": hook["arrived"]}, "at": {"$gte": hook["created"]}}
            wanted += [((*lane, hook["_id"]), seq) for lane, seq in self.newest(query | since).items()
                       if lane[0] in (hook["coupons"] or lane) and lane not in held_by(hook)]
        done = self.written(query)
        done |= {(d["_id"]["c"], d["_id"]["l"], d["_id"]["h"]): d["at"]["seq"] for d in self.database.webhook_positions.find(query)}
        arrived = {(*lane, hook["_id"]) for hook in hooks for lane in self.newest(query | {"arrived": {"$lt": hook["arrived"]}})}
        forgotten = arrived - set(done)
        return [lane for lane, seq in wanted if lane not in forgotten and done.get(lane, 0) < seq]

    def is_written(self, *coupons):
        """The checkpoints and totals of all their lanes have come to the tails."""
        query = {"_id.c": {"$in": coupons}}
        tails = {(*lane, kind): seq for lane, seq in self.newest(query).items() for kind in ("checkpoint", "totals")}
        done = self.written(query)
        return all(done.get(lane, 0) >= seq for lane, seq in tails.items())

    def written(self, query):
        """{(coupon, lane, "checkpoint" or "totals"): seq}, of those lanes that the query finds."""
        done = {(d["_id"]["c"], d["_id"]["l"], "totals"): d["seq"] for d in self.database.totals_positions.find(query)}
        return done | {(d["_id"]["c"], d["_id"]["l"], "checkpoint"): d["view"]["seq"] for d in self.database.lanes.find(query)}

    def newest(self, query):
        """{(coupon, lane): seq} of the last batch, of those that the query finds."""
        rows = self.database.ledger.aggregate([
            {"$match": query}, {"$group": {"_id": {"c": "$_id.c", "l": "$_id.l"}, "seq": {"$max": "$_id.seq"}}}])
        return {(row["_id"]["c"], row["_id"]["l"]): row["seq"] for row in rows}

    # ---- its processes ----

    def pid(self, name):
        """Of worker-0, worker-1, reporter, runner, deliverer or coupond; None while there is none."""
        try:
            pid = int((self.var / "run" / f"{name}.pid").read_text())
            os.kill(pid, 0)
            return pid
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None

    def pids(self):
        return {name: self.pid(name) for name in [*(f"worker-{i}" for i in range(self.workers)), *OTHERS]}

    def signal(self, name, number):
        """Send it; the pid that got it."""
        pid = wait_until(f"{name} to live", lambda: self.pid(name))
        os.kill(pid, number)
        return pid

    def all_pids(self):
        """Of whatever lives of the service, nginx and the database."""
        masters = []
        for name in ("coupond", "nginx", "mongod"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                masters.append(int((self.var / "run" / f"{name}.pid").read_text()))
        found = []
        for pid in masters:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [pid, *children(pid)]
        return found

    def rest(self):
        """coupond ends; mongod goes on."""
        old = self.signal("coupond", signal.SIGTERM)
        wait_until("coupond to end", lambda: self.pid("coupond") != old)

    def has_lived(self, name):
        """Wait until it has lived for a second: who dies later is replaced at once."""
        pid = wait_until(f"{name} to live", lambda: self.pid(name))
        wait_until(f"{name} to have lived for a second", lambda: age_s(pid) > 1.1)

    def kill(self, name, seconds=PATIENCE_S, stopped=False):
        """kill -9, and wait for the successor that the master starts. `stopped`: it does nothing from now on, though it is to live for
        a second yet."""
        if stopped:
            self.signal(name, signal.SIGSTOP)
        self.has_lived(name)
        old = self.signal(name, KILL)
        if stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(old, signal.SIGCONT)  # for those that are asked to end
        return wait_until(f"a successor of {name}", lambda: self.pid(name) not in (None, old) and self.pid(name), seconds)

    def kill_workers(self):
        for worker in range(self.workers):
            self.kill(f"worker-{worker}")

    # ---- its clients ----

    def key(self, role):
        return (self.var / "keys" / role).read_text().strip()

    def new_key(self, role, *options):
        """A key that no other test has."""
        key = self.ctl("keys", "create", role, *options).split()[-1]
        if role == "public":
            public_keys.add(key)
        return key

    def client(self, role=None):
        client = Http(self.port, self.key(role) if role else None)
        client.impatient = self.impatient
        return client

    def direct(self, worker, role="storefront"):
        return Direct(self.var / "run" / f"worker-{worker}.sock", self.key(role))

    def way(self, role="storefront"):
        return HttpWay(self.port, self.key(role))

    def ways(self, role="storefront"):
        """A way to each worker, past nginx."""
        return [DirectWay(self.var / "run" / f"worker-{i}.sock", self.key(role)) for i in range(self.workers)]

    # ---- its coupons ----

    def coupon(self, slots=0, **members):
        """A new active coupon with so many slots; its id. `total` is short for cap.total."""
        ops = self.client("ops")
        name = re.sub(r"\W+", "-", os.environ.get("PYTEST_CURRENT_TEST", "test").split("::")[-1].split(" ")[0])[:40].strip("-")
        cap = {"total": max(slots, 1), "per_user": 1, **members.pop("cap", {})}
        body = {"id": f"t-{name}-{next(self.names)}", "title": name, "state": "active", "cap": cap, **members}
        coupon = ops.post("/coupons", body, idempotency_key=f"coupon-{next(keys)}").ok(201)["id"]
        if slots:
            self.generate(coupon, slots)
        return coupon

    def generate(self, coupon, count):
        """Slots, and wait until they are there."""
        key = f"slots-{next(keys)}"
        return self.job(self.client("ops").post(f"/coupons/{coupon}/slots", {"count": count}, idempotency_key=key).expect(202))

    def import_codes(self, coupon, codes):
        """Each becomes a slot; the job's result."""
        text = "".join(f"{code}\n" for code in codes).encode()
        reply = self.client("ops").post(f"/coupons/{coupon}/codes?accept=all", text, headers={"Content-Type": "text/plain"}).expect(202)
        return self.job(reply)["result"]

    def imported(self, rows=(), **members):
        """A new active coupon whose codes are imported, with these."""
        cap = {"total": None, "per_user": 5, **members.pop("cap", {})}
        coupon = self.coupon(cap=cap, codes={"source": "imported", **members.pop("codes", {})}, **members)
        if rows:
            assert self.import_codes(coupon, rows)["imported"] == len(rows)
        return coupon

    def job(self, reply, state="done"):
        """The job of a 202, once it is in this state."""
        return self.job_at(reply.header("Location"), state)

    def job_at(self, location, state="done", seconds=PATIENCE_S):
        ops, last = self.client("ops"), {}

        def ended():
            last.update(ops.get(location).ok())
            return last["state"] in (state, "done", "failed", "cancelled")

        wait_until(lambda: f"{location} to be {state}: {last}", ended, seconds)
        assert last["state"] == state, f"the job should be {state}: {last}"
        return last

    def patch(self, coupon, body):
        return self.client("ops").patch(f"/coupons/{coupon}", body).ok()

    def counts(self, coupon):
        return self.client("reporting").get(f"/coupons/{coupon}/counts").ok()

    def metric(self, name, **labels):
        """The sum of its samples that have these labels."""
        with contextlib.closing(self.client("ops")) as ops:
            families = exposition.read(ops.get("/coupons/-/metrics").expect(200).body.decode())
        return int(exposition.total(families, name, **labels))

    def log(self):
        path = self.var / "log" / "coupond.log"
        return path.read_text(errors="replace") if path.exists() else ""


class Failing:
    """For as long as a `with` lasts, or until end(), mongod fails at these commands on a collection, or does to them what `how` says.

    times: how often it did so, in the end.
    """

    def __init__(self, stack, collection, *commands, mode="alwaysOn", **how):
        self.admin, self.times = stack.mongo.admin, None
        orders = {"failCommands": commands, "namespace": f"{stack.database.name}.{collection}", **(how or {"errorCode": 96})}
        self.before = self.admin.command("configureFailPoint", "failCommand", mode=mode, data=orders)["count"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.times = self.admin.command("configureFailPoint", "failCommand", mode="off")["count"] - self.before

    def has_begun(self):
        """Wait until it fails at one."""
        self.admin.command("waitForFailPoint", "failCommand", timesEntered=self.before + 1, maxTimeMS=1000 * PATIENCE_S)
