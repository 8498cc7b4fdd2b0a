"""The Debian package: installed in a root that has what it says it needs and nothing else, served from, upgraded, removed, purged; and
the steps of the Containerfile, carried out there.

Named so that pytest runs it only when asked for: `COUPONS_TESTS=package scripts/test`, as root. Two things are not done here: no systemd
is there, so its commands are those of the unit, carried out; and no image is pulled, so the root stands for the one that apt makes.
"""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile

import pytest

from clean_root import CleanRoot, allowed, fields_of, run
from client import Http, HttpOverSocket
from ports import free_port
from stack import BUILD, ROOT, SLOW_DATABASE, wait_until

CONTAINER = ROOT / "conf/packaging/container"
CHANGED = ("etc/coupons/coupond.ini", "etc/coupons/environment", "etc/nginx/sites-available/coupons")
SEED = "var/lib/coupons/keys/receipt_seed"


@pytest.fixture(scope="session")
def package():
    """Made of the build that is tested, as it is."""
    done = subprocess.run(["make", "-C", ROOT, "--no-print-directory", "-o", "all", "package", f"B={BUILD.relative_to(ROOT)}"], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return pathlib.Path(done.stdout.splitlines()[-1])


def test_lintian_has_nothing_to_say(package):
    done = subprocess.run(["lintian", "--fail-on", "error,warning", package], text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


class Machine(CleanRoot):
    """A clean root with the package, which is to serve from the database of `stack`."""

    def __init__(self, root, package, stack, also=""):
        fields = fields_of(package)
        super().__init__(root, ", ".join(filter(None, [fields["Depends"], fields["Recommends"], also])))
        self.package, self.port, self.running = package, free_port(), []
        self.uri = (stack.var / "run" / "mongodb_uri").read_text().strip()
        stack.admit("packaged")

    def install(self):
        (self.root / "tmp" / self.package.name).write_bytes(self.package.read_bytes())
        said = self.run("dpkg", "--install", f"/tmp/{self.package.name}")
        (self.root / "tmp" / self.package.name).unlink()
        return said

    def configure(self):
        """As an operator would: the database, and where nginx listens."""
        (self.root / "etc/coupons/environment").write_text(f"MONGODB_URI={self.uri}\nCOUPONS_URL=http://127.0.0.1:{self.port}\n")
        config = self.root / "etc/coupons/coupond.ini"
        # Nobody is to get `busy` because of other work of the machine; the site waits for some seconds longer.
        config.write_text(config.read_text() + f"\n{SLOW_DATABASE}database = packaged\n[worker]\nrequest_deadline_ms = 12000\n")
        site = self.root / "etc/nginx/sites-available/coupons"
        site.write_text(re.sub(r"(listen \S*?)\b8080\b", rf"\g<1>{self.port}", site.read_text()))

    def of_unit(self, name):
        unit = (self.root / "lib/systemd/system/coupond@.service").read_text().replace("%i", "blue")
        return re.findall(rf"^{name}=(.*)$", unit, re.M)

    def serve(self, undo):
        """What systemd does with the unit, and nginx with the site."""
        [user], groups = self.of_unit("User"), self.of_unit("SupplementaryGroups")
        env = dict(line.split("=", 1) for line in self.of_unit("Environment") + (self.root / "etc/coupons/environment").read_text().splitlines())
        run_dir = self.root / "run/coupond-blue"
        run_dir.mkdir(exist_ok=True)
        self.run("chown", f"{user}:{user}", "/run/coupond-blue")
        for command in self.of_unit("ExecStartPre"):
            self.run(*command.split(), user=user, groups=groups, env=env)
        [command] = self.of_unit("ExecStart")
        self.start(undo, command.split(), env, user, groups)
        wait_until("the worker's socket", lambda: (run_dir / "worker-1.sock").exists())
        (self.root / "etc/nginx/sites-enabled/default").unlink(missing_ok=True)
        (self.root / "etc/nginx/sites-enabled/coupons").symlink_to("../sites-available/coupons")
        self.run("nginx", "-t")
        self.start(undo, ["nginx", "-g", "daemon off;"])
        self.wait_ready()

    def is_ready(self):
        assert all(process.poll() is None for process in self.running), (self.root / "tmp/said").read_text()
        with contextlib.suppress(ConnectionRefusedError):
            return Http(self.port).get("/coupons/-/ready", may_fail=True).status == 200

    def wait_ready(self):
        wait_until("the service to be ready", self.is_ready)

    def start(self, undo, command, env=None, user=None, groups=()):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})}
        with open(self.root / "tmp/said", "ab") as said:
            os.fchmod(said.fileno(), 0o666)  # who runs a container gives its output to its user
            process = subprocess.Popen(self.words(command, user, groups), env=environment, cwd="/", stdin=subprocess.DEVNULL,
                                       stdout=said, stderr=said)
        self.running.append(process)
        undo.callback(self.stop)
        return process

    def stop(self):
        """Whatever runs, the last one first; each has to end well."""
        while self.running:
            process = self.running.pop()
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0, (self.root / "tmp/said").read_text()

    def key(self, role):
        return (self.root / "var/lib/coupons/keys" / role).read_text().strip()

    def couponctl(self, *words):
        """By root, who says nothing of where things are."""
        return self.run("couponctl", *words)

    def take_one(self):
        """A coupon, and the first of it."""
        assert self.couponctl("coupon", "create", "--id", "one", "--title", "One", "--total", "5", "--generate", "--state", "active") == "one\n"
        Http(self.port, self.key("storefront")).post("/coupons/one/redemptions", {"user": "u"}, idempotency_key="k").ok(201)


@pytest.fixture
def machine(package, stack):
    if not allowed():
        pytest.skip("only root who may mount makes machines")
    with contextlib.ExitStack() as undo:
        root = undo.enter_context(tempfile.TemporaryDirectory(prefix="coupons-test-"))
        undo.callback(stack.mongo.drop_database, "packaged")

        def start(also=""):
            made = Machine(root, package, stack, also)
            made.undo = undo
            return made

        yield start


def test_the_package_brings_all_that_the_service_needs(machine):
    there = machine()
    before = there.listed()
    there.install()
    assert there.run("dpkg", "--verify", "coupons") == "", "a file is not as the package has it"
    added = there.listed() - before
    assert not [name for name in added if re.match(r"(usr/local|tmp|home|root)/", name)], added
    owner = there.run("stat", "-c", "%n %U %a", "/var/lib/coupons", "/var/lib/coupons/keys", "/var/log/coupons", "/etc/coupons/environment")
    assert owner.splitlines() == ["/var/lib/coupons coupons 750", "/var/lib/coupons/keys coupons 700", "/var/log/coupons coupons 750",
                                  "/etc/coupons/environment root 600"]
    places = (bytes(ROOT), bytes(there.root))
    for path in map(there.root.joinpath, added - {f"var/lib/dpkg/{name}" for name in ("status", "status-old", "available")}):
        if path.is_file() and not path.is_symlink():
            assert not any(place in path.read_bytes() for place in places), path

    there.configure()
    there.serve(there.undo)
    there.take_one()
    assert "one: ok" in there.couponctl("verify")
    healthy = there.couponctl("doctor")
    of_this_machine = {("warn", check) for check in ("database", "replicas", "majority", "clock", "disk", "libfcgi")}
    assert {tuple(line.split()[:2]) for line in healthy.splitlines() if not line.startswith("ok")} <= of_this_machine, healthy
    assert (there.root / "usr/share/doc/coupons/conf/MACHINES.md").is_file() and (there.root / "usr/share/coupons/grafana/coupons.json").is_file()
    for path in ("dashboard/chart.js", "docs/", "openapi.json", "problems/sold_out"):
        page = Http(there.port).get(f"/coupons/-/{path}", headers={"Accept-Encoding": "gzip"}).expect(200)
        assert page.header("Content-Encoding") == "gzip", path
    assert b"coupons_requests_total" in HttpOverSocket(there.root / "run/coupons/metrics/socket").get("/coupons/-/metrics").expect(200).body


def test_an_upgrade_keeps_what_was_changed_and_purging_keeps_what_the_database_needs(machine):
    there = machine()
    there.install()
    before = there.listed()
    there.configure()
    there.serve(there.undo)
    there.take_one()
    link = there.root / "etc/coupons/upstream.conf"
    link.unlink()
    link.symlink_to("upstream-green.conf")
    kept = {name: (there.root / name).read_bytes() for name in (*CHANGED, SEED)}

    there.install()
    assert {name: (there.root / name).read_bytes() for name in kept} == kept
    assert os.readlink(link) == "upstream-green.conf"
    assert Http(there.port, there.key("reporting")).get("/coupons/one/counts").ok()["redeemed"] == 1, "it serves through an upgrade"
    assert not before - there.listed()
    there.stop()

    for command in ("--remove", "--purge", "--purge"):  # again, as after one that was cut off
        there.run("dpkg", command, "coupons")
        if command == "--remove":
            assert {name: (there.root / name).read_bytes() for name in kept} == kept
            assert not (there.root / "usr/sbin/coupond").exists()
    left = {name for name in there.listed() if "coupon" in name and not name.startswith("run/")}
    assert left - {"var/lib/coupons/high_water"} == {"var/lib/coupons", "var/lib/coupons/keys", SEED}  # that may not be written yet
    assert (there.root / SEED).read_bytes() == kept[SEED]

    there.install()
    there.configure()
    assert "one: ok" in there.couponctl("verify"), "nothing of the database is gone"


# ---- the container ----

def stages():
    """The steps of the Containerfile's two stages: (instruction, rest)."""
    text = re.sub(r"\\\n\s*", "", (CONTAINER / "Containerfile").read_text())
    steps = [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]
    _, last = [i for i, (word, _) in enumerate(steps) if word == "FROM"]
    return steps[1:last], steps[last + 1:]


def test_the_first_stage_has_all_that_the_package_is_made_of(tmp_path):
    """But for the compiler's part: the programs are there already."""
    steps, _ = stages()
    for word, rest in steps[:-1]:
        *sources, to = rest.split()
        there = tmp_path / to.removeprefix("/src/")
        for source in sources:
            assert word == "COPY"
            shutil.copytree(ROOT / source, there) if (ROOT / source).is_dir() else shutil.copy(ROOT / source, there)
    word, command = steps[-1]
    assert (word, command) == ("RUN", "LISTEN=8080 /src/scripts/package")
    (tmp_path / "build").mkdir()
    for name in ("coupond", "couponctl"):
        shutil.copy(BUILD / name, tmp_path / "build")
    run("make", "-n", "-C", tmp_path, "all")
    made = run("sh", "-c", command.replace("/src", str(tmp_path)), env={**os.environ, "COUPONS_BUILD": "build"}).strip()
    run("dpkg-deb", "-x", made, tmp_path / "root")
    assert "listen 8080" in (tmp_path / "root/etc/nginx/sites-available/coupons").read_text()


class Container:
    """The last stage, carried out in a clean root: its `apt-get install` is a root that has these packages, and dpkg."""

    def __init__(self, machine):
        self.user, self.env, self.health, self.entry = None, {}, None, None
        [command] = [rest for word, rest in stages()[1] if word == "RUN" and "apt-get" in rest]
        words = shlex.split(re.search(r"apt-get install (.*?) &&", command)[1])
        wanted = [w for w in words if w[0] not in "-/" and not w.startswith("systemd-standalone-")]
        self.machine = machine(", ".join(wanted))
        for word, rest in stages()[1]:
            getattr(self, f"do_{word.lower()}")(rest)

    def do_run(self, command):
        if "apt-get" in command:
            self.machine.install()
            self.machine.configure()
        else:
            self.machine.run("sh", "-ec", command)

    def do_copy(self, rest):
        *sources, to = rest.split()
        for source in sources:
            if not rest.startswith("--from"):
                shutil.copy(ROOT / source, self.machine.root / to.lstrip("/"))

    def do_user(self, rest):
        self.user = rest

    def do_env(self, rest):
        self.env.update([rest.split("=", 1)])

    def do_healthcheck(self, rest):
        self.health = [word.replace(":8080/", f":{self.machine.port}/") for word in json.loads(rest.partition("CMD ")[2])]

    def do_entrypoint(self, rest):
        self.entry = json.loads(rest)

    def do_volume(self, _):
        pass

    def do_expose(self, port):
        assert port == "8080"


@pytest.fixture
def container(machine):
    return Container(machine)


def is_healthy(container):
    try:
        container.machine.run(*container.health, user=container.user)
    except AssertionError:
        return False
    return True


def test_the_container_serves_as_a_user_without_power_and_ends_in_order(container):
    there = container.machine
    env = {**container.env, "MONGODB_URI": there.uri}
    process = there.start(there.undo, container.entry, env, container.user)
    there.wait_ready()
    wait_until("the container to be healthy", lambda: is_healthy(container))  # another worker may be asked
    there.take_one()
    uids = {os.stat(f"/proc/{pid}").st_uid for pid in pids_below(process.pid)}
    assert uids == {int(container.user.partition(":")[0])}
    there.stop()
    assert not is_healthy(container)


@pytest.mark.parametrize("name", ["nginx", "coupond"])
def test_the_container_ends_with_either_of_its_two(container, name):
    there = container.machine
    process = there.start(there.undo, container.entry, {**container.env, "MONGODB_URI": there.uri}, container.user)
    there.wait_ready()
    [one] = [pid for pid in pids_below(process.pid)
             if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name and parent(pid) == process.pid]
    os.kill(one, signal.SIGTERM)
    there.running.remove(process)
    assert process.wait() == 1
    assert not list((there.root / "run/coupond-blue").glob("*.pid")), "the other one has ended as well"


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pids_below(pid):
    """The process, and all that it started."""
    found = [pid]
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            above = int(path.name)
            while above > 1 and above != pid:
                above = parent(above)
            if above == pid and int(path.name) != pid:
                found.append(int(path.name))
    return found
