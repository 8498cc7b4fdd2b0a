"""A hand-made history of one coupon with ledgers that fit it, for the checker's tests to spoil."""
import collections
import copy
import datetime
import hashlib
import json

from evidence import key_hash
from history import History
from lanes import LANE_SLOTS, lane_of
from ledger import canonical
from refusals import STANDING
from replay import Replay
from whole import SUMS

WALL_MS = 1_790_000_000_000
START_S = 100.0
CAP = {"policy": "exact", "total": 3, "per_user": 2, "per_day": 3, "per_user_per_day": 2, "discount_minor": 1500}
TOTALS = ("issued", "reserved", "redeemed", "discount_minor")
ENTRY_OF = {"redeemed": "redeem", "reserved": "reserve", "issued": "issue"}
ROWS = {"issued": ["issue"], "reserved": ["reserve"], "redeemed": ["redeem", "spend"], "cancelled": ["cancel"],
        "expired": ["expire"], "reversed": ["reverse"]}
STATE_AFTER = {"redeem": "redeemed", "cancel": "cancelled", "reserve": "reserved", "reverse": "reversed", "adjust": "redeemed"}
DEFINITION = {"cap": CAP, "discount": {"kind": "amount", "amount_minor": 500}, "codes": {"claim": "any"}}


def text_of(t):
    at = datetime.datetime.fromtimestamp((WALL_MS + (t - START_S) * 1000) / 1000, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


class Story:
    """Events as they come, one a hundredth of a second; batches without totals and hashes, which lines() makes up.
    `batches`: lane 0's."""

    def __init__(self, definition=None, lanes=1):
        self.t, self.events, self.lives, self.serial = START_S - 1, [], {}, 0
        self.ledgers = [[] for _ in range(lanes)]
        self.steps, self.sent = collections.Counter(), collections.Counter()
        self.ordinals, self.lifetimes = collections.Counter(), collections.Counter()
        self.definition = definition or DEFINITION
        self.names, self.lists, self.codes, self.jobs = {}, None, None, []
        for lane in range(lanes):
            self.batch({"kind": "define", "definition": self.definition, "by": "x"}, lane=lane)

    @property
    def batches(self):
        return self.ledgers[0]

    def lane_of(self, user):
        return lane_of(user, len(self.ledgers)) if len(self.ledgers) > 1 else 0

    # ---- the ledgers ----

    def batch(self, *entries, lane=0):
        ledger = self.ledgers[lane]
        ledger.append({"at": text_of(self.t), "coupon": "c", "lane": lane, "entries": list(entries),
                       "seq": len(ledger) + 1, "day": {"start": "2026-09-21T00:00:00.000Z"}})
        return len(ledger)

    def generate(self, count, first=0, spread=()):
        """count in lane 0, and more; spread: so many of those go to each of the others at once."""
        self.batch({"kind": "generate", "n": first, "count": count + sum(spread), "job": "j", "step": 1})
        for lane, more in enumerate(spread, 1):
            self.send(0, lane, more)
            self.receive(0, lane, more)

    def send(self, giver, taker, slots):
        """They are at once retired: the lane's last ones."""
        self.steps[giver, taker] += 1
        last = sum(e["count"] for b in self.ledgers[giver] for e in b["entries"] if e["kind"] == "generate") - self.sent[giver] - slots
        self.sent[giver] += slots
        self.batch({"kind": "due", "count": slots, "job": f"lane-{giver}-to-{taker}", "step": self.steps[giver, taker]},
                   {"kind": "retire", "n": giver * LANE_SLOTS + last, "count": slots}, lane=giver)

    def receive(self, giver, taker, slots, step=None):
        had = sum(e["count"] for b in self.ledgers[taker] for e in b["entries"] if e["kind"] == "generate")
        self.batch({"kind": "generate", "job": f"lane-{taker}-from-{giver}", "step": step or self.steps[giver, taker],
                    "n": taker * LANE_SLOTS + had, "count": slots}, lane=taker)

    def move_slots(self, giver, taker, slots):
        self.send(giver, taker, slots)
        self.tick()
        self.receive(giver, taker, slots)

    def replay(self, lane=0):
        blank = {"totals": dict.fromkeys((*TOTALS, "ordinal", "slots", "due"), 0)}
        batches = [{**batch, **blank, "day": {**batch["day"], "taken": 0}} for batch in self.ledgers[lane]]
        return Replay(map(json.dumps, batches), lane)

    def lines(self, lane=0):
        """With the totals that follow from the entries, and the chain."""
        out, previous, replay = [], "0" * 64, self.replay(lane)
        for batch, stood in zip(copy.deepcopy(self.ledgers[lane]), replay.totals[1:]):
            away = {"elsewhere": stood["elsewhere"]} if stood["elsewhere"] else {}
            batch["totals"] = {**{name: stood[name] for name in (*TOTALS, "ordinal", "slots")}, **away, "due": 0,
                               **batch.get("totals", {})}
            batch["day"]["taken"] = stood["today"]
            batch["prev"] = previous
            previous = batch["hash"] = hashlib.sha256(canonical(batch)).hexdigest()
            out.append(canonical(batch).decode())
        return out, replay

    def alias(self, user):
        """Another one after each erasure."""
        return f"a-{user}" + f"-{self.lifetimes[user]}" * bool(self.lifetimes[user])

    # ---- the calls ----

    def tick(self):
        self.t = max(self.t, START_S) + 0.01
        return self.t

    def ask(self, do, user=None, key=None, rid=None, op=None, part=False, **body):
        self.serial += 1
        self.events.append({"e": "ask", "i": self.serial, "t": self.tick(), "op": op or self.serial, "do": do,
                            "c": None if do == "erase" else "c", "user": user, "key": key, "rid": rid, "body": body,
                            "part": part})
        return self.serial

    def said(self, i, out="ok", status=200, code=None, replayed=False, body=None):
        self.events.append({"e": "said", "i": i, "t": self.tick(), "out": out, "status": status, "code": code,
                            "replayed": replayed, "body": copy.deepcopy(body)})

    def refused(self, code, do="take", user="u-9", key="k-refused", **how):
        self.said(self.ask(do, user, key, **how), "refused", 409, code)

    def taking(self, user, key, n, g=1, state="redeemed", lasts_s=None, code=None):
        """The entry of it is appended; the answer's body."""
        self.tick()
        lane, alias = self.lane_of(user), self.alias(user)
        self.ordinals[lane] += 1
        entry = {"kind": ENTRY_OF[state], "n": n, "g": g, "alias": alias, "key": key_hash(alias, key),
                 "ordinal": self.ordinals[lane]}
        until = text_of(self.t + lasts_s) if lasts_s else None
        if state != "issued":
            entry["discount_minor"] = 500
        if until:
            entry["reserved_until"] = until
        seq = self.batch(entry, lane=lane)
        body = {"id": f"{n}-{g}", "user": user, "slot": n, "code": code, "state": state, "from": None,
                "ordinal": self.ordinals[lane], "seq": seq, "at": text_of(self.t), "reserved_until": until,
                "order": None, "discount_minor": entry.get("discount_minor", 0)}
        self.lives[body["id"]] = body
        return body

    def take(self, user, key, n, **how):
        i = self.ask("take", user, key)
        body = self.taking(user, key, n, **how)
        self.said(i, status=201, body=body)
        return body

    def move(self, do, rid, key=None, **body):
        """redeem, reserve (as extension), cancel, reverse or adjust of what stands."""
        was = self.lives[rid]
        i = self.ask(do, was["user"], key, rid, **body)
        self.tick()
        n, g = map(int, rid.split("-"))
        alias = self.alias(was["user"])
        entry = {"n": n, "g": g, "alias": alias}
        if key:
            entry["key"] = key_hash(alias, key)
        more = {"redeem": {"kind": "spend", "discount_minor": 500},
                "cancel": {"kind": "cancel", "discount_minor": 500, "same_day": True},
                "reserve": {"kind": "extend", "reserved_until": text_of(self.t + 2)},
                "adjust": {"kind": "adjust", "discount_minor": body.get("discount_minor"), "held_minor": was["discount_minor"]},
                "reverse": {"kind": "reverse", "discount_minor": was["discount_minor"], "same_day": True, **body}}[do]
        self.batch({**entry, **more}, lane=self.lane_of(was["user"]))
        now = {**was, "state": STATE_AFTER[do], "reserved_until": more.get("reserved_until", was["reserved_until"]),
               "discount_minor": body.get("discount_minor", was["discount_minor"])}
        self.lives[rid] = now
        self.said(i, body=now)
        return now

    def erase(self, user):
        """What the user holds ends, what is redeemed stays without a name, and the alias means nobody."""
        i, alias = self.ask("erase", user), self.alias(user)
        self.tick()
        mine = [body for body in self.lives.values()
                if body["user"] == user and body["state"] in ("issued", "reserved")]
        ends = [{"kind": "cancel", "n": body["slot"], "g": int(body["id"].split("-")[1]), "alias": alias,
                 "same_day": True, "discount_minor": body["discount_minor"]} for body in mine]
        self.batch(*ends, {"kind": "erase", "alias": alias}, lane=self.lane_of(user))
        self.lives.update((body["id"], {**body, "state": "cancelled"}) for body in mine)
        self.lifetimes[user] += 1
        self.said(i, status=204)

    def list_codes(self, *rows):
        """A list is imported: its new codes are slots, in its order."""
        self.codes, self.lists = self.codes or [], self.lists or []
        good = [row for row in rows if len(row) >= 4]
        had = {code for code, _, _ in self.codes}
        new = [code for code in dict.fromkeys(good) if code not in had]
        self.generate(len(new), len(self.codes))
        self.codes += [(code, "free", "") for code in new]
        self.lists.append(list(rows))
        self.jobs.append({"rows": len(rows), "imported": len(new), "duplicates_in_file": len(good) - len(set(good)),
                          "duplicates_in_coupon": len(set(good) & had), "invalid": len(rows) - len(good)})

    def again(self, user, key, body, **how):
        """The same take once more."""
        self.said(self.ask("take", user, key), **{"status": 201, "replayed": True, "body": body, **how})

    def counts(self, seq=None, **other):
        """As they are, or were at seq; `other`: but for this."""
        i = self.ask("counts")
        seq = seq or len(self.batches)
        self.said(i, body={**self.counted(seq), **other})

    def counted(self, seq):
        """With lane 0 at its seq, the others at their ends."""
        replays = [self.replay(lane) for lane in range(len(self.ledgers))]
        stood = [replay.totals[seq if lane == 0 else -1] for lane, replay in enumerate(replays)]
        sums = {name: sum(one[name] for one in stood) for name in SUMS}
        stock, cap = stood[0]["stock"], self.definition["cap"]
        loose = cap["policy"] == "approximate"
        slots = (None, None) if loose else (stock, stock - sums["taken_total"])
        over = max(0, sums["taken_total"] - cap["total"]) if loose else 0
        seqs = {"seqs": [seq, *(len(lane) for lane in self.ledgers[1:])]} if len(self.ledgers) > 1 else {}
        return {**sums, **seqs, "seq": seq, "slots": slots[0], "free": slots[1], "over": over}

    def look(self, user, total):
        self.said(self.ask("user", user), body={"user": user, "total": total, "redemptions": []})

    def patch(self, follow=True, **members):
        """The definition is changed; the other lanes follow."""
        i, version = self.ask("patch", **members), len(self.batches)
        self.tick()
        self.definition = {**self.definition, **members, "version": version}
        for lane in range(len(self.ledgers) if follow else 1):
            self.batch({"kind": "define", "definition": self.definition, "by": "x"}, lane=lane)
        self.said(i, body={"id": "c", "version": version})

    # ---- the end ----

    def history(self, **state):
        """With a state at the end that fits, but for `state`."""
        said = [self.lines(lane) for lane in range(len(self.ledgers))]
        replays = [replay for _, replay in said]
        coupon = {"ledgers": [lines for lines, _ in said], "slots": replays[0].stock,
                  "counts": self.counted(len(self.batches)), "users": self.users(replays), "codes": self.listed(),
                  "events": [events_of(replay) for replay in replays],
                  "report": {"items": [report_of(replay) for replay in replays],
                             "as_of": {"seq": [replay.last_seq for replay in replays]}},
                  "lists": self.lists, "jobs": self.jobs, **state}
        begin = {"e": "begin", "t": START_S, "wall_ms": WALL_MS, "slack_ms": 1, "seed": 0, "mix": "m", "faults": ["f"],
                 "coupons": {"flow-0": "c"}}
        fault = {"e": "fault", "name": "f", "t": START_S + 0.015, "note": "", "heals": START_S + 0.016}
        end = {"e": "end", "coupons": {"c": coupon}, "names": self.names, "verify": {"exit": 0, "output": ""}}
        return History([begin, *self.events, fault, end])

    def users(self, replays):
        """As GET shows them: nothing of what was before an erasure."""
        owner = {self.alias(body["user"]): body["user"] for body in self.lives.values()}
        users = {body["user"]: {"redemptions": []} for body in self.lives.values()}
        for r in (r for replay in replays for r in replay.redemptions.values() if r.alias in owner):
            users[owner[r.alias]]["redemptions"].append({"id": r.rid, "state": r.state})
        return users

    def listed(self):
        """The rows of GET codes, with what became of each."""
        taken = {body["code"]: (body["state"], body["user"]) for body in self.lives.values()
                 if body["state"] in STANDING}
        return self.codes and [(code, *taken.get(code, ("free", ""))) for code, _, _ in self.codes]


def events_of(replay):
    return [[batch["seq"], replay.rid(entry, batch), entry["kind"]] for batch in replay.batches
            for entry in batch["entries"] if "g" in entry]


def report_of(replay):
    """One row of all that there is."""
    row = dict.fromkeys((*ROWS, "discount_minor"), 0)
    for entry in (entry for batch in replay.batches for entry in batch["entries"]):
        for name, kinds in ROWS.items():
            row[name] += entry["kind"] in kinds
        sign = (entry["kind"] in (*ROWS["redeemed"], "adjust")) - (entry["kind"] == "reverse")
        row["discount_minor"] += sign * entry.get("discount_minor", 0) - (entry["kind"] == "adjust") * entry.get("held_minor", 0)
    return row
