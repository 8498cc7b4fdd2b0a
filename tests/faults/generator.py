"""The load generator of tests/bench, as a function."""
import itertools
import json
import pathlib
import subprocess

from stack import ROOT

SOURCE = ROOT / "tests" / "bench" / "load.c"
seeds = itertools.count(1)


class Generator:
    """Takings of new users, at a running stack; every call has users and keys of its own."""

    def __init__(self, stack):
        self.stack, self.program = stack, pathlib.Path(stack.var) / "load"
        subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-o", self.program, SOURCE], check=True)

    def __call__(self, coupon, seconds, connections, rate=None, warmup=1, may_fail=False):
        """What load.c prints. With `rate`: so many a second, whatever becomes of them."""
        command = [self.program, "--port", self.stack.port, "--path", f"/coupons/{coupon}/redemptions",
                   "--key", self.stack.key("storefront"), "--connections", connections, "--seconds", seconds,
                   "--warmup", warmup, "--seed", next(seeds), *(["--rate", rate] if rate else [])]
        done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=seconds + 120)
        assert may_fail or done.returncode == 0, f"the load generator: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)
