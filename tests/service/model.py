"""A coupon as the contract describes it, in plain Python: one call at a time, no processes, no database.

Each call gives an Answer: what the service must say. Where it may choose (which slot, which id, which code), the answer's
`check` looks at what it chose, and takes it over. Times are UTC milliseconds; settle() lets what is over end.
"""
import collections
import dataclasses
import datetime
import re
import time
import typing

from lanes import LANE_SLOTS, lane_of

STANDING = ("issued", "reserved", "redeemed")
DAY_MS = 24 * 3600 * 1000
EXTENSIONS_MAX = 32
SLACK_MS = 150  # between this process's clock and the service's
ALPHABET = "23456789BCDFGHJKMNPQRSTVWXZ"


def ms(text):
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def latest():
    """The latest time that an answer of before may name."""
    return time.time() * 1000 + SLACK_MS


def text_of(at):
    return datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def settled(body, at):
    """Without the end of a hold that is over: the ledger may say so a little later."""
    over = body.get("state") == "issued" and body["reserved_until"] and ms(body["reserved_until"]) <= at
    return {**body, "reserved_until": None} if over else body


def same(what, have, want):
    assert have == want, f"{what}: {have!r}, and should be {want!r}"


@dataclasses.dataclass
class Answer:
    status: int
    code: str = None
    misfit: tuple = (None, None)   # reason and missing_minor of a refusal
    body: dict = None              # exactly this
    replayed: bool = False
    check: typing.Callable = None  # of the body; it takes over what the service chose, and returns the redemption
    after: typing.Callable = None  # of status, body and that redemption: the key is remembered


@dataclasses.dataclass(eq=False)
class Slot:
    n: int = None     # not known until it is taken, where slots are known by their codes
    code: str = None
    holder: object = None
    retired: bool = False


@dataclasses.dataclass(eq=False)
class Redemption:
    user: str
    state: str
    body: dict
    slot: Slot = None
    base: object = None
    due: int = None
    own: int = None      # of an issued one: its end by valid_for_s
    held: object = None  # the last hold on it
    extended: int = 0
    issued: bool = False  # before anything else
    numbers: dict = None  # by which a hold was priced

    def __post_init__(self):
        self.issued = self.state == "issued"

    @property
    def standing(self):
        return self.state in STANDING

    def shown(self):
        """As it is read: an issued one tells until when it is held."""
        body = {**self.body, "state": self.state}
        if self.state == "issued" and self.held and self.held.state == "reserved":
            body["reserved_until"] = self.held.body["reserved_until"]
        return body

    def is_for(self, order):
        return bool(order and order.get("id") and order["id"] == self.body["order"])


@dataclasses.dataclass
class Known:
    """The first answer to a key."""
    call: tuple
    status: int
    body: dict


PRICE = ("discount_minor", "allocations", "money", "version")
NOT_PRICED = {"discount_minor": 0, "money": []}


def has_numbers(order):
    return bool(order) and any(order.get(k) not in (None, []) for k in ("amount_minor", "currency", "items"))


def numbers_of(order):
    """What of an order is no name: another order with the same is the same in money."""
    return {k: v for k, v in order.items() if k != "id"}


def price_of(d, version, order, given):
    """What an answer says of money."""
    order = order or {}
    amount = order.get("amount_minor")
    if amount is None:
        amount = sum(line["amount_minor"] for line in order.get("items") or [])
    currency = order.get("currency") or d.get("currency")
    money = [{"currency": currency, "discount_minor": given, "order_minor": amount}] if given or amount else []
    lines = {"allocations": shares_of(d, order["items"], given)} if order.get("items") else {}
    return {"discount_minor": given, "money": money, "version": version, **lines}


def shares_of(d, items, given):
    """By largest remainder among the lines that the discount applies to."""
    only = d.get("only") or {}
    chosen = bool(only.get("categories") or only.get("skus"))
    weights = [line["amount_minor"] if not chosen or line.get("category") in only["categories"] or line.get("sku") in only["skus"] else 0
               for line in items]
    total = sum(weights) or 1
    shares = [given * w // total for w in weights]
    for i in sorted(range(len(items)), key=lambda i: (-(given * weights[i] % total), i))[:given - sum(shares)]:
        shares[i] += 1
    return [{"item": i, "discount_minor": s} for i, s in enumerate(shares)]


class Refused(Exception):
    def __init__(self, code, reason=None, missing_minor=None):
        super().__init__(code)
        self.code, self.misfit = code, (reason, missing_minor)


def discount_of(d, order):
    """By the definition's discount; Refused where the order does not do."""
    kind = d["kind"]
    if kind == "none":
        return 0
    only = d.get("only") or {}
    chosen = bool(only.get("categories") or only.get("skus"))
    least = d.get("min_spend_minor") or 0
    needs = kind == "percent" or chosen or least > 0
    if order is None:
        if needs:
            raise Refused("order_not_eligible", "no_order")
        return d["amount_minor"] if kind == "amount" else 0
    if d.get("currency") and order.get("currency") != d["currency"]:
        raise Refused("order_not_eligible", "currency")
    lines = [line["amount_minor"] for line in order.get("items") or []
             if not chosen or line.get("category") in only["categories"] or line.get("sku") in only["skus"]]
    if order.get("items"):
        total = sum(lines) if lines else None
    else:
        total = None if chosen else order.get("amount_minor")
    if needs and total is None:
        raise Refused("order_not_eligible", "no_matching_item" if chosen else "no_order")
    if total is not None and total < least:
        raise Refused("order_not_eligible", "min_spend", least - total)
    bounds = [bound for bound in (total, order.get("amount_minor")) if bound is not None]
    if kind == "amount":
        return min([d["amount_minor"], *bounds])
    if kind == "percent":
        return min([total * d["percent_bp"] // 10000, *bounds, *([] if d.get("max_minor") is None else [d["max_minor"]])])
    return 0


class Coupon:
    def __init__(self, definition):
        self.id, self.d, self.version = definition["id"], definition, 1
        self.slots, self.by_code, self.by_n = [], {}, {}
        self.takings, self.by_id = [], {}  # takings: redemptions that left free and still count, by whomever
        self.erased = set()                # ids of users who were erased
        self.uses = {}                     # user -> [redemption], oldest first
        self.ordinals = collections.Counter()  # by lane
        self.generations = collections.Counter()  # by slot, kept for ever
        self.keys = {}                     # (user, key) -> Known

    # ---- what stands ----

    @property
    def exact(self):
        return self.d["cap"]["policy"] == "exact"

    @property
    def coded(self):
        return self.d["codes"]["source"] != "none"

    @property
    def laned(self):
        """Slots have no numbers of their own then: which lane has how many, is the service's choice."""
        return self.d["lanes"] > 1

    def lane_of(self, user):
        return lane_of(user, self.d["lanes"])

    def existing(self):
        return sum(not s.retired for s in self.slots)

    def free(self):
        return self.existing() - len(self.takings)

    def of(self, user):
        return self.uses.get(user, [])

    def hold_on(self, r):
        return r.held if r.held and r.held.state in ("reserved", "redeemed") else None

    def total(self, user):
        return sum(r.standing and not r.base for r in self.of(user))

    def discount(self):
        """Given and held; that of a hold stands in the hold."""
        shown = [self.hold_on(r) or r for r in self.takings]
        return sum(r.body["discount_minor"] for r in shown if r.state != "issued")

    def settle(self, at):
        """What is over at this time ends: holds first, and then what was issued beneath them."""
        for holds in (True, False):
            for r in list(self.by_id.values()):
                over = r.due and r.due <= at and r.state in ("issued", "reserved")
                if over and bool(r.base) is holds and not self.hold_on(r):
                    self.end(r, "expired")

    def end(self, r, state):
        r.state = state
        if r.base and state != "reversed":
            if r.slot:
                r.slot.holder = r.base
            return
        taking = r.base or r
        taking.state = state
        self.takings.remove(taking)
        if r.slot:
            r.slot.holder = None

    def is_still(self, user):
        """Nothing of theirs ended by itself: the ledger has all of it."""
        return all(r.state != "expired" for r in self.of(user))

    def deadlines(self):
        return [r.due for r in self.by_id.values() if r.due and r.state in ("issued", "reserved")]

    # ---- refusals ----

    def check_window(self, at):
        d = self.d
        if d["state"] in ("draft", "paused"):
            raise Refused("coupon_not_active")
        if d["state"] == "ended" or d["ends_at"] and ms(d["ends_at"]) <= at:
            raise Refused("coupon_ended")
        if d["starts_at"] and at < ms(d["starts_at"]):
            raise Refused("coupon_not_started")

    def check_caps(self, user):
        cap = self.d["cap"]
        for code, have, most in (("user_cap_reached", self.total(user), cap["per_user"]),
                                 ("user_daily_cap_reached", self.total(user), cap["per_user_per_day"]),
                                 ("daily_cap_reached", len(self.takings), cap["per_day"])):
            if most is not None and have >= most:
                raise Refused(code)

    def check_budget(self, more):
        most = self.d["cap"]["discount_minor"]
        if most is not None and more > 0 and self.discount() + more > most:
            raise Refused("budget_reached")

    def check_left(self):
        cap = self.d["cap"]
        if self.free() <= 0 if self.exact else cap["policy"] == "approximate" and cap["total"] is not None and \
                len(self.takings) >= cap["total"]:
            raise Refused("sold_out")

    def is_bearers(self, holder):
        """The code was presented by whoever has it, and not issued to them before."""
        return self.d["codes"]["claim"] == "present" and not holder.base and not holder.issued

    def slot_of(self, code, user):
        """The slot that this user may have by its code: free, or issued to them."""
        slot = self.by_code.get(self.normal(code))
        holder = slot and slot.holder
        if not slot or slot.retired or holder and holder.user != user and not self.is_bearers(holder):
            raise Refused("code_not_found")
        if holder and holder.state != "issued":
            raise Refused("code_taken" if holder.state == "redeemed" else "transaction_in_progress")
        return slot

    def normal(self, code):
        return re.sub("[ -]", "", code).upper() if self.d["codes"]["match"] == "loose" else code

    # ---- repeats ----

    def known(self, user, key, call):
        first = self.keys.get((user, key))
        if not first:
            return None
        if first.call != call:
            raise Refused("idempotency_key_reused")
        return Answer(first.status, body=first.body, replayed=True)

    def remember(self, user, key, call):
        """What follows from the answer: it is the answer to this key from now on."""
        def after(status, body, redemption):
            self.keys[user, key] = Known(call, status, body)
        return after

    # ---- taking ----

    def take(self, at, user, key, state="redeemed", code=None, order=None, reserve_s=None, metadata=None, changed=False):
        """changed: it is bound to a version that the user's use has no more."""
        call = ("take", state, code, repr(order), reserve_s, repr(metadata or {}))
        try:
            answer = self.known(user, key, call) or self.find_order(user, code, order)
            if answer:
                return answer
            if changed:
                raise Refused("version_changed")
            slot, given = self.may_take(at, user, state, code, order)
        except Refused as refusal:
            return self.refuse_or_existing(user, state, refusal)
        if slot and slot.holder:
            r = slot.holder
            if state == "issued":
                return Answer(200, body=r.shown())
            return self.hold(at, r, key, call, order, reserve_s, given) if state == "reserved" else \
                self.spend(at, r, key, call, order, self.price(order, given))
        fresh = dict(at=at, user=user, state=state, order=order, reserve_s=reserve_s, metadata=metadata or {},
                     price=self.price(order, given) if state != "issued" else {**NOT_PRICED, "version": self.version})
        return Answer(201, check=lambda body: self.taken(body, slot, fresh), after=self.remember(user, key, call))

    def find_order(self, user, code, order):
        """The redemption of this order that stands; with a code, in the slot that has it."""
        if code:
            slot = self.by_code.get(self.normal(code))
            r = slot and slot.holder
        else:
            r = next((r for r in reversed(self.of(user)) if r.state in ("reserved", "redeemed") and r.is_for(order)), None)
        if r and r.user == user and r.state in ("reserved", "redeemed") and r.is_for(order):
            return Answer(200, body=r.shown())
        return None

    def may_take(self, at, user, state, code, order):
        if self.d["codes"]["claim"] == "present" and not code:
            raise Refused("code_required")
        self.check_window(at)
        slot = self.slot_of(code, user) if code else None
        own = slot and slot.holder
        given = 0 if state == "issued" else discount_of(self.d["discount"], order)
        if not own:
            self.check_caps(user)
        self.check_budget(given)
        if not own:
            self.check_left()
        return slot, given

    def refuse_or_existing(self, user, state, refusal):
        if refusal.code == "user_cap_reached" and state == "issued" and self.d["on_user_cap"] == "existing":
            for r in reversed(self.of(user)):
                if r.state == "issued" and not self.hold_on(r):
                    return Answer(200, body=r.shown())
        return Answer(0, code=refusal.code, misfit=refusal.misfit)

    def taken(self, body, slot, f):
        """A new taking: the choice of slot was the service's."""
        lane = self.lane_of(f["user"])
        self.ordinals[lane] += 1
        if self.exact:
            slot = self.chosen(body, slot, lane)
            same("id", body["id"], self.next_id(slot))
        else:
            match = re.fullmatch(rf"L{lane}-(\d+)-([1-9]\d*)", body["id"])
            assert match and int(match[1]) == body["seq"] and body["id"] not in self.by_id, f"id {body['id']}, seq {body['seq']}"
        r = Redemption(f["user"], f["state"], body, slot)
        r.numbers = numbers_of(f["order"]) if has_numbers(f["order"]) else None
        self.takings.append(r)
        self.by_id[body["id"]] = r
        self.uses.setdefault(f["user"], []).append(r)
        if slot:
            slot.holder = r
        at = ms(body["at"])
        assert f["at"] - SLACK_MS < at < latest(), f"at {body['at']}"
        until = at + self.reserve_ms(f["reserve_s"]) if f["state"] == "reserved" else None
        if r.issued:
            r.own = at + self.d["valid_for_s"] * 1000 if self.d["valid_for_s"] else None
        valid = self.valid_until(r) if r.issued else None
        r.due = until or valid
        self.check_body(body, r, f, {"slot": slot.n if slot else None, "code": slot.code if slot else None, "from": None,
                                     "ordinal": self.ordinals[lane], "reserved_until": until, "valid_until": valid,
                                     "after": {"left": self.left(body), "day": self.taken_in(lane),
                                               "user": self.total(f["user"]), "user_day": self.total(f["user"])}})
        return r

    def next_id(self, slot):
        self.generations[slot.n] += 1
        return f"{slot.n}-{self.generations[slot.n]}"

    def taken_in(self, lane):
        return sum(r.body["lane"] == lane for r in self.takings)

    def left(self, body):
        """Of the coupon; of a lane nobody else can say it, but that it is no more than of all."""
        if not self.exact or not self.laned:
            return self.free() if self.exact else None
        assert 0 <= body["after"]["left"] <= self.free(), f"left: {body['after']}, {self.free()} in all"
        return body["after"]["left"]

    def chosen(self, body, slot, lane):
        n = body["slot"]
        if self.laned:
            return self.chosen_in(lane, n)
        if self.coded:
            slot = slot or self.by_code.get(self.normal(body["code"] or ""))
            assert slot, f"the coupon has no code {body['code']!r}"
            assert n not in self.by_n or self.by_n[n] is slot, f"slot {n} has the code {self.by_n[n].code}, and got {slot.code}"
            same("slot of this code", slot.n if slot.n is not None else n, n)
            slot.n, self.by_n[n] = n, slot
        else:
            slot = self.by_n.get(n)
            assert slot, f"there is no slot {n}"
        assert not slot.holder and not slot.retired, f"slot {n} is not free"
        return slot

    def chosen_in(self, lane, n):
        """A free slot has this number now, whatever number it was thought to have: rights go from lane to lane, not numbers."""
        same("lane of the slot", n // LANE_SLOTS, lane)
        slot = self.by_n.get(n)
        if not slot or slot.retired:
            slot = next((s for s in self.slots if not s.holder and not s.retired), None)
        assert slot and not slot.holder, f"slot {n} is not free"
        self.by_n.pop(slot.n, None)
        slot.n, self.by_n[n] = n, slot
        return slot

    def reserve_ms(self, reserve_s):
        return (reserve_s or self.d["reserve_s"]) * 1000

    def valid_until(self, r):
        return min(([r.own] if r.own else []) + ([ms(self.d["ends_at"])] if self.d["ends_at"] else []), default=None)

    def become(self, at, definition):
        """What is issued follows the coupon's end of now."""
        self.settle(at)
        self.d = definition
        for r in self.by_id.values():
            if r.state == "issued":
                r.due = self.valid_until(r)
                r.body = {**r.body, "valid_until": r.due and text_of(r.due)}
        self.settle(at)

    def issued(self):
        return sum(r.state == "issued" and not self.hold_on(r) for r in self.takings)

    def check_body(self, body, r, f, more):
        times = {k: more.pop(k) for k in ("reserved_until", "valid_until")}
        want = {"coupon": self.id, "user": r.user, "lane": self.lane_of(r.user), "state": r.state, "order": (f["order"] or {}).get("id"),
                **f["price"], "metadata": f["metadata"], **more}
        for name, value in want.items():
            same(name, body[name], value)
        for name, value in times.items():
            same(name, body[name] and ms(body[name]), value)
        assert set(body) == set(want) | set(times) | {"id", "seq", "at"}, sorted(body)

    # ---- steps ----

    def step(self, at, rid, verb, key=None, order=None, reserve_s=None):
        r = self.by_id.get(rid)
        if not r:
            return Answer(0, code="redemption_not_found")
        call = (verb, rid, repr(order), reserve_s)
        try:
            return (key and self.known(r.user, key, call)) or self.move(at, r, verb, key, call, order, reserve_s)
        except Refused as refusal:
            return Answer(0, code=refusal.code, misfit=refusal.misfit)

    def move(self, at, r, verb, key, call, order, reserve_s):
        state = r.state
        if state == "issued" and verb != "reverse":
            return self.move_issued(at, r, verb, key, call, order, reserve_s)
        if state == "reserved" and verb != "reverse":
            return {"reserve": lambda: self.extend(at, r, key, call, reserve_s),
                    "redeem": lambda: self.spend(at, r, key, call, order, self.price_for(r, order)),
                    "cancel": lambda: self.ends(at, r, "cancelled")}[verb]()
        if state == "redeemed" and verb in ("reserve", "redeem"):
            spent = self.hold_on(r) or r
            if verb == "redeem" and (order is None or spent.is_for(order)):
                return Answer(200, body=spent.shown())
            raise Refused("code_taken")
        if state == "redeemed" and verb == "reverse":
            return self.ends(at, self.hold_on(r) or r, "reversed", shown=r)
        if (state, verb) in (("cancelled", "cancel"), ("expired", "cancel"), ("reversed", "reverse")):
            return Answer(200, body=r.shown())
        raise Refused("reservation_expired" if state == "expired" and verb != "reverse" else "invalid_transition")

    def move_issued(self, at, r, verb, key, call, order, reserve_s):
        held = self.hold_on(r)
        if held and verb != "cancel" and held.is_for(order):
            return Answer(200, body=held.shown()) if verb == "reserve" else \
                self.spend(at, held, key, call, order, self.price_for(held, order))
        if verb != "cancel":
            self.check_window(at)
        if held:
            raise Refused("transaction_in_progress")
        if verb == "cancel":
            return self.ends(at, r, "cancelled")
        given = discount_of(self.d["discount"], order)
        self.check_budget(given)
        return self.hold(at, r, key, call, order, reserve_s, given) if verb == "reserve" else \
            self.spend(at, r, key, call, order, self.price(order, given))

    def price(self, order, given):
        return price_of(self.d["discount"], self.version, order, given)

    def price_for(self, hold, order):
        """A hold was made in time, and its price stands: only an order with other numbers is looked at."""
        if not has_numbers(order) or numbers_of(order) == hold.numbers:
            return {name: hold.body[name] for name in PRICE if name in hold.body}
        given = discount_of(self.d["discount"], order)
        self.check_budget(given - hold.body["discount_minor"])
        return self.price(order, given)

    def hold(self, at, base, key, call, order, reserve_s, given):
        def check(body):
            if base.slot:
                same("id", body["id"], self.next_id(base.slot))
            assert body["id"] not in self.by_id, body["id"]
            r = base.held = Redemption(base.user, "reserved", body, base.slot, base)
            r.numbers = numbers_of(order) if has_numbers(order) else None
            self.by_id[body["id"]] = r
            self.uses[base.user].append(r)
            if r.slot:
                r.slot.holder = r
            r.due = ms(body["at"]) + self.reserve_ms(reserve_s)
            assert at - SLACK_MS < ms(body["at"]) < latest(), f"at {body['at']}"
            kept = {name: base.body[name] for name in ("slot", "code", "ordinal", "after")}
            self.check_body(body, r, {"order": order, "price": self.price(order, given), "metadata": base.body["metadata"]},
                            {**kept, "from": base.body["id"], "reserved_until": r.due, "valid_until": None})
            return r
        return Answer(201, check=check, after=self.remember(base.user, key, call))

    def extend(self, at, r, key, call, reserve_s):
        most = ms(r.body["at"]) + DAY_MS
        if r.extended == EXTENSIONS_MAX or r.due >= most:
            raise Refused("invalid_transition")

        def check(body):
            until = ms(body["reserved_until"])
            low, high = (max(r.due, min(t + self.reserve_ms(reserve_s), most)) for t in (at - SLACK_MS, latest()))
            assert low <= until <= high, f"reserved_until {body['reserved_until']}"
            same("the rest of it", {**body, "reserved_until": None}, {**r.body, "state": "reserved", "reserved_until": None})
            r.body, r.due = body, until
            r.extended += 1
            return r
        return Answer(200, check=check, after=self.remember(r.user, key, call))

    def spend(self, at, r, key, call, order, price):
        def check(body):
            r.state = "redeemed"
            r.body = {**{name: value for name, value in r.body.items() if name not in PRICE}, "state": "redeemed", **price}
            if order and order.get("id"):
                r.body["order"] = order["id"]
            if r.base:
                r.base.state = "redeemed"
            same("the redemption", body, r.body)
            return r
        return Answer(200, check=check, after=self.remember(r.user, key, call))

    def ends(self, at, r, state, shown=None):
        def check(body):
            self.end(r, state)
            same("the redemption", body, (shown or r).shown())
        return Answer(200, check=check)

    # ---- the rest ----

    def check(self, at, user, **how):
        """What POST /check says: (ok, code, misfit, discount_minor or None)."""
        answer = self.take(at, user, None, **how)
        if answer.code:
            return False, answer.code, answer.misfit, None
        if answer.body:
            return True, None, answer.misfit, answer.body["discount_minor"]
        return True, None, answer.misfit, 0 if how.get("state") == "issued" else discount_of(self.d["discount"], how.get("order"))

    def resolve(self, at, user, code):
        """What check says, of a code that the user may know of; None: it is of no coupon for them."""
        slot = self.by_code.get(self.normal(code))
        holder = slot and slot.holder
        if not slot or slot.retired or holder and holder.user != user and not self.is_bearers(holder) or self.d["state"] != "active":
            return None
        return self.check(at, user, state="redeemed", code=code)

    def remaining(self, user):
        """(in all, today)."""
        cap, have = self.d["cap"], self.total(user)
        left = max(0, cap["per_user"] - have)
        return left, min(left, max(0, cap["per_user_per_day"] - have)) if cap["per_user_per_day"] is not None else left

    def counts(self):
        states = [self.hold_on(r).state if self.hold_on(r) else r.state for r in self.takings]
        cap, taken = self.d["cap"], len(self.takings)
        over = max(0, taken - cap["total"]) if cap["total"] is not None and cap["policy"] != "none" else 0
        return {"slots": self.existing() if self.exact else None, "free": self.free() if self.exact else None,
                **{s: states.count(s) for s in STANDING}, "over": over, "taken_total": taken, "today": taken,
                "discount_minor": self.discount()}

    def erase(self, user):
        for r in reversed(self.of(user)):
            if r.state in ("issued", "reserved"):
                self.end(r, "cancelled")
        for r in self.of(user):
            if r.state == "redeemed" and not r.base:
                r.body = {**r.body, **{name: value for name, value in (self.hold_on(r) or r).body.items() if name in PRICE}}
        for r in self.uses.pop(user, []):
            r.user = None
            del self.by_id[r.body["id"]]
            self.erased.add(r.body["id"])
        for key in [k for k in self.keys if k[0] == user]:
            del self.keys[key]
