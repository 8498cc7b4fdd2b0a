"""What clients do: courses, which are coupons with the caps that they are there to strain, and the scenarios on them.

A client takes a random scenario, step by step; a step whose outcome it does not learn it repeats under the same key,
mostly, or gives up.
"""
import asyncio
import collections
import dataclasses
import itertools
import random

from asking import Asker, Op
from problems import TRY_AGAIN

HOLD_S = 2  # the life of holds: shorter than processes sleep
TRIES = 6
ELSEWHERE = "loose"  # another course
AT_ONCE = 3  # takings of somebody who comes and goes
TWINS = 1000  # added to a client's number gives its twin's
REMEMBERED = 50  # redemptions and calls that a client may come back to
MANY = 12  # items of a batch, at the most
MONEY = {"kind": "amount", "amount_minor": 500, "currency": "EUR"}
RETURNS = {"take": 50, "take_doubled": 3, "take_many": 2, "give_back": 38, "repeat": 5, "count": 1, "look": 1}
LANED = {**RETURNS, "take": 56, "give_back": 28, "come_and_go": 3, "count": 3}
PRICED = {**RETURNS, "adjust": 12, "give_money_back": 3}
HOLDING = {"hold_redeem": 25, "hold_cancel": 15, "hold_extend": 15, "hold_late": 8, "order_twice": 7, "give_back": 25,
           "adjust": 5, "give_money_back": 1, "count": 2, "look": 3}
CODING = {"issue": 55, "give_back": 30, "steal": 5, "repeat": 3, "count": 2, "look": 5}
GIVEN_OUT = {**CODING, "present": 12, "come_and_go": 2}
PRESENTED = {"present": 70, "give_back": 20, "repeat": 3, "count": 2, "look": 5}
AFTER_ISSUE = ["spend_by_code", "spend_by_id", "hold_by_code", "cancel_issued", "spend_twice"]


@dataclasses.dataclass(frozen=True)
class Course:
    """users: how many there are; share: how often clients turn to it; lists: its codes come in lists meanwhile."""
    scenarios: dict
    slots: int
    cap: dict
    share: int
    users: int = 10**6
    more: dict = dataclasses.field(default_factory=dict)
    lists: bool = False


FLOW = Course({"take": 91, "take_many": 2, "come_and_go": 1, "repeat": 4, "count": 2}, 20_000,
              {"total": 10**6, "per_user": 3}, 12)
COURSES = {
    # taken without end: what clients see of a fault is seen here
    **{f"flow-{i}": FLOW for i in range(4)},
    # sold out most of the time
    "paused": Course({"take": 90, "give_back": 7, "pause": 1, "count": 2}, 20_000, {"total": 20_000, "per_user": 1}, 8),
    "few": Course(RETURNS, 80, {"total": 80, "per_user": 1}, 10, users=300),
    "caps": Course(RETURNS, 3000, {"total": 3000, "per_user": 3, "per_user_per_day": 2, "per_day": 150}, 10, users=200),
    "budget": Course(PRICED, 2000, {"total": 2000, "per_user": 50, "discount_minor": 500 * 60}, 8, users=200,
                     more={"discount": MONEY}),
    "loose": Course(RETURNS, 0, {"policy": "approximate", "total": 100, "per_user": 2}, 8, users=200),
    "holds": Course(HOLDING, 60, {"total": 60, "per_user": 3}, 14, users=100,
                    more={"reserve_s": HOLD_S, "discount": MONEY}),
    "codes": Course(CODING, 120, {"total": 120, "per_user": 3}, 14, users=100,
                    more={"reserve_s": HOLD_S, "codes": {"source": "generated"}}),
    "lists": Course(GIVEN_OUT, 0, {"total": None, "per_user": 3}, 12, users=300, lists=True,
                    more={"reserve_s": HOLD_S, "codes": {"source": "imported", "claim": "any"}}),
    "flyers": Course(PRESENTED, 0, {"total": None, "per_user": 3}, 8, users=300, lists=True,
                     more={"reserve_s": HOLD_S, "codes": {"source": "imported", "claim": "present"}}),
    # dry most of the time, also on a slow machine, so that the lanes live on what comes from each other
    "lanes": Course({**LANED, "pause": 1}, 40, {"total": 40, "per_user": 2}, 12, users=300, more={"lanes": 4}),
    "lanes' holds": Course({**HOLDING, "come_and_go": 3}, 20, {"total": 20, "per_user": 3}, 6, users=100,
                           more={"lanes": 4, "reserve_s": HOLD_S, "discount": MONEY}),
}


class Client(Asker):
    """One of the crowd, with its own past: what it took, and what it asked."""

    def __init__(self, load, number):
        super().__init__(load.ways, load.recorder)
        self.load, self.number = load, number
        self.chance = random.Random(f"{load.seed} client {number}")
        self.mine = collections.defaultdict(lambda: collections.deque(maxlen=REMEMBERED))
        self.past = collections.defaultdict(lambda: collections.deque(maxlen=REMEMBERED))
        self.serial, self.second = itertools.count(1), None
        self.discounts = {}  # of what was adjusted

    @property
    def twin(self):
        """The same customer at another device: with a connection, and keys, of its own."""
        if not self.second:
            self.second = Client(self.load, self.number + TWINS)
        return self.second

    async def live(self):
        names = list(COURSES)
        shares = [COURSES[name].share for name in names]
        while not self.load.ending:
            name = self.chance.choices(names, shares)[0]
            scenarios = COURSES[name].scenarios
            scenario = self.chance.choices(list(scenarios), scenarios.values())[0]
            await getattr(self, scenario)(name)
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.load.pause_s)
        for one in filter(None, (self, self.second)):
            one.close()

    # ---- asking ----

    def user(self, name):
        return f"u-{self.chance.randrange(COURSES[name].users)}"

    def op(self, do, name, user=None, rid=None, keyed=True, **members):
        """name None: of no coupon."""
        key = f"k-{self.number}-{next(self.serial)}" if keyed else None
        return Op(self.load.number(), do, name and self.load.coupons[name], user, key, rid, members)

    async def do(self, do, name, user=None, rid=None, keyed=True, **members):
        op = self.op(do, name, user, rid, keyed, **members)
        await self.insist(op)
        if op.ok and keyed:
            self.past[name].append(op)
        return op

    async def insist(self, op):
        """Until it is answered, or patience is at its end. A second try may go another way, and goes to another front."""
        via = self.number % len(self.ways)
        for tries in range(1, TRIES + 1):
            await self.ask(op, via)
            if op.said != "unknown" and op.code not in TRY_AGAIN or self.load.ending or self.chance.random() < 0.1:
                break
            await asyncio.sleep(0.05 * tries)
            via = self.load.another(via, self.chance)
        self.leave(op)

    def leave(self, op):
        """What is unknown is asked again when all is over."""
        if op.unknown and not op.ok and op not in self.load.unresolved:
            self.load.unresolved.append(op)

    def keep(self, name, op):
        if op.ok:
            self.mine[name].append((op.reply["id"], op.reply["user"]))

    # ---- scenarios ----

    async def pause(self, name):
        """Nobody may have it for a moment."""
        await self.do("patch", name, keyed=False, state="paused")
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        await self.do("patch", name, keyed=False, state="active")

    async def take(self, name):
        self.keep(name, await self.do("take", name, self.user(name)))

    async def take_doubled(self, name):
        """One call, under one key, sent twice at once."""
        op = self.op("take", name, self.user(name))
        await asyncio.gather(self.insist(op), self.twin.insist(op))
        self.keep(name, op)

    async def take_many(self, name):
        """In one request; what it does not tell is asked for again, each alone or all together."""
        ops = [self.op("take", name, self.user(name)) for _ in range(self.chance.randint(2, MANY))]
        await self.ask_together(ops, self.number % len(self.ways))
        if self.chance.random() < 0.3:
            await self.ask_together(ops, self.chance.randrange(len(self.ways)))
        for op in ops:
            if op.said == "unknown":
                await self.insist(op)
            self.leave(op)
            self.keep(name, op)
        self.past[name].extend(op for op in ops if op.ok)

    async def give_back(self, name):
        if self.mine[name]:
            rid, user = self.mine[name].popleft()
            await self.do("reverse", name, user, rid, keyed=False)

    async def give_money_back(self, name):
        """The use still counts."""
        if self.mine[name]:
            rid, user = self.mine[name].popleft()
            await self.do("reverse", name, user, rid, keyed=False, keep_use=True)

    async def adjust(self, name):
        """The discount is lowered, or computed again for another amount. One of which that stays unknown is left alone: whatever is asked
        for next might be more than it has by then."""
        if self.mine[name]:
            rid, user = self.mine[name].popleft()
            most = self.discounts.get((name, rid), MONEY["amount_minor"])
            members = self.chance.choice([{"discount_minor": self.chance.randint(0, most)},
                                          {"order": {"amount_minor": self.chance.randint(0, 1000), "currency": MONEY["currency"]}}])
            op = await self.do("adjust", name, user, rid, **members)
            self.keep(name, op)
            if op.ok:
                self.discounts[name, rid] = op.reply["discount_minor"]

    async def repeat(self, name):
        """The same call again, whatever has become of it since."""
        if self.past[name]:
            op = self.chance.choice(self.past[name])
            await self.ask(op, self.chance.randrange(len(self.ways)))

    async def count(self, name):
        await self.do("counts", name, keyed=False)

    async def look(self, name):
        await self.do("user", name, self.user(name), keyed=False)

    async def hold(self, name):
        op = await self.do("take", name, self.user(name), state="reserved")
        return (op.reply["id"], op.user) if op.ok else (None, None)

    async def hold_redeem(self, name):
        rid, user = await self.hold(name)
        if rid:
            self.keep(name, await self.do("redeem", name, user, rid))

    async def hold_cancel(self, name):
        rid, user = await self.hold(name)
        if rid:
            await self.do("cancel", name, user, rid, keyed=False)

    async def hold_extend(self, name):
        rid, user = await self.hold(name)
        if rid:
            await asyncio.sleep(self.chance.uniform(0, HOLD_S / 2))
            await self.do("reserve", name, user, rid)
            await asyncio.sleep(self.chance.uniform(0, HOLD_S))
            self.keep(name, await self.do("redeem", name, user, rid))

    async def hold_late(self, name):
        """Around its end, or long after: perhaps somebody else has the slot by then."""
        rid, user = await self.hold(name)
        if rid:
            await asyncio.sleep(HOLD_S + self.chance.choice([-0.01, 0, 0.01, 0.3, 1.5]))
            verb = self.chance.choice(["redeem", "redeem", "reserve", "cancel"])
            op = await self.do(verb, name, user, rid, keyed=verb != "cancel")
            if verb == "redeem":
                self.keep(name, op)

    async def order_twice(self, name):
        """The same order under two keys, from two devices at once."""
        user, order = self.user(name), {"id": f"o-{self.number}-{next(self.serial)}", "currency": MONEY["currency"]}
        state = self.chance.choice(["reserved", "redeemed"])
        await asyncio.gather(*(one.do("take", name, user, state=state, order=order) for one in (self, self.twin)))

    async def issue(self, name):
        op = await self.do("take", name, self.user(name), state="issued")
        if not op.ok:
            return
        rid, user, code = op.reply["id"], op.user, op.reply["code"]
        self.load.codes[name].append(code)
        await getattr(self, self.chance.choice(AFTER_ISSUE))(name, rid, user, code)

    async def spend_by_code(self, name, _rid, user, code):
        self.keep(name, await self.do("take", name, user, code=code))

    async def spend_by_id(self, name, rid, user, _code):
        self.keep(name, await self.do("redeem", name, user, rid))

    async def hold_by_code(self, name, _rid, user, code):
        op = await self.do("take", name, user, code=code, state="reserved")
        if op.ok:
            await asyncio.sleep(self.chance.choice([0, 0.1, HOLD_S + 0.05]))
            self.keep(name, await self.do("redeem", name, user, op.reply["id"]))

    async def cancel_issued(self, name, rid, user, _code):
        await self.do("cancel", name, user, rid, keyed=False)

    async def spend_twice(self, name, rid, user, _code):
        """Two orders, one code."""
        def spend(one):
            return one.do("redeem", name, user, rid, order={"id": f"o-{one.number}-{next(one.serial)}"})

        for op in await asyncio.gather(spend(self), spend(self.twin)):
            self.keep(name, op)

    async def steal(self, name):
        """Somebody else's code: it is theirs, unless it has become free."""
        if self.load.codes[name]:
            code = self.chance.choice(self.load.codes[name])
            self.keep(name, await self.do("take", name, self.user(name), code=code))

    async def present(self, name):
        """One of the codes that were printed, whoever has it; then it may be given back, or what was held or issued spent."""
        printed = self.load.printed[name]
        if printed:
            state = self.chance.choice(["issued", "reserved", "reserved", "redeemed", "redeemed"])
            op = await self.do("take", name, self.user(name), code=self.chance.choice(printed), state=state)
            if op.ok and state != "redeemed" and self.chance.random() < 0.5:
                op = await self.do("redeem", name, op.user, op.reply["id"])
            if op.ok and op.reply["state"] == "redeemed":
                self.keep(name, op)

    # ---- who is erased ----

    async def come_and_go(self, name):
        """Somebody takes all that they may have, here and elsewhere, is erased, and begins anew, to be erased again."""
        user, number = f"e-{self.number}-{next(self.serial)}-e", min(COURSES[name].cap["per_user"], AT_ONCE)
        for _ in range(self.chance.randint(1, 3)):
            ops = [self.op("take", where, user, state=self.chance.choice(["redeemed", "issued"]))
                   for where in [name] * number + [ELSEWHERE]]
            for op in ops:
                await self.insist(op)
            if any(op.said == "unknown" for op in ops):
                return
            erasure = self.op("erase", None, user, keyed=False)
            await self.insist(erasure)
            if not erasure.ok:
                return
