"""Several fronts of one service behind a load balancer, as scripts/run --fronts starts them."""
import copy
import pathlib

from ports import free_ports
from stack import GUESSES, SETTINGS, SLOW_DATABASE, Stack, children, wait_until


class Balanced(Stack):
    """All of them: clients ask the load balancer. `fronts`: each as a copy that is started and stopped with all."""

    def __init__(self, count=2, settings=SETTINGS + GUESSES, members=1, **environment):
        super().__init__(SLOW_DATABASE + settings)
        self.port = free_ports(count + 1)
        self.environment |= {"COUPONS_PORT": str(self.port), **environment}
        self.options = ("--members", members, "--fronts", count)
        self.fronts = [copy.copy(self) for _ in range(count)]
        for number, front in enumerate(self.fronts, 1):
            front.port += number
            if number > 1:
                front.var = self.var / f"front-{number}"

    def log(self):
        return "".join(Stack.log(front) for front in self.fronts)

    def back(self):
        """Start what does not run."""
        self.script("run", "--detach", *self.options, status=0)


def answered(front, route):
    """How many requests of this route its workers have answered."""
    return front.metric("coupons_requests_total", route=route)


def home_of(whole, coupon):
    """The front to which the load balancer sends what concerns the coupon."""
    before = [answered(front, "counts") for front in whole.fronts]
    whole.counts(coupon)
    [home] = [front for front, count in zip(whole.fronts, before) if answered(front, "counts") > count]
    return home


def coupon_of(whole, home, slots=0, **members):
    """A coupon that this front serves."""
    while home_of(whole, coupon := whole.coupon(slots, **members)) is not home:
        pass
    return coupon


def nginx_pids(front):
    master = int((front.var / "run" / "nginx.pid").read_text())
    return [master, *children(master)]


def wait_for_unread(port):
    """Until something was sent to this port of 127.0.0.1 that nobody has read."""
    at = f"0100007F:{port:04X}"

    def unread():
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(row[1] == at and row[3] == "01" and not row[4].endswith(":00000000") for row in rows)

    wait_until(f"something to be sent to port {port}", unread)
