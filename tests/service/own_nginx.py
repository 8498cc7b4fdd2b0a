"""What nginx has open; another nginx before a copy's workers, with some words of its configuration replaced: its time-outs, its rates,
the size of its zones; and certificates."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

from ports import free_port
from stack import children, wait_until


def open_below(stack, place):
    """The files in this place that the workers of a copy's nginx have open; those for bodies and answers have no name any more."""
    found = []
    for pid in children(int((stack.var / "run" / "nginx.pid").read_text())):
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(fd)
                found += [name] if name.startswith(str(place)) else []
    return found


def certificate(folder, *names):
    """privkey.pem, and fullchain.pem of these names, which signs itself."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=coupons.test",
                    "-addext", f"subjectAltName={','.join(names)}", "-keyout", folder / "privkey.pem", "-out", folder / "fullchain.pem"],
                   check=True, capture_output=True)


@contextlib.contextmanager
def own_nginx(stack, place, *changes):
    """Its port. changes: (words, what stands in their place); the words are there."""
    port, text = free_port(), (stack.var / "nginx" / "nginx.conf").read_text()
    for words, instead in changes:
        assert words in text, f"nginx.conf does not say {words}"
        text = text.replace(words, instead)
    text = text.replace(f":{stack.port} ", f":{port} ").replace(f"{stack.var}/run/nginx.pid", f"{place}/pid")
    text = text.replace(f"{stack.var}/log", str(place))
    text = re.sub(rf'(_temp_path +"){re.escape(str(stack.var))}/nginx', rf"\1{place}", text)  # the pages stay where they are
    text = text.replace(f"{stack.var}/run/metrics.sock", f"{place}/metrics.sock")
    (place / "nginx.conf").write_text(text)
    nginx = [shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), "-p", place, "-c", place / "nginx.conf"]
    done = subprocess.run([*nginx, "-e", place / "error.log"], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    try:
        yield port
    finally:
        os.kill(int((place / "pid").read_text()), signal.SIGTERM)
        wait_until("nginx to end", lambda: not (place / "pid").exists())
