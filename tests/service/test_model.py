"""Random calls, every answer compared with a model in plain Python (model.py), and `verify` at the end.

COUPONS_MODEL_S is how long it runs ; COUPONS_MODEL_SEED repeats a run's choices, which a failure prints together with
the coupon's calls so far. Calls go through nginx and past it to both workers, so that lanes change hands all the time.
"""
import collections
import datetime
import json
import os
import random
import time

from client import keys
from effort import seconds
from model import SLACK_MS, Coupon, Slot, same, settled, text_of
from problems import TRY_AGAIN
from stack import WORKERS, wait_until

SECONDS = seconds("COUPONS_MODEL_S", 10, 20, 60)
COUPONS = 6        # at a time
ANSWERS_LEAST = 20 * SECONDS
CALLS_MOST = 400   # of one coupon, before another takes its place
TRIES = 20         # of a call that is to be repeated
CLEAR_MS = 700     # no call is made so shortly before something ends by itself
SLOTS_MOST = 24


def now_ms():
    return time.time() * 1000


def noon_zone():
    """A zone whose midnight is far, so that a run has one day."""
    hour = datetime.datetime.now(datetime.timezone.utc).hour
    east = (12 - hour + 12) % 24 - 12
    return f"Etc/GMT{-east:+d}" if east else "Etc/GMT"


def last_end(c, now):
    ended = [now - r.due for r in c.by_id.values() if r.due and r.due <= now]
    return f"a redemption ended {min(ended):.0f} ms ago" if ended else "none has ended"


class Straddled(Exception):
    """A call was so slow that something may or may not have ended before it was decided."""


class Driver:
    def __init__(self, stack, seed):
        self.stack, self.chance, self.seed = stack, random.Random(seed), seed
        self.doors = {role: [stack.client(role)] + [stack.direct(w, role) for w in range(WORKERS)] for role in ("storefront", "ops")}
        self.users = [f"m{seed}-{i}" for i in range(6)]
        self.coupons, self.histories, self.past = [], {}, collections.defaultdict(list)
        self.seen, self.abandoned, self.cleared = collections.Counter(), 0, 0

    # ---- talking ----

    def call(self, c, method, path, body=None, key=None, role="storefront", **how):
        """One call at any door; c is None where it is of no one coupon."""
        door = self.chance.choice(self.doors[role])
        ending = [due for each in ([c] if c else self.coupons) for due in each.deadlines()]
        asked = now_ms()
        for _ in range(TRIES):
            reply = door.request(method, path, body, idempotency_key=key, may_fail=True, **how)
            if not (reply.status == 503 and reply.code() in TRY_AGAIN):
                break
            self.seen[reply.code()] += 1
            time.sleep(0.1)
            print(f"{reply.code()} after {now_ms() - asked:.0f} ms: {method} {path}")
        assert reply.status < 500, f"a 5xx, {TRIES} times\n{reply}"
        for each in [c] if c else self.coupons:
            said = reply.code() or reply.status
            self.histories[each.id].append(f"{asked / 1000 % 1000:.3f} {method} {path} key={key} "
                                           f"{body if isinstance(body, bytes) else json.dumps(body)} -> {said}")
        self.sure(ending)
        return reply

    def sure(self, ending):
        """None of these came since the model last heard the time, or comes just now."""
        if any(self.cleared - SLACK_MS < due < now_ms() + SLACK_MS for due in ending):
            raise Straddled

    def compare(self, answer, status, code, replayed, body):
        self.seen[" ".join(filter(None, (answer.code, answer.misfit[0]))) or f"{answer.status}{' replayed' if answer.replayed else ''}"] += 1
        if answer.code:
            same("the refusal", code or status, answer.code)
            same("why", (body.get("reason"), body.get("missing_minor")), answer.misfit)
            return
        same("the answer", code or status, answer.status)
        same("replayed", replayed, answer.replayed)
        if answer.body is not None:
            same("the body", settled(body, now_ms()), answer.body)
        redemption = answer.check(settled(body, now_ms())) if answer.check else None
        if answer.after:
            answer.after(status, body, redemption)

    def answered(self, answer, reply):
        if answer.code:
            reply.problem(answer.code)
        if answer.code == "transaction_in_progress":
            assert reply.header("Retry-After"), reply
        try:
            self.compare(answer, reply.status, reply.code(), reply.header("Idempotent-Replayed") == "true", reply.json())
        except AssertionError as e:
            raise AssertionError(f"{e}\n{reply}") from None

    # ---- choices ----

    def order(self):
        if self.chance.random() < 0.4:
            return None
        order = {"id": self.chance.choice([None] + [f"o{i}" for i in range(4)]), "amount_minor": self.chance.choice([500, 2000, 5000, 9999])}
        if self.chance.random() < 0.9:
            order["currency"] = self.chance.choice(["EUR"] * 9 + ["USD"])
        if self.chance.random() < 0.2:
            order["items"] = [{"sku": self.chance.choice("AB"), "amount_minor": self.chance.choice([100, 3000]), "quantity": 1} for _ in range(2)]
        return order

    def reserve_s(self):
        return self.chance.choice([None, None, None, None, 2, 30])

    def code(self, c):
        known = list(c.by_code)
        if not known or self.chance.random() < 0.1:
            return "UNKNOWN-CODE"
        slot = c.by_code[self.chance.choice(known)]
        if c.d["codes"]["match"] == "loose" and self.chance.random() < 0.5:
            return " ".join(slot.code.lower()) if len(slot.code) < 30 else slot.code.lower()
        return slot.code

    def taking(self, c):
        """The arguments of a taking."""
        how = {"state": self.chance.choice(["issued", "reserved", "redeemed"]), "order": self.order()}
        if how["state"] == "reserved":
            how["reserve_s"] = self.reserve_s()
        if self.chance.random() < (0.9 if c.d["codes"]["claim"] == "present" else 0.5 if c.coded else 0.03):
            how["code"] = self.code(c)
        if self.chance.random() < 0.1:
            how["metadata"] = {"n": self.chance.randrange(3)}
        return self.chance.choice(self.users), {name: value for name, value in how.items() if value is not None}

    def again(self, c, kind):
        """A call of before, or one with its key and another body; or None."""
        if not self.past[c.id] or self.chance.random() > 0.12:
            return None
        call = self.chance.choice(self.past[c.id][-60:])
        if call[0] != kind:
            return None
        kind, subject, key, how = call
        if self.chance.random() < 0.3:
            how = {**how, "order": {"id": "another", "amount_minor": 7777, "currency": "EUR"}}
        return subject, key, how

    # ---- calls of a storefront ----

    def take(self, c):
        user, key, how = self.again(c, "take") or (*(t := self.taking(c))[:1], f"k{next(keys)}", t[1])
        self.past[c.id].append(("take", user, key, how))
        match, changed = self.match(c, user)
        answer = c.take(now_ms(), user, key, **how, changed=changed)
        self.answered(answer, self.call(c, "POST", f"/coupons/{c.id}/redemptions", {"user": user, **how}, key, headers=match))

    def match(self, c, user):
        """If-Match, and whether it names another version than the use has. What ended by itself a while ago may enter the ledger at any
        moment: then the version that was read is none to be sure of."""
        if self.chance.random() > 0.15:
            return {}, False
        if self.chance.random() < 0.5:
            return {"If-Match": '"4711"'}, True
        version = self.call(c, "GET", f"/coupons/{c.id}/users/{user}").header("ETag")
        return {"If-Match": version if c.is_still(user) else "*"}, False

    def batch(self, c):
        if c.laned:  # what goes to several lanes is decided side by side: nobody can say who is first
            self.take(c)
            return
        takings = [(*self.taking(c), f"k{next(keys)}") for _ in range(self.chance.randrange(2, 6))]
        if self.chance.random() < 0.3:
            takings.append(takings[0])
        at = now_ms()
        reply = self.call(c, "POST", f"/coupons/{c.id}/redemptions/batch",
                          {"items": [{"key": key, "user": user, **how} for user, how, key in takings]})
        items = reply.ok()["items"]
        same("items", len(items), len(takings))
        for (user, how, key), item in zip(takings, items):
            answer, body = c.take(at, user, key, **how), item["body"]
            self.compare(answer, item["status"], body.get("code") if item["status"] >= 400 else None, item["replayed"], body)

    def step(self, c):
        if (again := self.again(c, "step")):
            (rid, verb), key, how = again
        else:
            standing = [i for i, r in c.by_id.items() if r.standing]
            rid = self.chance.choice(standing if standing and self.chance.random() < 0.8 else list(c.by_id) or ["5-1"])
            if self.chance.random() < 0.04:
                rid = self.chance.choice([rid + "1", "77777-1", "L0-77777-1", rid.replace("-", "-9", 1)])
            verb = self.chance.choice(["reserve", "redeem", "redeem", "cancel", "reverse"])
            key, how = None, {}
            if verb in ("reserve", "redeem"):
                key, how = f"k{next(keys)}", {"order": self.order(), **({"reserve_s": self.reserve_s()} if verb == "reserve" else {})}
                how = {name: value for name, value in how.items() if value is not None}
        if key:
            self.past[c.id].append(("step", (rid, verb), key, how))
        if rid in c.erased:
            self.step_erased(c, rid, verb, key, how)
            return
        answer = c.step(now_ms(), rid, verb, key, **how)
        self.answered(answer, self.call(c, "POST", f"/coupons/{c.id}/redemptions/{rid}/{verb}", how if key else None, key))

    def step_erased(self, c, rid, verb, key, how):
        """Nothing moves, and whatever is still answered of it names nobody."""
        reply = self.call(c, "POST", f"/coupons/{c.id}/redemptions/{rid}/{verb}", how if key else None, key)
        assert reply.status in (200, 404, 409, 422), reply
        body = reply.json()
        assert not body.get("user") and not body.get("order") and not body.get("metadata"), reply
        body = self.call(c, "GET", f"/coupons/{c.id}/redemptions/{rid}").json()
        assert not body.get("user") and not body.get("order") and not body.get("metadata"), body

    def check(self, c):
        user, how = self.taking(c)
        ok, code, misfit, given = c.check(now_ms(), user, **how)
        reply = self.call(c, "POST", f"/coupons/{c.id}/check", {"user": user, **how})
        if code == "code_required":
            reply.problem(code)
            return
        said = reply.ok()
        same("ok and code", (said["ok"], said["problem"]), (ok, code))
        same("why", (said.get("reason"), said.get("missing_minor")), misfit)
        if ok:
            same("discount_minor", said["discount_minor"], given)
        left, today = c.remaining(user)
        cap = c.d["cap"]
        room = c.free() if c.exact else cap["total"] - len(c.takings) if cap["policy"] == "approximate" and cap["total"] else left
        per_day = cap["per_day"] - len(c.takings) if cap["per_day"] is not None else left
        if c.laned:  # what its lane has is a hint, and nobody else's to know
            assert said["remaining"] <= left and said["remaining_today"] <= today, said
            return
        same("remaining", said["remaining"], max(0, min(left, room)))
        same("remaining_today", said["remaining_today"], max(0, min(today, room, per_day)))

    def resolve(self, c):
        if not c.coded:
            return
        user, code = self.chance.choice(self.users), self.code(c)
        want = c.resolve(now_ms(), user, code)
        said = self.call(c, "POST", "/coupons/-/resolve", {"code": code, "user": user}).ok()["items"]
        same("the code's coupons", [item["coupon"] for item in said], [c.id] if want else [])
        if want:
            why = (said[0].get("reason"), said[0].get("missing_minor"))
            same("ok and why not", (said[0]["ok"], said[0]["problem"], why), want[:3])
            assert not want[0] or said[0]["discount_minor"] == want[3], (said, want)

    # ---- reads ----

    def read_one(self, c):
        if not c.by_id:
            return
        rid = self.chance.choice(list(c.by_id))
        said = self.call(c, "GET", f"/coupons/{c.id}/redemptions/{rid}").ok()
        same(rid, settled(said, now_ms()), c.by_id[rid].shown())

    def read_user(self, c):
        user = self.chance.choice(self.users)
        said = self.call(c, "GET", f"/coupons/{c.id}/users/{user}").ok()
        left, today = c.remaining(user)
        want = {"user": user, "total": c.total(user), "today": c.total(user), "remaining": left, "remaining_today": today}
        same("the user", {name: said[name] for name in want}, want)
        same("their redemptions", {r["id"]: settled(r, now_ms()) for r in said["redemptions"]}, {r.body["id"]: r.shown() for r in c.of(user)})

    def read_counts(self, c):
        said = self.call(c, "GET", f"/coupons/{c.id}/counts", role="ops").ok()
        places = said.pop("seqs", [said["seq"]])
        same("the lanes' places", (len(places), places[0]), (c.d["lanes"], said["seq"]))
        same("the counts", {name: value for name, value in said.items() if name not in ("seq", "as_of")}, c.counts())

    def slot_state(self, s):
        held = s.holder
        return "retired" if s.retired else "free" if not held else held.state

    def read_slot(self, c):
        if not c.slots:
            return
        s = self.chance.choice(c.slots)
        if c.laned and not s.holder:  # it may have gone to another lane
            return
        want = self.slot_state(s), s.holder.user if s.holder else None
        if s.code:
            said = self.call(c, "GET", f"/coupons/{c.id}/codes/{s.code}", role="ops").ok()
            same("the code", (said["code"], said["state"], said["user"]), (s.code, *want))
        else:
            said = self.call(c, "GET", f"/coupons/{c.id}/slots/{s.n}", role="ops").ok()
            same("the slot", said["state"], want[0])

    # ---- operators ----

    def patch(self, c):
        chance, cap = self.chance, c.d["cap"]
        have = len(c.takings)
        low = chance.choice([max(1, have - 1), max(1, have), have + 1, have + 3, c.existing() or 1, SLOTS_MOST])
        past, far = text_of(now_ms() - 3_600_000), "2090-01-01T00:00:00.000Z"  # not so long ago that its free slots are retired
        change = chance.choice([
            {"cap": {"total": low}} if cap["total"] is not None else {"title": "x"}, {"cap": {"per_user": chance.randrange(1, 6)}},
            {"cap": {"per_user_per_day": chance.choice([None, 1, 2, 3])}}, {"cap": {"per_day": chance.choice([None, have or 1, have + 2])}},
            {"cap": {"discount_minor": chance.choice([None, c.discount() + 700])}}, {"on_user_cap": chance.choice(["refuse", "existing"])},
            {"state": chance.choice(["paused", "ended", "draft"])}, {"starts_at": far, "ends_at": None}, {"ends_at": past, "starts_at": None},
            {"ends_at": far, "starts_at": past}, {"valid_for_s": chance.choice([None, 3, 600])}, {"reserve_s": chance.choice([2, 60, 900])},
            {"discount": {"amount_minor": chance.choice([200, 500])}} if c.d["discount"]["kind"] == "amount" else {"title": "y"}])
        if c.laned and {"per_day", "discount_minor"} & change.get("cap", {}).keys():
            return
        reply = self.change(c, change)
        if reply is not None and (change.get("state") or change.get("starts_at") == far or change.get("ends_at") == past):
            for _ in range(3):
                self.chance.choice([self.take, self.step, self.check])(c)

            def ended():
                issued = self.stack.counts(c.id)["issued"]
                c.settle(now_ms())
                return issued == c.issued()

            wait_until("the ledger to say what ended", ended)
            self.change(c, {"state": "active", "starts_at": None, "ends_at": chance.choice([None, far])})

    def change(self, c, change):
        """PATCH; the model's definition becomes what was answered, which must be the merged whole. None: refused."""
        total = change.get("cap", {}).get("total")
        lowered = total is not None and (c.d["cap"]["total"] is None or total < c.d["cap"]["total"])
        body = {**change, "retire": True} if lowered else change
        if change.get("cap", {}).get("discount_minor") and {**c.d["discount"], **change.get("discount", {})}["kind"] == "other":
            self.seen["a budget without a currency"] += 1
            self.call(c, "PATCH", f"/coupons/{c.id}", body, role="ops", headers={"If-Match": "*"}).problem("bad_request")
            return None
        reply = self.call(c, "PATCH", f"/coupons/{c.id}", body, role="ops", headers={"If-Match": "*"})
        if lowered and total < len(c.takings):
            self.seen["cap_below_taken"] += 1
            reply.problem("cap_below_taken")
            return None
        said = {name: value for name, value in reply.ok().items() if name not in ("slots_missing", "job")}
        merged = {**c.d, **change, "cap": {**c.d["cap"], **change.get("cap", {})}, "discount": {**c.d["discount"], **change.get("discount", {})}}
        same("the definition", {**said, "version": 0}, {**merged, "version": 0})
        c.become(now_ms(), said)
        c.version += 1
        if lowered and c.exact and c.existing() > total:
            self.retired(c, c.existing() - total)
        return reply

    def retired(self, c, count):
        """So many free slots are to be retired; the choice is the service's."""
        free = [s for s in c.slots if not s.holder and not s.retired]
        if count == 0:
            return
        if c.laned:  # it may be any of the free ones that goes
            for s in free[:count]:
                s.retired = True
            return

        def gone():
            self.sure(c.deadlines())
            paths = [(s, f"codes/{s.code}" if s.code else f"slots/{s.n}") for s in free]
            states = [(s, self.doors["ops"][0].get(f"/coupons/{c.id}/{path}").ok()["state"]) for s, path in paths]
            return [s for s, state in states if state == "retired"]

        for s in wait_until(f"{count} of {len(free)} free slots of {c.id} to be retired", lambda: len(g := gone()) >= count and g):
            s.retired = True
            count -= 1
        same("retired beyond what was asked for", count, 0)

    def more_slots(self, c):
        if not c.exact:
            return
        if c.d["codes"]["source"] == "imported":
            self.import_codes(c)
            return
        count, total = self.chance.randrange(1, 8), c.d["cap"]["total"]
        reply = self.call(c, "POST", f"/coupons/{c.id}/slots", {"count": count}, role="ops")
        if c.existing() + count > total:
            self.seen["cap_exceeded"] += 1
            reply.problem("cap_exceeded")
            return
        same("slots made", self.stack.job(reply)["done"], count)
        self.learn_slots(c, count)

    def learn_slots(self, c, count):
        if c.laned:
            c.slots += [Slot() for _ in range(count)]
            return
        if not c.coded:
            first = len(c.slots)
            c.slots += [Slot(n) for n in range(first, first + count)]
            c.by_n = {s.n: s for s in c.slots}
            return
        for code in self.codes(c) - {s.code for s in c.slots}:
            same("length", len(code), c.d["codes"]["length"] + len(c.d["codes"]["prefix"]))
            self.add_code(c, code)
            count -= 1
        same("codes missing", count, 0)

    def codes(self, c):
        lines = self.doors["ops"][0].get(f"/coupons/{c.id}/codes").expect(200).body.decode().split()
        same("header", lines[0], "code,state,user,at")
        return {line.split(",")[0] for line in lines[1:]}

    def add_code(self, c, code):
        slot = Slot(code=code)
        assert c.normal(code) not in c.by_code, f"{code} stands twice"
        c.slots.append(slot)
        c.by_code[c.normal(code)] = slot

    def import_codes(self, c):
        if c.d["cap"]["total"] is not None:
            return
        fresh = [f"M{self.chance.randrange(10**6)}-{i}-xY" for i in range(self.chance.randrange(1, 6))]
        old = [s.code for s in c.slots if self.chance.random() < 0.2]
        lines = fresh + old + [fresh[0]] * self.chance.randrange(3) + ["abc", "", "  "] * self.chance.randrange(2)
        self.chance.shuffle(lines)
        text = "".join(self.chance.choice(["", " "]) + line + self.chance.choice(["\n", "\r\n"]) for line in lines).encode()
        reply = self.call(c, "POST", f"/coupons/{c.id}/codes", text, role="ops", headers={"Content-Type": "text/plain"})
        said = self.stack.job(reply)["result"]
        want = {"imported": len(set(fresh)), "duplicates_in_coupon": len(old), "invalid": lines.count("abc"),
                "duplicates_in_file": len([x for x in lines if x in fresh]) - len(set(fresh))}
        same("the manifest", {name: said[name] for name in want}, want)
        same("rows", said["rows"], sum(want.values()))
        for code in dict.fromkeys(fresh):
            self.add_code(c, code)
        same("the codes", self.codes(c), {s.code for s in c.slots})

    def retire(self, c):
        if not c.exact:
            return
        count = self.chance.randrange(1, 3)
        reply = self.call(c, "POST", f"/coupons/{c.id}/slots/retire", {"count": count}, f"k{next(keys)}", role="ops")
        count, done = min(count, c.free()), self.stack.job(reply)["done"]
        self.sure(c.deadlines())
        same("retired", done, count)
        self.retired(c, count)

    def retire_code(self, c):
        if not c.slots or not c.coded:
            return
        s = self.chance.choice(c.slots)
        reply = self.call(c, "POST", f"/coupons/{c.id}/codes/{s.code}/retire", role="ops")
        if s.holder and s.holder.state in ("reserved", "redeemed"):
            reply.problem("transaction_in_progress" if s.holder.state == "reserved" else "code_taken")
            return
        reply.ok()
        if s.holder:
            c.end(s.holder, "cancelled")
        s.retired = True

    def erase(self, c):
        user = self.chance.choice(self.users)
        self.call(None, "DELETE", f"/coupons/-/users/{user}", role="ops").expect(204)
        for each in self.coupons:
            each.erase(user)

    # ---- coupons ----

    def new_coupon(self):
        chance = self.chance
        policy = chance.choice(["exact"] * 4 + ["approximate", "none"])
        source = chance.choice(["none", "none", "generated", "imported"]) if policy == "exact" else "none"
        slots = chance.randrange(2, 13)
        cap = {"policy": policy, "total": None if source == "imported" or policy == "none" else slots + chance.randrange(4),
               "per_user": chance.randrange(1, 5), "per_user_per_day": chance.choice([None, None, 2]), "per_day": chance.choice([None, None, 8]),
               "discount_minor": chance.choice([None, None, 2500])}
        discount = chance.choice([{"kind": "none"}, {"kind": "amount", "amount_minor": 500, "currency": "EUR"},
                                  {"kind": "amount", "amount_minor": 700, "currency": "EUR", "min_spend_minor": 2000},
                                  {"kind": "percent", "percent_bp": 1250, "max_minor": 600, "currency": "EUR", "only": {"skus": ["A"], "categories": []}},
                                  {"kind": "other", "label": "a gift"}])
        if discount["kind"] == "other":
            cap["discount_minor"] = None  # a budget is money, in a currency
        codes = {"source": source}
        if source != "none":
            codes |= {"pick": chance.choice(["sequential", "random"]), "match": chance.choice(["exact", "loose"])}
            if (claim := chance.choice(["any", "present", None])):
                codes["claim"] = claim
        if source == "generated":
            codes |= {"length": chance.choice([8, 12]), "prefix": chance.choice(["", "X-"])}
        lanes = 1 if source != "none" or policy == "approximate" else chance.choice([1, 3])
        if lanes > 1:
            cap.update(per_day=None, discount_minor=None)
        name = self.stack.coupon(cap=cap, discount=discount, codes=codes, lanes=lanes, time_zone=noon_zone(),
                                 on_user_cap=chance.choice(["refuse", "existing"]), valid_for_s=chance.choice([None, None, 3]))
        c = Coupon(self.doors["ops"][0].get(f"/coupons/{name}").ok())
        same("claim", c.d["codes"]["claim"], codes.get("claim") or ("present" if source == "imported" else "any"))
        self.histories[name] = [f"POST /coupons {json.dumps(c.d)}"]
        self.coupons.append(c)
        if c.exact:
            while c.existing() < min(slots, c.d["cap"]["total"] or slots):
                self.more_slots(c)

    def close(self, c):
        """The whole of what the coupon became."""
        self.coupons.remove(c)
        self.read_counts(c)
        for user in self.users:
            said = self.call(c, "GET", f"/coupons/{c.id}/users/{user}").ok()
            same(user, {r["id"]: settled(r, now_ms()) for r in said["redemptions"]}, {r.body["id"]: r.shown() for r in c.of(user)})
        self.stack.verify(c.id)

    CALLS = [(30, "take"), (30, "step"), (4, "batch"), (6, "check"), (3, "resolve"), (6, "read_one"), (4, "read_user"), (4, "read_counts"), (3, "read_slot"),
             (4, "patch"), (2, "more_slots"), (1, "retire"), (1, "retire_code"), (0.3, "erase")]

    def clear(self, c, call):
        """Wait until nothing ends while the call is made, and let end what is over."""
        while True:
            near = [due for each in (self.coupons if call == "erase" else [c]) for due in each.deadlines()
                    if -2 * SLACK_MS < due - now_ms() < CLEAR_MS]
            if not near:
                break
            time.sleep(max(1, max(near) + 2 * SLACK_MS + 1 - now_ms()) / 1000)
        self.cleared = now_ms()
        for each in self.coupons:
            each.settle(now_ms())

    def one(self):
        if len(self.coupons) < COUPONS:
            self.new_coupon()
        c = self.chance.choice(self.coupons)
        weights, names = zip(*self.CALLS)
        [call] = self.chance.choices(names, weights)
        if len(self.histories[c.id]) > CALLS_MOST:
            call = "close"
        self.clear(c, call)
        try:
            getattr(self, call)(c)
        except Straddled:
            self.abandoned += 1
            self.coupons = [] if call == "erase" else [each for each in self.coupons if each is not c]
        except AssertionError as e:
            history = "\n".join(self.histories[c.id][-60:])
            said = self.doors["ops"][0].get(f"/coupons/{c.id}/counts", may_fail=True)
            raise AssertionError(f"COUPONS_MODEL_SEED={self.seed}, {call}: {e}\n\n{last_end(c, now_ms())}; the model counts {c.counts()}, "
                                 f"the service {said}\n\nthe coupon's calls:\n{history}") from None


def test_random_calls_are_answered_as_a_model_says(stack, figure):
    seed = int(os.environ.get("COUPONS_MODEL_SEED") or random.SystemRandom().randrange(10**6))
    figure(f"the model's calls, again by COUPONS_MODEL_SEED={seed}")
    driver, end = Driver(stack, seed), time.monotonic() + SECONDS
    # where the machine pauses often many are abandoned: then more of them
    while time.monotonic() < end or sum(driver.seen.values()) < ANSWERS_LEAST or driver.abandoned > len(driver.histories) / 2:
        driver.one()
    for c in list(driver.coupons):
        driver.clear(c, "close")
        try:
            driver.close(c)
        except Straddled:
            driver.abandoned += 1
    print(f"{sum(driver.seen.values())} answers, {driver.abandoned} coupons abandoned: {dict(driver.seen.most_common())}")
    assert driver.abandoned < len(driver.histories) * 2 / 3
