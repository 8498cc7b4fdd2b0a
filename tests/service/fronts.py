"""Several fronts of one service, each with nginx and coupond of its own, on the database of the first one."""
import contextlib
import ssl
import subprocess

from client import Http
from ports import free_port
from stack import GUESSES, SETTINGS, SLOW_DATABASE, Stack, wait_until


class Front(Stack):
    """One of them. Its keys, and the certificate by which fronts know each other, are the first one's."""

    def __init__(self, peers, number, first=None, settings=SETTINGS + GUESSES, **how):
        super().__init__(SLOW_DATABASE + settings, **how)
        self.first = first
        self.peer_port = int(peers[number].split(":")[1])
        self.environment |= {"COUPONS_PEERS": " ".join(peers), "COUPONS_PEER": peers[number]}

    def start(self):
        if self.first:
            self.environment["MONGODB_URI"] = (self.first.var / "run" / "mongodb_uri").read_text().strip()
            if not (self.var / "keys").exists():
                (self.var / "keys").symlink_to(self.first.var / "keys")
        return super().start()

    def answered(self, route):
        """How many requests of this route its workers have answered."""
        return self.metric("coupons_requests_total", route=route)


@contextlib.contextmanager
def fronts(count=2, settings=SETTINGS + GUESSES, **environment):
    peers = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    with contextlib.ExitStack() as undo:
        started = []
        for i in range(count):
            front = Front(peers, i, started[0] if started else None, settings)
            front.environment |= environment
            started.append(undo.enter_context(front))
        yield started


def serving(started, coupon, by):
    """The front whose workers answer a call about the coupon that comes in at `by`; None where not one alone did."""
    before = [front.answered("counts") for front in started]
    by.counts(coupon)
    at = [front for front, count in zip(started, before) if front.answered("counts") > count]
    return at[0] if len(at) == 1 else None


def home_of(started, coupon):
    """The front that serves the coupon wherever it is asked for. On a busy machine one that takes too long to connect is passed by for
    a while, so until all ways lead to it."""
    def found():
        at = {serving(started, coupon, by) for by in started}
        return at.pop() if len(at) == 1 else None

    return wait_until(f"{coupon} to have one front", found)


def coupon_of(started, home, slots=0, **members):
    """A coupon that this front serves."""
    while home_of(started, coupon := started[0].coupon(slots, **members)) is not home:
        pass
    return coupon


class Peer(Http):
    """Past the limits and the choice of a front: as another front calls, with a certificate and whatever else it would say."""

    def __init__(self, front, key, certificate=None):
        super().__init__(front.peer_port, key)
        self.context = ssl._create_unverified_context()
        if certificate:
            self.context.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")

    def connect(self):
        return self.context.wrap_socket(super().connect())


def certificate(place):
    """One of nobody; without its .pem and .key."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{place}.key", "-out", f"{place}.pem",
                    "-subj", "/CN=coupons-peer", "-addext", "subjectAltName=DNS:coupons-peer", "-days", "2"], check=True, capture_output=True)
    return place
