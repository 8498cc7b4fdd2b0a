"""One copy of the whole service -- nginx, coupond, mongod -- in a directory and on a port of its own."""
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pymongo

from client import Direct, Http
from swarm import DirectWay, HttpWay

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKERS = 2
SETTINGS = f"""\
[coupond]
workers = {WORKERS}
[runner]
poll_ms = 20
lease_ms = 2000
step_slots = 4096
[reporter]
tick_s = 1
"""
WEBHOOKS = """\
[webhooks]
http = allowed
networks = 127.0.0.0/8
timeout_ms = 2000
retry_first_ms = 50
retry_most_s = 1
poll_ms = 50
lease_ms = 1000
"""
PROCESSES = [f"worker-{i}" for i in range(WORKERS)] + ["reporter", "runner", "deliverer"]


def wait_until(what, condition, seconds=30, every=0.01):
    """Poll until the condition holds, and return what it gave; `what` may be a callable that tells the last thing seen."""
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        assert time.monotonic() < end, f"waited {seconds} s for {what() if callable(what) else what}"
        time.sleep(every)


def age_s(pid):
    """How long the process has lived."""
    start = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port():
    """Below the range from which the system gives ports to whoever connects: they come and go between this look and the start."""
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.randrange(30100, 32700)))
                return s.getsockname()[1]
            except OSError:
                continue


class Stack:
    def __init__(self, settings=SETTINGS + WEBHOOKS, clock_offset_s=0):
        self.var = pathlib.Path(tempfile.mkdtemp(prefix="coupons-test-", dir=os.environ.get("COUPONS_TEST_DIR")))
        config = self.var / "coupond.ini"
        config.write_text(settings)
        self.port = free_port()
        self.environment = {**os.environ, "COUPONS_VAR": str(self.var), "COUPONS_PORT": str(self.port),
                            "COUPONS_CONFIG": str(config)}
        for name in ("MONGODB_URI", "COUPONS_URL", "COUPONS_CLOCK_OFFSET_S"):
            self.environment.pop(name, None)
        if clock_offset_s:
            self.environment["COUPONS_CLOCK_OFFSET_S"] = str(clock_offset_s)
        self.names = itertools.count(1)
        self.database = None
        self.mongo = None

    # ---- running it ----

    def start(self):
        done = self.script("run", "--detach")
        assert done.returncode == 0, f"scripts/run --detach: exit {done.returncode}\n{done.stdout}"
        self.mongo = pymongo.MongoClient((self.var / "run" / "mongodb_uri").read_text().strip())
        self.database = self.mongo["coupons"]
        return self

    def stop(self):
        if self.mongo:
            self.mongo.close()
        done = self.script("stop")
        assert done.returncode == 0, f"scripts/stop: exit {done.returncode}\n{done.stdout}"

    def remove(self):
        keep = os.environ.get("COUPONS_TEST_KEEP")
        if not keep:
            shutil.rmtree(self.var, ignore_errors=True)

    def script(self, name, *arguments, timeout=300):
        """scripts/name, for this copy; standard output and error together."""
        return subprocess.run([ROOT / "scripts" / name, *map(str, arguments)], env=self.environment, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def couponctl(self, *arguments):
        return self.script("couponctl", *arguments)

    def verify(self, *coupons):
        """The ledger, replayed, is what is stored: everywhere, or in these coupons."""
        done = self.couponctl("verify", *coupons)
        assert done.returncode == 0, f"couponctl verify {' '.join(coupons)}: exit {done.returncode}\n{done.stdout}"

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
        return {name: self.pid(name) for name in PROCESSES}

    def signal(self, name, number):
        """Send it; the pid that got it."""
        pid = wait_until(f"{name} to live", lambda: self.pid(name))
        os.kill(pid, number)
        return pid

    def kill(self, name, seconds=15):
        """kill -9, and wait for the successor that the master starts. Who lived for a second is replaced at once."""
        pid = wait_until(f"{name} to live", lambda: self.pid(name))
        wait_until(f"{name} to have lived for a second", lambda: age_s(pid) > 1.1)
        old = self.signal(name, signal.SIGKILL)
        return wait_until(f"a successor of {name}", lambda: self.pid(name) not in (None, old) and self.pid(name), seconds)

    # ---- its clients ----

    def key(self, role):
        return (self.var / "keys" / role).read_text().strip()

    def client(self, role=None):
        return Http(self.port, self.key(role) if role else None)

    def direct(self, worker, role="storefront"):
        return Direct(self.var / "run" / f"worker-{worker}.sock", self.key(role))

    def way(self, role="storefront"):
        return HttpWay(self.port, self.key(role))

    def ways(self, role="storefront"):
        """A way to each worker, past nginx."""
        return [DirectWay(self.var / "run" / f"worker-{i}.sock", self.key(role)) for i in range(WORKERS)]

    # ---- its coupons ----

    def coupon(self, slots=0, **members):
        """A new active coupon with so many slots; its id. `total` is short for cap.total."""
        ops = self.client("ops")
        name = re.sub(r"\W+", "-", os.environ.get("PYTEST_CURRENT_TEST", "test").split("::")[-1].split(" ")[0])[:40].strip("-")
        cap = {"total": max(slots, 1), "per_user": 1, **members.pop("cap", {})}
        body = {"id": f"t-{name}-{next(self.names)}", "title": name, "state": "active", "cap": cap, **members}
        coupon = ops.post("/coupons", body).ok(201)["id"]
        if slots:
            self.generate(coupon, slots)
        return coupon

    def generate(self, coupon, count):
        """Slots, and wait until they are there."""
        return self.job(self.client("ops").post(f"/coupons/{coupon}/slots", {"count": count}).expect(202))

    def import_codes(self, coupon, codes):
        """Each becomes a slot; the job's result."""
        text = "".join(f"{code}\n" for code in codes).encode()
        reply = self.client("ops").post(f"/coupons/{coupon}/codes", text, headers={"Content-Type": "text/plain"}).expect(202)
        return self.job(reply)["result"]

    def job(self, reply, state="done", seconds=60):
        """The job of a 202, once it is in this state."""
        return self.job_at(reply.header("Location"), state, seconds)

    def job_at(self, location, state="done", seconds=60):
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

    def log(self):
        path = self.var / "log" / "coupond.log"
        return path.read_text(errors="replace") if path.exists() else ""
