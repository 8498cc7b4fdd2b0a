"""make install: what it puts where, and the service that starts from there, with what was installed alone."""
import contextlib
import grp
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request

import pytest

from client import Http, HttpOverSocket
from own_nginx import certificate
from ports import free_port
from stack import BUILD, ROOT, SLOW_DATABASE, wait_until

PROGRAMS = ["usr/bin/couponctl", "usr/lib/coupons/couponctl", "usr/bin/coupons-pregenerate", "usr/sbin/coupond", "usr/lib/coupons/first-keys"]


def install(**where):
    """make install with these variables, of the build that is tested, as it is."""
    settings = [f"{name}={value}" for name, value in {**where, "B": BUILD.relative_to(ROOT)}.items()]
    done = subprocess.run(["make", "-C", ROOT, "-o", "all", "install", *settings], cwd="/", text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def listed(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def test_a_package_has_its_files_and_names_no_place_of_the_build(tmp_path):
    install(DESTDIR=str(tmp_path), PREFIX="/usr")
    there = listed(tmp_path)
    assert {*PROGRAMS, "etc/coupons/coupond.ini", "etc/coupons/environment", "etc/logrotate.d/coupons", "etc/nginx/sites-available/coupons",
            "usr/lib/systemd/system/coupond@.service", "usr/lib/sysusers.d/coupons.conf", "usr/lib/tmpfiles.d/coupons.conf",
            "usr/share/bash-completion/completions/couponctl", "usr/share/man/man1/couponctl.1", "usr/share/man/man8/coupond.8",
            "usr/share/coupons/pages/docs/openapi.json.gz", "usr/share/coupons/pages/dashboard/chart.js",
            "usr/share/coupons/pages/problems/sold_out.html", "usr/share/coupons/nginx/balancer.conf", "usr/share/coupons/prometheus/coupons-alerts.yml",
            "usr/share/coupons/grafana/coupons.json", "usr/share/doc/coupons/README.md", "usr/share/doc/coupons/conf/SECURITY.md",
            "usr/share/doc/coupons/conf/MACHINES.md", "usr/share/doc/coupons/conf/CHANGELOG",
            "usr/share/doc/coupons/openapi.json"} <= set(there), there
    for name in set(there) - {"usr/lib/coupons/couponctl", "usr/sbin/coupond"}:
        content = (tmp_path / name).read_bytes()
        assert bytes(ROOT) not in content and bytes(tmp_path) not in content, name
    for name in PROGRAMS:
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755, name
    assert (tmp_path / "etc/coupons/environment").stat().st_mode & 0o777 == 0o600


def test_what_was_changed_under_etc_stays(tmp_path):
    install(DESTDIR=str(tmp_path), PREFIX="/usr")
    changed = {name: f"# {name}\n" for name in ("coupons/coupond.ini", "coupons/environment", "logrotate.d/coupons", "nginx/sites-available/coupons")}
    for name, text in changed.items():
        (tmp_path / "etc" / name).write_text(text)
    link = tmp_path / "etc/coupons/upstream.conf"
    link.unlink()
    link.symlink_to("upstream-green.conf")
    before = listed(tmp_path)
    install(DESTDIR=str(tmp_path), PREFIX="/usr")
    assert listed(tmp_path) == before
    assert {name: (tmp_path / "etc" / name).read_text() for name in changed} == changed
    assert os.readlink(link) == "upstream-green.conf"


@pytest.mark.skipif(not shutil.which("systemd-sysusers") or os.geteuid() != 0, reason="only root makes users")
def test_systemd_makes_its_user_and_directories(tmp_path):
    install(DESTDIR=str(tmp_path), PREFIX="/usr")
    for command in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
        done = subprocess.run([*command, f"--root={tmp_path}"], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    name, _, uid, gid, _, home, _ = (tmp_path / "etc/passwd").read_text().splitlines()[0].split(":")
    assert (name, home) == ("coupons", "/var/lib/coupons")
    for place, mode in (("var/lib/coupons", 0o750), ("var/lib/coupons/keys", 0o700), ("var/log/coupons", 0o750)):
        found = (tmp_path / place).stat()
        assert (found.st_mode & 0o777, str(found.st_uid), str(found.st_gid)) == (mode, uid, gid), place


# ---- the service ----

# As a distribution has it.
NGINX = """{user}worker_processes auto;
pid {run}/nginx.pid;
error_log {var}/log/nginx/error.log;
events {{ worker_connections 768; }}
http {{
    client_body_temp_path {run}/body; proxy_temp_path {run}/proxy; fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    default_type application/octet-stream;
    access_log {var}/log/nginx/access.log;
    gzip on;
    server {{ listen 127.0.0.1:{other}; return 200 "another site"; }}
    include {etc}/nginx/sites-enabled/*;
}}
"""


def test_the_load_balancer_of_the_example_speaks_tls_on_both_sides(tmp_path):
    """In one nginx with a front's site, which believes it."""
    front, balancer, etc, run, usr = free_port(), free_port(), tmp_path / "etc", tmp_path / "run", tmp_path / "usr"
    install(PREFIX=str(usr), SYSCONFDIR=str(etc), LOCALSTATEDIR=str(tmp_path / "var"), RUNSTATEDIR=str(run), BALANCER="127.0.0.1 ::1",
            SERVER_NAME="localhost coupons.internal",
            LISTEN=f"127.0.0.1:{front}", METRICS=f"127.0.0.1:{free_port()}")
    ssl_of = tmp_path / "ssl"
    for place in (ssl_of, run, tmp_path / "var/log/nginx", etc / "nginx/sites-enabled"):
        place.mkdir(parents=True)
    certificate(ssl_of, "DNS:localhost", "DNS:coupons.internal")
    shutil.copy(ssl_of / "fullchain.pem", ssl_of / "fronts-ca.pem")

    def example(name, port):
        text = (usr / "share/coupons/nginx" / name).read_text()
        return re.sub(r"listen 443\b", f"listen 127.0.0.1:{port}", re.sub(r"listen \[::\].*", "", text)).replace("/etc/ssl/coupons", str(ssl_of))

    for name, port in (("front", front), ("balancer", balancer)):
        (tmp_path / f"tls-{name}.conf").write_text(example("tls.conf", port))
    site = (etc / "nginx/sites-available/coupons").read_text()
    assert "set_real_ip_from 127.0.0.1;" in site and "set_real_ip_from ::1;" in site and "real_ip_header X-Forwarded-For;" in site, site
    (etc / "nginx/sites-enabled/coupons").write_text(re.sub(rf"listen 127.0.0.1:{front}.*", f"include {tmp_path}/tls-front.conf;", site))
    text = example("balancer.conf", balancer).replace(str(usr / "share/coupons/nginx/tls.conf"), f"{tmp_path}/tls-balancer.conf")
    assert "https://coupons_fronts" in text
    (etc / "nginx/sites-enabled/balancer").write_text(re.sub(r"10\.0\.0\.\d+:443", f"127.0.0.1:{front}", text))
    (etc / "nginx/sites-enabled/hardening").write_text(re.sub(r"listen 80\b", f"listen 127.0.0.1:{free_port()}", example("hardening.conf", balancer)))
    user = "user root;\n" if os.geteuid() == 0 else ""
    (etc / "nginx/nginx.conf").write_text(NGINX.format(user=user, run=run, var=tmp_path / "var", etc=etc, other=free_port()))
    trusting = ssl.create_default_context(cafile=ssl_of / "fullchain.pem")

    def refused_elsewhere():
        """By another name, nothing is answered."""
        with pytest.raises((urllib.error.URLError, ssl.SSLError)):
            urllib.request.urlopen(f"https://127.0.0.1:{balancer}/", context=ssl._create_unverified_context())

    def asked():
        """Something that the front's nginx has as a file."""
        try:
            with urllib.request.urlopen(f"https://localhost:{balancer}/coupons/-/openapi.json", context=trusting) as reply:
                return reply.headers, json.load(reply)
        except urllib.error.HTTPError as refused:
            return refused.headers, json.load(refused)

    nginx = [shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), "-p", run, "-e", run / "error.log", "-c", etc / "nginx/nginx.conf"]
    done = subprocess.run(nginx, text=True, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    try:
        headers, body = asked()
        assert body["openapi"] == "3.1.0" and headers.get_all("Strict-Transport-Security") == ["max-age=63072000"], headers
        refused_elsewhere()
        # Not the name that the fronts' certificate has: nothing is sent.
        (etc / "nginx/sites-enabled/balancer").write_text((etc / "nginx/sites-enabled/balancer").read_text().replace("coupons.internal", "another"))
        subprocess.run([*nginx, "-s", "reload"], check=True, capture_output=True)
        headers, _ = wait_until("the new configuration", lambda: (said := asked())[1].get("code") == "busy" and said)
        assert headers.get_all("Strict-Transport-Security") == ["max-age=63072000"] and headers["Retry-After"] == "1", headers
    finally:
        os.kill(int((run / "nginx.pid").read_text()), signal.SIGTERM)
        wait_until("nginx to end", lambda: not (run / "nginx.pid").exists())


class Installed:
    """A root of its own, below which everything was installed, and its unit, carried out."""

    def __init__(self, root, uri):
        self.root, self.port, self.other = root, free_port(), free_port()
        self.usr, self.etc, self.var, self.run = (root / name for name in ("usr", "etc", "var", "run"))
        install(PREFIX=str(self.usr), SYSCONFDIR=str(self.etc), LOCALSTATEDIR=str(self.var), RUNSTATEDIR=str(self.run),
                LISTEN=f"127.0.0.1:{self.port}")
        (self.etc / "coupons/environment").write_text(f"MONGODB_URI=mongodb://elsewhere/\nMONGODB_URI=\"{uri}\"\n")
        config = self.etc / "coupons/coupond.ini"
        # nginx waits for 15 s
        config.write_text(f"{config.read_text()}\n{SLOW_DATABASE}database = installed\n[worker]\nrequest_deadline_ms = 12000\n")
        self.unit = (self.usr / "lib/systemd/system/coupond@.service").read_text().replace("%i", "blue")
        group = grp.getgrgid(os.getegid()).gr_name
        self.unit = self.unit.replace("socket_group=www-data", f"socket_group={group}")
        with (self.etc / "coupons/environment").open("a") as file:
            file.write(f"# where the site listens\n COUPONS_URL = 'http://127.0.0.1:{self.port}' \n")
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "MONGODB_URI": uri,
                            **dict(line.split("=", 1) for line in self.of_unit("Environment"))}
        for place in (self.run / "coupond-blue", self.var / "lib/coupons", self.var / "log/coupons", self.var / "log/nginx"):
            place.mkdir(parents=True)
        self.metrics = self.run / "coupons/metrics"
        [[_, _, mode, *owner]] = [line.split() for line in (self.usr / "lib/tmpfiles.d/coupons.conf").read_text().splitlines()
                                  if line.split()[1] == str(self.metrics)]
        assert (mode, owner) == ("0750", ["coupons", "coupons", "-"]), "others could read the metrics"
        self.metrics.mkdir(int(mode, 8), parents=True)

    def of_unit(self, name):
        return re.findall(rf"^{name}=(.*)$", self.unit, re.M)

    def start(self, undo):
        for command in self.of_unit("ExecStartPre"):
            done = self.call(*command.split())
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        [command] = self.of_unit("ExecStart")
        coupond = subprocess.Popen(command.split(), env=self.environment, cwd="/", stdin=subprocess.DEVNULL)
        undo.callback(self.stop, coupond)
        wait_until("the worker's socket", lambda: (self.run / "coupond-blue/worker-1.sock").exists())
        (self.etc / "nginx/sites-enabled").mkdir()
        (self.etc / "nginx/sites-enabled/coupons").symlink_to("../sites-available/coupons")
        user = "user root;\n" if os.geteuid() == 0 else ""
        (self.etc / "nginx/nginx.conf").write_text(NGINX.format(user=user, run=self.run, var=self.var, etc=self.etc, other=self.other))
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        done = self.call(nginx, "-p", self.run, "-e", self.var / "log/nginx/error.log", "-c", self.etc / "nginx/nginx.conf")
        assert done.returncode == 0 and not done.stderr, done.stderr
        undo.callback(self.stop_nginx)
        wait_until("the service to be ready", lambda: Http(self.port).get("/coupons/-/ready", may_fail=True).status == 200)
        return coupond

    def stop(self, coupond):
        coupond.send_signal(signal.SIGTERM)
        assert coupond.wait() == 0

    def stop_nginx(self):
        os.kill(int((self.run / "nginx.pid").read_text()), signal.SIGTERM)
        wait_until("nginx to end", lambda: not (self.run / "nginx.pid").exists())

    def call(self, *words):
        return subprocess.run(list(map(str, words)), env=self.environment, cwd="/", text=True, capture_output=True)

    def couponctl(self, *words):
        """As an operator calls it: without a setting in the environment."""
        done = subprocess.run([self.usr / "bin/couponctl", *words], env={"PATH": "/usr/bin:/bin"}, cwd="/", text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def client(self, role=None):
        return Http(self.port, (self.var / "lib/coupons/keys" / role).read_text().strip() if role else None)


@pytest.fixture
def installed(stack):
    """On the database server of a copy, in a database of its own. Names of sockets are short."""
    with contextlib.ExitStack() as undo:
        root = undo.enter_context(tempfile.TemporaryDirectory(prefix="coupons-test-"))
        undo.callback(stack.mongo.drop_database, "installed")
        stack.admit("installed")
        there = Installed(pathlib.Path(root), (stack.var / "run" / "mongodb_uri").read_text().strip())
        there.coupond = there.start(undo)
        yield there


def test_the_installed_service_serves(installed):
    """By its unit's commands, before a nginx that has another site too; nothing is of the source tree."""
    exe = pathlib.Path(os.readlink(f"/proc/{installed.coupond.pid}/exe"))
    assert exe == installed.usr / "sbin/coupond"
    keys = {path.name: path for path in (installed.var / "lib/coupons/keys").iterdir()}
    assert set(keys) == {"ops", "reporting", "storefront", "receipt_seed"}
    assert {path.stat().st_mode & 0o777 for path in keys.values()} == {0o600}

    assert installed.couponctl("coupon", "create", "--id", "one", "--title", "One", "--total", "5", "--generate", "--state", "active") == "one\n"
    taken = installed.client("storefront").post("/coupons/one/redemptions?receipt=true", {"user": "u"}, idempotency_key="k").ok(201)
    assert taken["receipt"] and installed.client("reporting").get("/coupons/one/counts").ok()["redeemed"] == 1
    assert "one: ok" in installed.couponctl("verify")
    assert not re.search(r"^fail", installed.couponctl("doctor"), re.M)
    for path in ("dashboard/", "dashboard/app.js", "dashboard/chart.js", "docs/", "openapi.json", "problems/sold_out"):
        page = Http(installed.port).get(f"/coupons/-/{path}", headers={"Accept-Encoding": "gzip"}).expect(200)
        assert page.header("Content-Encoding") == "gzip", path
    Http(installed.port).get("/coupons/-/problems/never").problem("not_found")
    assert b"coupons_requests_total" in HttpOverSocket(installed.metrics / "socket").get("/coupons/-/metrics").expect(200).body
    with urllib.request.urlopen(f"http://127.0.0.1:{installed.other}/") as reply:
        assert reply.read() == b"another site"
    Http(installed.port).get("/elsewhere").problem("not_found")

    before = {name: path.read_text() for name, path in keys.items()}
    for command in installed.of_unit("ExecStartPre") + installed.of_unit("ExecReload"):
        done = installed.call(*command.split())
        assert done.returncode == 0, done.stdout + done.stderr
    assert {name: path.read_text() for name, path in keys.items()} == before, "what is there stays"
