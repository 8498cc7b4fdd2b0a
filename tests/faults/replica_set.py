"""A replica set of real mongods in temporary directories, for faults at the database.

As root each member has a network of its own (a namespace; all hang on a switch, a namespace too, to which this machine
has one cable), so that one can be cut off from the others while its clients stay attached. Otherwise all are on 127.0.0.1,
and a cut is a pause. Whatever is started ends with the process that made the set, also when that one is killed.
"""
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

import pymongo
import pymongo.errors

from interpose import Interpose
from ports import free_port
from stack import ROOT, Stack, wait_until

ELECTION_MS = 1000
HEARTBEAT_MS = 200
START_S = 600  # the machine may be busy
ALREADY_INITIALIZED = 23
# Checkpoints every few seconds, not each minute: members that are killed so often come back sooner, and a rollback, which
# goes to a checkpoint, does not go to the first second of the set (for which mongod 6.0.5 took more than a minute).
OPTIONS = ["--syncdelay", "3", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "256",
           "--slowms", "10000"]
PARAMETERS = ["enableTestCommands=1", "diagnosticDataCollectionEnabled=false",
              "shutdownTimeoutMillisForSignaledShutdown=100"]


def mongod_path():
    """The mongod that scripts/run uses; fetched if there is none."""
    command = ["bash", "-c", f". {ROOT}/scripts/lib.sh; mongod_path"]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def can_separate():
    """Whether this process may make networks."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    return subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode == 0


class Launcher:
    """Starts processes that die with this one. The kernel ties them to the thread that made them: it lives as long as
    the launcher."""

    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    def start(self, *command, **how):
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **how}
        tied = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        return self.thread.submit(subprocess.Popen, tied, **how).result()


class Network:
    """Namespaces joined by a bridge; this machine is host 254 of the net, member i is host i + 1."""

    def __init__(self, launcher, members):
        self.launcher, self.cable = launcher, f"cpn{random.randrange(16**8):08x}"
        self.net = next(net for i in range(100) if not self._taken(net := f"10.213.{random.randrange(256)}"))
        self.switch = self._namespace()
        self.inside(self.switch, "ip", "link", "add", "bridge", "type", "bridge")
        self.inside(self.switch, "ip", "link", "set", "bridge", "up")
        self._run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "host", "netns", self.switch.pid)
        self._run("ip", "address", "add", f"{self.net}.254/24", "dev", self.cable)
        self._run("ip", "link", "set", self.cable, "up")
        self._plug("host")
        self.members = [self._member(i) for i in range(members)]

    def _taken(self, net):
        addresses = subprocess.run(["ip", "-o", "address"], text=True, stdout=subprocess.PIPE, check=True).stdout
        return f" {net}." in addresses

    def _run(self, *command):
        done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}"

    def inside(self, namespace, *command):
        self._run("nsenter", f"--net=/proc/{namespace.pid}/ns/net", *command)

    def _namespace(self):
        """One lives as long as a process that is in it."""
        holder = self.launcher.start("unshare", "--net", "sleep", "infinity")
        own = os.readlink("/proc/self/ns/net")
        wait_until("a network of its own", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
        return holder

    def _plug(self, end):
        self.inside(self.switch, "ip", "link", "set", end, "master", "bridge", "up")

    def _member(self, i):
        namespace = self._namespace()
        self.inside(self.switch, "ip", "link", "add", f"member{i}", "type", "veth",
                    "peer", "name", "eth0", "netns", namespace.pid)
        self._plug(f"member{i}")
        self.inside(namespace, "ip", "address", "add", f"{self.host(i)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self.inside(namespace, "ip", "link", "set", device, "up")
        return namespace

    def host(self, i):
        return f"{self.net}.{i + 1}"

    def separate(self, i, apart):
        """What member i sends to the others goes nowhere; so nothing between them is ever acknowledged."""
        for j in range(len(self.members)):
            if j != i:
                verb = "add" if apart else "del"
                self.inside(self.members[i], "ip", "route", verb, "blackhole", f"{self.host(j)}/32")

    def remove(self):
        for holder in [*self.members, self.switch]:
            holder.kill()
            holder.wait()


class Member:
    """One mongod, with a direct client of the tests'."""

    def __init__(self, number, host, port, directory):
        self.number, self.host, self.port, self.directory = number, host, port, directory
        self.process, self.paused, self.apart = None, False, False
        self.client = pymongo.MongoClient(host, port, directConnection=True, connect=False, appname="faults",
                                          serverSelectionTimeoutMS=3000, connectTimeoutMS=5000, socketTimeoutMS=5000,
                                          retryReads=False)

    @property
    def name(self):
        return f"{self.host}:{self.port}"

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def admin(self, *command, **arguments):
        return self.client.admin.command(*command, **arguments)

    def hello(self):
        """None: it does not answer."""
        if not self.alive or self.paused:
            return None
        try:
            return self.admin("hello")
        except pymongo.errors.PyMongoError:
            return None


class ReplicaSet:
    """`nodes` members below a directory; interposed: what interpose.c does can be done to them."""

    def __init__(self, nodes=3, directory=None, interposed=False):
        directory = directory or os.environ.get("COUPONS_TEST_DIR")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="coupons-set-", dir=directory))
        self.launcher, self.mongod = Launcher(), mongod_path()
        self.network = Network(self.launcher, nodes) if nodes > 1 and can_separate() else None
        self.interpose = Interpose(self.directory) if interposed else None
        self.members = []
        for i in range(nodes):
            host, port = (self.network.host(i), 27017) if self.network else ("127.0.0.1", free_port())
            self.members.append(Member(i, host, port, self.directory / f"member-{i}"))

    @property
    def uri(self):
        return f"mongodb://{','.join(m.name for m in self.members)}/?replicaSet=rs0"

    def start(self):
        for member in self.members:
            member.directory.mkdir()
            self.launch(member)
        settings = {"electionTimeoutMillis": ELECTION_MS, "heartbeatIntervalMillis": HEARTBEAT_MS,
                    "catchUpTimeoutMillis": 2000}
        hosts = [{"_id": m.number, "host": m.name} for m in self.members]
        wait_until("all members to answer", lambda: all(m.hello() for m in self.members), START_S)
        wait_until("the set to be initiated", lambda: self.initiate({"_id": "rs0", "members": hosts, "settings": settings}), START_S)
        self.settle()
        return self

    def initiate(self, config):
        """True: it is, perhaps by an attempt to which no answer came in time."""
        try:
            return bool(self.members[0].admin("replSetInitiate", config))
        except pymongo.errors.OperationFailure as e:
            return e.code == ALREADY_INITIALIZED
        except pymongo.errors.PyMongoError:
            return False

    def launch(self, member):
        """Start its mongod, on what it has on disk."""
        command = [self.mongod, "--replSet", "rs0", "--dbpath", member.directory, "--port", member.port,
                   "--bind_ip", "0.0.0.0" if self.network else "127.0.0.1",
                   "--logpath", member.directory / "log", "--logappend", *OPTIONS]
        for parameter in PARAMETERS:
            command += ["--setParameter", parameter]
        if self.network:
            namespace = self.network.members[member.number]
            command = ["nsenter", f"--net=/proc/{namespace.pid}/ns/net", *command]
        environment = {**os.environ, **(self.interpose.environment if self.interpose else {})}
        member.process = self.launcher.start(*command, env=environment)

    def stop(self):
        for member in self.members:
            member.client.close()
            if member.process:
                member.process.kill()
                member.process.wait()
        if self.network:
            self.network.remove()
        self.launcher.thread.shutdown()
        if not os.environ.get("COUPONS_TEST_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- looking at it ----

    def find_primary(self):
        """Who says so, of the newest election; None: there is none at present."""
        said = [(m.hello() or {}, m) for m in self.members]
        saying = [(hello["electionId"], m) for hello, m in said if hello.get("isWritablePrimary")]
        return max(saying, key=lambda pair: pair[0])[1] if saying else None

    def primary(self, seconds=START_S):
        return wait_until("a primary", self.find_primary, seconds, 0.02)

    def another_primary(self, old, seconds=START_S):
        """A primary that is not the old one."""
        def found():
            primary = self.find_primary()
            return primary is not old and primary

        return wait_until(f"another primary than {old.name}", found, seconds, 0.02)

    def term(self, member):
        return member.admin("replSetGetStatus")["term"]

    def is_settled(self):
        """One primary, and all others follow it: they have something of its term, so none has a rollback before it."""
        primary = self.find_primary()
        if not primary:
            return False
        try:
            status = primary.admin("replSetGetStatus")
        except pymongo.errors.PyMongoError:
            return False
        states = sorted(m["stateStr"] for m in status["members"])
        if states != ["PRIMARY"] + ["SECONDARY"] * (len(self.members) - 1):
            return False
        return all(m["optime"]["t"] == status["term"] for m in status["members"])

    def replicates(self, seconds):
        """A write reaches a majority within this time."""
        concern = pymongo.WriteConcern("majority", wtimeout=seconds * 1000)
        primary = self.find_primary()
        try:
            with pymongo.timeout(seconds + 2):
                return bool(primary and primary.client.faults.get_collection("writes", write_concern=concern).insert_one({}))
        except pymongo.errors.PyMongoError:
            return False

    def settle(self, seconds=START_S):
        wait_until("the replica set to settle", self.is_settled, seconds, 0.05)

    # ---- breaking it ----

    def kill(self, member, number=signal.SIGKILL):
        """The moment of it. The process is gone when this returns."""
        at = time.monotonic()
        os.kill(member.pid, number)
        member.process.wait(START_S)
        return at

    def pause(self, member):
        member.paused = True
        os.kill(member.pid, signal.SIGSTOP)

    def resume(self, member):
        if member.alive:
            os.kill(member.pid, signal.SIGCONT)
        member.paused = False

    def cut_off(self, member):
        """It and the others no longer hear of each other; its clients still reach it. Without networks: it is paused."""
        if self.network:
            self.network.separate(member.number, True)
            member.apart = True
        else:
            self.pause(member)

    def join_again(self, member):
        if member.apart:
            self.network.separate(member.number, False)
            member.apart = False
        if member.paused:
            self.resume(member)

    def heal(self):
        """All members live, and follow one."""
        for member in self.members:
            self.join_again(member)
            if not member.alive:
                self.launch(member)
        self.settle()


class SetStack(Stack):
    """A copy of the service on a replica set of its own, below its directory."""

    def __init__(self, nodes=3, interposed=False, **how):
        super().__init__(**how)
        self.replica_set = ReplicaSet(nodes, self.var, interposed)
        self.environment["MONGODB_URI"] = self.replica_set.uri

    def start(self):
        self.replica_set.start()
        return super().start()

    def stop(self):
        try:
            super().stop()
        finally:
            self.replica_set.stop()
