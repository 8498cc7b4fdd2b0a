"""The load: many clients at once, and slots that are made meanwhile; settle() asks what was left open in the end."""
import asyncio
import collections
import itertools
import random
import threading
import time

from asking import PATIENCE_S, Asker
from problems import TRY_AGAIN
from scenarios import COURSES, REMEMBERED, TRIES, Client
from stack import wait_until

SETTLE_S = 600
JOB_S = 600  # for one to be accepted, or done


def make_coupons(stack):
    """{course: its coupon}"""
    return {name: stack.coupon(course.slots, cap=dict(course.cap), **course.more) for name, course in COURSES.items()}


class Load(threading.Thread):
    """The crowd. It sends through nginx and, past it, straight to workers, so that two workers write to one coupon. `ways` are those of
    each front in turn."""

    def __init__(self, stack, coupons, recorder, seed, clients=24, pause_s=0.02):
        super().__init__(daemon=True)
        self.recorder, self.seed, self.clients, self.pause_s = recorder, seed, clients, pause_s
        past = zip(*(front.ways("ops") for front in stack.fronts))
        self.ways = [front.way("ops") for front in stack.fronts] * 4 + list(itertools.chain(*past))
        self.fronts = len(stack.fronts)
        self.coupons = coupons
        self.ending, self.failure, self.unresolved = False, None, []
        self.codes = collections.defaultdict(lambda: collections.deque(maxlen=REMEMBERED))  # issued, of each course
        self.printed = collections.defaultdict(list)  # known to everybody, from lists that were imported, of each course
        self.numbers = itertools.count(1)

    def number(self):
        return next(self.numbers)

    def another(self, via, chance):
        """A way for another try: to another front, where there is one."""
        return chance.choice([way for way in range(len(self.ways)) if self.fronts == 1 or (way - via) % self.fronts])

    def run(self):
        try:
            asyncio.run(self._run())
        except BaseException as e:  # reported to whoever ends it
            self.failure = e

    async def _run(self):
        await asyncio.gather(*(Client(self, i).live() for i in range(self.clients)))

    def end(self):
        self.ending = True
        self.join(TRIES * PATIENCE_S * 4 + 60)
        assert not self.is_alive(), "the clients do not come to their end"
        if self.failure:
            raise self.failure

    def settle(self):
        """Ask what was left unknown, under the same key, until each has an answer; the number of those."""
        asyncio.run(self._settle())
        left = [op for op in self.unresolved if op.said == "unknown" or op.code in TRY_AGAIN]
        assert not left, f"{len(left)} calls are without an answer although all is healed: {left[:3]}"
        return len(self.unresolved)

    async def _settle(self):
        end = time.monotonic() + SETTLE_S
        lines = [self.unresolved[i::8] for i in range(8)]
        await asyncio.gather(*(self._settle_line(line, end) for line in lines))

    async def _settle_line(self, line, end):
        asker = Asker(self.ways, self.recorder)
        for op in line:
            while time.monotonic() < end:
                await asker.ask(op, 0)
                if op.said != "unknown" and op.code not in TRY_AGAIN:
                    break
                await asyncio.sleep(0.1)
        asker.close()


class Jobs(threading.Thread):
    """Lets the job runner work, again and again; each job is asked for, of each front in turn, until it is accepted."""

    def __init__(self, stack, every_s):
        super().__init__(daemon=True)
        self.stack, self.every_s, self.failure = stack, every_s, None
        self.fronts = itertools.cycle(stack.fronts)
        self.ending = threading.Event()

    def run(self):
        try:
            for serial in itertools.count(1):
                if self.ending.wait(self.every_s):
                    return
                self.one(serial)
        except BaseException as e:  # reported to whoever ends it
            self.failure = e

    def one(self, serial):
        raise NotImplementedError

    def accepted(self, target, body, **how):
        """The job of this POST."""
        def location():
            reply = self.reply("POST", target, body, **how)
            return reply.header("Location") if reply and reply.status == 202 else None

        return wait_until(f"a job of {target}", location, JOB_S, every=0.2)

    def done(self, job):
        """Wait for it."""
        def ended():
            reply = self.reply("GET", job)
            return reply and reply.status == 200 and reply.json()["state"] == "done"

        wait_until(f"{job} to be done", ended, JOB_S, every=0.2)

    def reply(self, method, target, body=None, **how):
        """None: the connection broke."""
        ops = next(self.fronts).client("ops")
        try:
            return ops.request(method, target, body, may_fail=True, **how)
        except (OSError, AssertionError):
            return None
        finally:
            ops.close()

    def stop(self):
        self.ending.set()
        self.join(2 * JOB_S + 30)
        assert not self.is_alive(), "jobs do not come to their end"
        if self.failure:
            raise self.failure


class Stocker(Jobs):
    """More slots for the flow."""

    def __init__(self, stack, coupons, every_s=1.5, count=2000):
        super().__init__(stack, every_s)
        self.coupons, self.count, self.asked, self.jobs = coupons, count, collections.Counter(), []

    def one(self, serial):
        coupon = self.coupons[serial % len(self.coupons)]
        body = {"count": self.count}
        self.jobs.append(self.accepted(f"/coupons/{coupon}/slots", body, idempotency_key=f"stock-{serial}"))
        self.asked[coupon] += self.count

    def end(self):
        """The slots that were asked for, once all of them are there."""
        self.stop()
        for job in self.jobs:
            self.done(job)
        return self.asked


class Importer(Jobs):
    """Lists of codes: new ones, ones of lists before, rows twice, and what is no code. Some are sent again as they are,
    with or without a key; of what is sent again because no answer came, both may have been accepted."""

    def __init__(self, stack, load, course, seed, every_s=1.0, fresh=12):
        super().__init__(stack, every_s)
        self.printed, self.coupon, self.fresh, self.lists, self.codes = load.printed[course], load.coupons[course], fresh, [], []
        self.chance = random.Random(f"{seed} {course}")

    def one(self, serial):
        if self.lists and self.chance.random() < 0.3:
            rows = self.chance.choice(self.lists)
        else:
            new = [f"C-{serial}-{i}-{self.chance.randrange(10**6)}" for i in range(self.fresh)]
            old = self.chance.choices(self.codes, k=4) if self.codes else []
            rows = [*new, *old, *self.chance.choices(new, k=2), "no"]
            self.codes += new
        self.lists.append(rows)
        key = f"list-{serial}" if self.chance.random() < 0.5 else None
        text, kind = "".join(f"{row}\n" for row in rows).encode(), {"Content-Type": "text/plain"}
        job = self.accepted(f"/coupons/{self.coupon}/codes", text, idempotency_key=key, headers=kind)
        self.done(job)
        self.printed.extend(set(rows) & set(self.codes))

    def end(self):
        """Every list, and what all its jobs reported."""
        self.stop()
        ended = [self.stack.job_at(f"/coupons/-/jobs/{job}", seconds=JOB_S)["result"] for job in self._jobs()]
        return {"lists": self.lists, "jobs": ended, "slots": len(set(self.codes))}

    def _jobs(self):
        target = first = f"/coupons/-/jobs?coupon={self.coupon}&limit=1000"
        while target:
            page = self.stack.client("ops").get(target).ok()
            yield from (job["id"] for job in page["items"])
            target = page["next"] and f"{first}&cursor={page['next']}"
