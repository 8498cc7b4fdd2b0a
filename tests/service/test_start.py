"""Starting and stopping it where something is wrong: the first line that an operator reads names the cause, and nothing is left running."""
import os
import re
import signal
import subprocess

import pytest

from clean_root import allowed
from client import Http
from ports import free_port
from stack import ROOT, children, wait_until


def run(var, **environment):
    """scripts/run --detach of a new copy there: its exit code, and what it said."""
    environment = {**os.environ, "COUPONS_VAR": str(var), "COUPONS_PORT": str(free_port()), **environment}
    if "MONGODB_URI" not in environment:
        environment.pop("MONGODB_URI", None)
    done = subprocess.run([ROOT / "scripts/run", "--detach"], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def nothing_runs(var):
    return not list(var.glob("run/*.pid"))


@pytest.mark.parametrize("port", ["abc", "0", "99999", "65536", "080", "80 80", "-1"])
def test_a_port_that_is_none(tmp_path, port):
    assert run(tmp_path / "var", COUPONS_PORT=port) == (1, f'run: COUPONS_PORT is a port from 1 to 65535, not "{port}"\n')
    assert not (tmp_path / "var").exists()


def test_fronts_whose_ports_would_be_none(tmp_path):
    done = subprocess.run([ROOT / "scripts/run", "--fronts", "8"], env={**os.environ, "COUPONS_VAR": str(tmp_path / "var"), "COUPONS_PORT": "65530"},
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, 'run: COUPONS_PORT is a port from 1 to 65527, not "65530"\n')


@pytest.mark.parametrize("change, cause", [
    ((r"//.*@", "//"), r"The MongoDB server at 127.0.0.1:\d+ wants a user and a password, and MONGODB_URI has none: "
                       "write mongodb://USER:PASSWORD@HOST/"),
    ((r"=rs0", "=other"), r"The MongoDB server at 127.0.0.1:\d+ belongs to the replica set rs0, not other: set replicaSet=rs0 in MONGODB_URI"),
    ((r"//.*@(.*)=rs0", r"//\1=other"), r"belongs to the replica set rs0, not other"),
    ((r":[^:@]*@", ":wrong@"), r"refuses the user or password of MONGODB_URI"),
], ids=["no user", "wrong set", "wrong set, no user", "wrong password"])
def test_a_database_that_cannot_be_used(stack, tmp_path, change, cause):
    uri = re.sub(*change, (stack.var / "run/mongodb_uri").read_text().strip())
    code, said = run(tmp_path / "var", MONGODB_URI=uri)
    first, *_ = said.splitlines()
    assert code == 1 and re.search(cause, first), said
    assert nothing_runs(tmp_path / "var")
    done = stack.couponctl("--mongodb", uri, "doctor")
    assert re.search(rf"^fail +database +.*{cause}", done.stdout, re.M), done.stdout


def test_a_user_who_may_not_read_the_database(stack, tmp_path):
    stack.mongo.admin.command("createUser", "stranger", pwd="stranger", roles=[{"role": "read", "db": "elsewhere"}])
    try:
        uri = re.sub(r"//.*@", "//stranger:stranger@", (stack.var / "run/mongodb_uri").read_text().strip())
        code, said = run(tmp_path / "var", MONGODB_URI=uri)
        assert code == 1 and "The user stranger of MONGODB_URI may not read the database coupons: grant it the role readWrite there." in said, said
    finally:
        stack.mongo.admin.command("dropUser", "stranger")


@pytest.mark.skipif(not allowed(), reason="only root who may mount has a small disk")
def test_a_disk_that_is_too_small_for_the_database(tmp_path):
    command = 'mount -t tmpfs -o size=300m,mode=755 tmpfs "$COUPONS_VAR" && "$@"; code=$?; ls "$COUPONS_VAR/run"; exit $code'
    (tmp_path / "var").mkdir()
    environment = {**os.environ, "COUPONS_VAR": str(tmp_path / "var"), "COUPONS_PORT": str(free_port())}
    environment.pop("MONGODB_URI", None)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", command, "sh", ROOT / "scripts/run", "--detach"], env=environment, text=True,
                          capture_output=True)
    assert done.returncode == 1 and re.fullmatch(
        rf"run: the disk of {tmp_path}/var/db has (29\d|300) MB free, and mongod needs 500 MB: make room, or set COUPONS_VAR to a directory on "
        r"another disk\n", done.stderr), done.stdout + done.stderr
    assert done.stdout == "", "nothing is started"


def killed_master(stack):
    """The workers of the copy's nginx, whose master is killed."""
    master = int((stack.var / "run/nginx.pid").read_text())
    workers = children(master)
    os.kill(master, signal.SIGKILL)
    assert workers and Http(stack.port).get("/coupons/-/health").status == 200, "they still serve"
    return workers


def are_gone(workers):
    return not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_workers_of_an_nginx_whose_master_was_killed_are_stopped(beside):
    stack = beside()
    workers = killed_master(stack)
    assert "Stopped: nginx coupond" in stack.script("stop", status=0).stdout
    wait_until("nginx's workers to be gone", lambda: are_gone(workers))
    assert "nothing was running" in stack.script("stop").stdout


def test_a_start_replaces_an_nginx_whose_master_was_killed(beside):
    stack = beside()
    workers = killed_master(stack)
    assert "stopped the workers of a killed nginx" in stack.script("run", "--detach", status=0).stdout
    wait_until("nginx's workers to be gone", lambda: are_gone(workers))
    assert Http(stack.port).get("/coupons/-/ready").status == 200
