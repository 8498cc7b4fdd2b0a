"""One lane's part of a history against its ledger: what each call did, and between which states of it the call lies.

How real time binds the ledger: whatever was acknowledged before a request was sent lies before it (`least`); whatever
was first asked after it was answered lies behind it (`most`). Between these two is all that it can have seen.
"""
import bisect
import collections
import dataclasses
import hashlib

from replay import NEVER, Replay, Use, ms

EFFECTS = {"take", "reserve", "redeem", "cancel", "reverse", "adjust"}
ENDINGS = {"cancel": "cancelled", "reverse": "reversed"}


@dataclasses.dataclass(frozen=True)
class Violation:
    invariant: str
    coupon: str
    text: str

    def __str__(self):
        return f"{self.invariant} {self.coupon or ''}: {self.text}"


@dataclasses.dataclass(eq=False)
class Call:
    """All attempts under one key, or of one step without a key; `entry`: what it did in the ledger, None: nothing.
    `entries`: with what an attempt did that came late, when the user was erased, and the key forgotten with them.
    `found`: attempts that were answered with what there was by another key. Such a key is not kept: an attempt that was
    still on its way takes anew, where that has ended meanwhile."""
    attempts: list
    entry: dict = None
    redemption: object = None
    entries: list = dataclasses.field(default_factory=list)
    found: list = dataclasses.field(default_factory=list)

    @property
    def first(self):
        return self.attempts[0]

    @property
    def oks(self):
        return [a for a in self.attempts if a.out == "ok" and a not in self.found]

    def acknowledged_at(self):
        return min((a.told_at for a in self.oks), default=NEVER)


def finds_its_own(a):
    """The answer names what there was already: of the same order; or issued to that user with the code for which it is asked again."""
    body = a.body or {}
    order, code = (body.get("order") or {}).get("id"), body.get("code")
    of_order = order is not None and a.reply["order"] == order
    issued = code is not None and body.get("state") == "issued" and (a.reply["state"], a.reply["code"]) == ("issued", code)
    return a.status == 200 and (of_order or issued)


def key_hash(alias, key, secret=b""):
    """As the ledger has it: BLAKE2b-128 of the alias, NUL, and the key, under the installation's secret."""
    return hashlib.blake2b(f"{alias}\0{key}".encode(), digest_size=16, key=secret).hexdigest()


def secret_of(database):
    """The installation's, as it is derived from the key of names."""
    return hashlib.blake2b(b"\x01keys", digest_size=16, key=database.secrets.find_one({"_id": "names"})["key"]).digest()


def seqs_of(counts):
    """Of each lane."""
    return counts.get("seqs") or [counts["seq"]]


class Evidence:
    """calls: {("key", user, key) or (step, id): Call}; users: {alias: user}, aliases: the other way round, {user: [the
    first alias, the next, ...]}: who was erased gets another. erasures: attempts to erase users who belong here."""

    def __init__(self, name, attempts, lines, history, lane=0, erasures=()):
        self.name, self.attempts, self.erasures, self.lane = name, attempts, erasures, lane
        self.secret = bytes.fromhex(history.begin.get("secret", ""))
        self.wall_ms, self.slack_ms = history.wall_ms, history.begin["slack_ms"]
        self.violations, self.replay = [], Replay(lines, lane)
        for invariant, text in self.replay.wrong:
            self.complain(invariant, text)
        self.calls = self._calls()
        self.users = self._users()
        self._name_late_ones()
        self.aliases = self._aliases()
        self.merged = {}
        self.before = bisect.bisect_right(self.replay.at, self.earliest_ms(history.begin["t"])) - 1
        self._find_effects()
        self._find_bounds()

    def complain(self, invariant, text):
        self.violations.append(Violation(invariant, self.name, text))

    def _calls(self):
        calls = {}
        for a in self.attempts:
            if a.do in EFFECTS:
                name = ("key", a.user, a.key) if a.key else (a.do, a.rid)
                calls.setdefault(name, Call([])).attempts.append(a)
        return calls

    def _users(self):
        """From what was acknowledged."""
        users = {}
        for call in self.calls.values():
            for a in call.oks:
                rid, said = a.reply["id"], a.reply["user"]
                r = self.replay.redemptions.get(rid)
                if r and users.setdefault(r.alias, said) != said:
                    self.complain("I4", f"{rid} is {users[r.alias]}'s by the ledger, and {said} got it")
        return users

    def _name_late_ones(self):
        """Nobody got an answer about what a call did that came when its user had been erased: its key says whose it is."""
        forgotten = {a.user for a in self.erasures}
        keys = [name for name in self.calls if name[0] == "key" and name[1] in forgotten]
        for hashed, done in self.replay.by_key.items():
            for entry in (entry for entry, _ in done if keys and entry["alias"] not in self.users):
                self.users.update((entry["alias"], user) for _, user, key in keys
                                  if key_hash(entry["alias"], key, self.secret) == hashed)

    def _aliases(self):
        aliases = collections.defaultdict(list)
        for alias in sorted(self.users, key=lambda alias: self.replay.began.get(alias, 0)):
            aliases[self.users[alias]].append(alias)
        return aliases

    def use_of(self, user):
        """What the user has had, under whatever alias."""
        if user not in self.merged:
            self.merged[user] = Use.one_after_another([self.replay.uses[alias] for alias in self.aliases[user]])
        return self.merged[user]

    def _find_effects(self):
        """By the hash of the call's key, or by the end that the step brought about."""
        for name, call in self.calls.items():
            if name[0] != "key":
                call.entry = self.replay.ends.get((name[1], ENDINGS[name[0]]))
                call.redemption = self.replay.redemptions.get(name[1])
                call.entries = [call.entry] if call.entry else []
                continue
            done = [one for alias in self.aliases.get(name[1], []) for one in self._done(alias, name)]
            if done:
                said = {a.reply["id"] for a in call.oks}
                call.entry, call.redemption = next((one for one in done if one[1].rid in said), done[0])
                call.entries = [entry for entry, _ in done]
                call.found = [a for a in call.oks if a.reply["id"] != call.redemption.rid and finds_its_own(a)]

    def _done(self, alias, name):
        """What was done under this alias by the call's key: once."""
        done = self.replay.by_key.get(key_hash(alias, name[2], self.secret), [])
        if len(done) > 1:
            self.complain("I5", f"key {name[2]} of {name[1]} did {[entry for entry, _ in done]}")
        return done

    def _find_bounds(self):
        """Sorted times, with the highest seq acknowledged until each, and the lowest first asked from each on."""
        done = [call for call in (*self.calls.values(), *self.patches()) if call.entry]
        acked = [(call.acknowledged_at(), call.entry["seq"]) for call in done if call.oks]
        acked += [(a.told_at, seqs_of(a.reply)[self.lane]) for a in self.attempts if a.do == "counts" and a.out == "ok"]
        self.acked_at, self.acked_seq = _running(sorted(acked), max)
        acked += [(a.told_at, self.replay.erased[alias]["seq"]) for a, alias in self.erasures_done()]
        self.acked_at, self.acked_seq = _running(sorted(acked), max)
        asked = sorted(((call.first.asked_at, call.entry["seq"]) for call in done), reverse=True)
        asked_at, asked_seq = _running(asked, min)
        self.asked_at, self.asked_seq = asked_at[::-1], asked_seq[::-1]

    def erasures_done(self):
        """(attempt, alias) of what was acknowledged to be erased, and is: it had begun before that was asked."""
        erased = self.replay.erased
        return [(a, alias) for a in self.erasures if a.out == "ok" for alias in self.aliases.get(a.user, ())
                if self.replay.began.get(alias, 0) <= self.least(a.asked_at)
                and alias in erased and ms(erased[alias]["at"]) <= self.latest_ms(a.told_at)]

    def patches(self):
        """Changes of the definition that were acknowledged, as calls. A lane that follows lane 0 may leave some out."""
        return [Call([a], self._version(a.reply["version"])) for a in self.attempts
                if a.do == "patch" and a.out == "ok"]

    def _version(self, number):
        """The entry that brought this definition, or a later one."""
        versions = self.replay.versions
        later = [one for one in versions if one is not None and one >= number]
        return versions[min(later)] if self.lane and later else versions.get(number)

    def span(self, a):
        """The first and the last seq whose states the attempt may have seen."""
        return self.least(a.asked_at), self.most(a.told_at)

    def least(self, t):
        """The seq that definitely was there at t: acknowledged, or before the history began."""
        i = bisect.bisect_left(self.acked_at, t)
        return max(self.before, min(self.acked_seq[i - 1], self.replay.last_seq) if i else 0)

    def most(self, t):
        """The last seq that possibly was there at t."""
        i = bisect.bisect_right(self.asked_at, t)
        by_calls = self.asked_seq[i] - 1 if i < len(self.asked_at) else self.replay.last_seq
        by_clock = bisect.bisect_right(self.replay.at, self.latest_ms(t)) - 1
        return max(0, min(by_calls, by_clock))

    def earliest_ms(self, t):
        """What the service's clock showed at t, at least."""
        return self.wall_ms(t) - self.slack_ms

    def latest_ms(self, t):
        """... and at most."""
        return self.wall_ms(t) + self.slack_ms


def _running(pairs, choose):
    """The times of (time, seq) pairs, and the highest or lowest seq so far at each."""
    times, seqs = [], []
    for t, seq in pairs:
        times.append(t)
        seqs.append(choose(seq, seqs[-1]) if seqs else seq)
    return times, seqs
