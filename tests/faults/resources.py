"""Faults at what the system gives a worker: no more memory, no more file descriptors."""
import contextlib
import pathlib
import re
import resource
import socket
import threading

from client import fields
from fault import Fault, NotNow, Row
from fastcgi import params_of, request
from processes import grown_up
from stack import state_of, wait_until

HUNGRY = 4  # callers with large bodies
BODY_BYTES = 4_000_000
WAITING = 64  # connections that are more than it may accept


class Limit(Fault):
    """A limit of one worker, lowered to about what it uses, and raised again."""

    kind, more = None, 0  # the limit, and how much above what is used it is set

    def start(self, chance):
        ready = grown_up(self.stack, "worker")
        if not ready:
            raise NotNow
        self.name, self.pid = chance.choice(ready)
        try:
            self.before, self.limit = resource.prlimit(self.pid, self.kind), self.used() + self.more
            self.excuse()
            resource.prlimit(self.pid, self.kind, (self.limit, self.before[1]))
        except (ProcessLookupError, FileNotFoundError, TypeError) as e:  # it has just died, or waits to be reaped
            raise NotNow from e
        self.ending = threading.Event()
        self.pressing = threading.Thread(target=self._press, daemon=True)
        self.pressing.start()

    def used(self):
        raise NotImplementedError

    def excuse(self):
        """From now on it may die of it, also before anybody presses it."""

    def _press(self):
        """Ask for more than there is, until the worker dies of it or there is enough again."""
        while not self.ending.is_set():
            with contextlib.suppress(OSError):
                self.press()
            if state_of(self.pid) is None:
                self.died()
                return
            self.ending.wait(0.02)

    def press(self):
        raise NotImplementedError

    def died(self):
        """Nothing: somebody else may have killed it."""

    def heal(self):
        self.ending.set()
        self.pressing.join(30)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, self.kind, self.before)

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(2)
        s.connect(str(self.stack.var / "run" / f"{self.name}.sock"))
        return s


class NoMemory(Limit):
    """Bodies of some megabytes come until an allocation fails. It happened when the worker is gone: that is what it does
    then, and its successor has its memory again."""

    kind, more = resource.RLIMIT_DATA, 1 << 20  # RLIMIT_AS counts what malloc has only reserved, too

    def __init__(self, stack):
        super().__init__(stack)
        self.output, self.said = stack.var / "log" / "coupond.out", 0  # where libc and sanitizers speak

    def start(self, chance):
        self.said = self.output.stat().st_size
        super().start(chance)

    def used(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmData:\s+(\d+) kB", status)[1]) * 1024

    def excuse(self):
        self.stack.excused.add(self.pid)

    def press(self):
        body = b'{"items": [' + b'{"key": "k", "user": "u"},' * (BODY_BYTES // 26 - 1) + b'{"key": "k", "user": "u"}]}'
        headers, body = fields(self.stack.key("storefront"), body, None, {})
        data = request(params_of("POST", "/coupons/no-memory/redemptions/batch", headers, body), body)
        with contextlib.ExitStack() as stack:
            callers = [stack.enter_context(self.connect()) for _ in range(HUNGRY)]
            for s in callers:
                s.sendall(data[:-1000])
            for s in callers:
                s.sendall(data[-1000:])
            for s in callers:
                s.recv(1 << 16)

    def died(self):
        """Of that, or of another fault: its master says of which signal. A failed assertion is an accident, as anywhere."""
        wait_until(f"{self.name}'s death to be logged", lambda: f"child={self.pid} signal=" in self.stack.log(), 300)
        if re.search(rb"Assertion|runtime error", self.output.read_bytes()[self.said:]):
            self.stack.excused.discard(self.pid)
        elif f"child={self.pid} signal=6" in self.stack.log():
            self.happened(f"{self.name} ran out of memory")


class NoFiles(Limit):
    """More connections come than it has descriptors for. It happened when all are in use, and a connection waits in vain;
    afterwards all are served."""

    kind = resource.RLIMIT_NOFILE

    def used(self):
        return len(list(pathlib.Path(f"/proc/{self.pid}/fd").iterdir()))

    def ask(self, s):
        s.sendall(request(params_of("GET", "/coupons/-/health", [], None)))

    def press(self):
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(self.connect()) for _ in range(WAITING)]
            self.ask(waiting[-1])
            waiting[-1].settimeout(0.3)
            try:
                waiting[-1].recv(1)
            except TimeoutError:
                if self.used() >= self.limit:
                    self.happened(f"{self.name} has no descriptor left")
            self.ending.wait(1)

    def heal(self):
        super().heal()
        wait_until(f"{self.name} to serve again", self.serves, every=0.1)

    def serves(self):
        if state_of(self.pid) in ("T", None):
            return True  # another fault has it: nobody can tell
        with contextlib.suppress(OSError), self.connect() as s:
            self.ask(s)
            return bool(s.recv(1))


WORKERS = frozenset(["worker"])
ROWS = {
    "a worker has no memory": Row(NoMemory, lasts_s=(2, 4), holds=WORKERS),
    "a worker has no descriptors": Row(NoFiles, lasts_s=(1, 3), holds=WORKERS),
}
