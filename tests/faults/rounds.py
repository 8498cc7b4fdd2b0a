"""One round: a copy of the service of its own, the workload, a mix of faults, and the history that comes of it."""
import contextlib
import csv
import io
import json
import random
import re
import time

import ledger
from erasure import found
from evidence import secret_of, seqs_of
from fault import Scheduler
from history import Recorder
from mixes import CALM_DOWN_S, FAULTS
from pair import Pair
from receiver import Receiver
from replica_set import SetStack
from scenarios import COURSES, FLOW, HOLD_S
from stack import SETTINGS, WEBHOOKS, Stack, wait_until
from swarm import Call, swarm
from workload import Importer, Load, Stocker, make_coupons

WARM_UP_S = 2
CAUGHT_UP_S = 300  # for reporter and webhook sender, when all is healed
TOLD = ("few", "holds", "codes", "lanes", "lists")  # courses whose webhooks are received
SWEPT_S = 4  # what has ended is in the ledger soon after, so that nothing changes while all is read
PRIMARY = "[mongodb]\nserver_selection_timeout_ms = 3000\n"  # looked for as long as it is where the service runs
UNREACHABLE = 3  # the exit of couponctl
LOOKED_AT = 300  # users of a coupon who are looked at when all is over
ERASABLE = re.compile(rb"e-\d+-\d+-e")  # the names of those who come and go


def environment_of(names, stack):
    environment = {}
    for name in names:
        more = FAULTS[name].environment
        environment.update(more(stack.var) if callable(more) else more or {})
    return environment


@contextlib.contextmanager
def service(mix):
    """A running stack that its faults can be done to."""
    names = mix.faults
    settings = SETTINGS + WEBHOOKS + PRIMARY + "".join(sorted({FAULTS[name].settings for name in names}))
    nodes = max(FAULTS[name].nodes for name in names)
    assert not nodes or mix.fronts == 1, "two fronts have a database that no fault is done to"
    how = {"settings": settings, "workers": mix.workers}
    stack = SetStack(nodes, interposed=True, **how) if nodes else Pair(**how) if mix.fronts == 2 else Stack(**how)
    stack.environment.update(environment_of(names, stack))
    for front in stack.fronts:
        front.impatient = True  # time-outs are short, and other work of the machine may do to the database what a fault does
    try:
        yield stack.start()
    finally:
        stack.stop()
        stack.remove()


def play(name, mix, seed, seconds, path, say):
    """Let the mix's faults happen to a loaded service for so long; the history is written to `path`."""
    with service(mix) as stack, Receiver() as receiver:
        faults = {one: (FAULTS[one], FAULTS[one].make(stack, **FAULTS[one].options)) for one in mix.faults}
        coupons = make_coupons(stack)
        subscribe(stack, receiver, [coupons[course] for course in TOLD])
        recorder = Recorder(path, seed=seed, mix=name, faults=list(mix.faults), coupons=coupons, slack_ms=mix.slack_ms,
                            secret=secret_of(stack.database).hex())
        load = Load(stack, coupons, recorder, seed)
        stocker = Stocker(stack, [coupon for course, coupon in coupons.items() if COURSES[course] is FLOW])
        importers = {coupons[course]: Importer(stack, load, course, seed)
                     for course in COURSES if COURSES[course].lists}
        scheduler = Scheduler(faults, random.Random(seed), seconds, mix.together, mix.pause_s, say, lambda: recorder.out)
        for one in (load, stocker, *importers.values()):
            one.start()
        try:
            time.sleep(WARM_UP_S)
            scheduler.start()
            spells = scheduler.result()
            for front in stack.fronts:
                wait_until(lambda: f"all processes: {front.pids()}", lambda: all(front.pids().values()))
            time.sleep(CALM_DOWN_S)
        finally:
            load.end()
            asked = stocker.end()
            lists = {coupon: importer.end() for coupon, importer in importers.items()}
        for spell in spells:
            for at, note in spell.moments:
                recorder.fault(at, spell.name, note, spell.healed)
        say(f"{load.settle()} calls resolved")
        time.sleep(HOLD_S + SWEPT_S)
        wait_until("all holds to have ended", lambda: not any(stack.counts(coupon)["reserved"] for coupon in coupons.values()), every=0.5)
        states = {coupon: {**state_of(stack, course, coupon, asked, receiver), **lists.get(coupon, {})}
                  for course, coupon in coupons.items()}
        recorder.end(coupons=states, names=names_left(stack), verify=verified(stack))


def subscribe(stack, receiver, coupons):
    """What comes from now on, by the ledger's time: so each lane gets a batch while clocks are right. One that has none may
    stand still before the subscription's time, where a clock jumps back."""
    stack.client("ops").post("/coupons/-/webhooks", {"url": receiver.url, "coupons": coupons}).ok(201)
    for coupon in coupons:
        stack.patch(coupon, {"title": "said"})


def verified(stack):
    """Where the database could not be reached, nothing is known: then it is asked again."""
    def known():
        done = stack.couponctl("verify")
        return done.returncode != UNREACHABLE and done

    done = wait_until("verify to reach the database", known, CAUGHT_UP_S, every=0.5)
    return {"exit": done.returncode, "output": done.stdout[-3000:]}


def whole(read):
    """What read() gives of a stream; where the database pauses it may break off, and is read again."""
    def once():
        try:
            return [read()]
        except AssertionError as e:
            if isinstance(e.__cause__, ConnectionError):
                return None
            raise

    return wait_until("a stream to come to its end", once, CAUGHT_UP_S, every=0.5)[0]


def state_of(stack, course, coupon, asked, receiver):
    """What is kept of a coupon, from outside; its ledgers last, so that they have all that the others tell of."""
    state = {"slots": COURSES[course].slots + asked[coupon], "counts": stack.counts(coupon)}
    lanes = range(COURSES[course].more.get("lanes", 1))
    state["report"] = report_of(stack, coupon, seqs_of(state["counts"]))
    state["events"] = [events_of(stack, receiver, coupon, lane) for lane in lanes] if course in TOLD else None
    state["codes"] = codes_of(stack, coupon) if COURSES[course].lists else None
    state["slots_of_codes"] = slots_of_codes(stack, coupon) if COURSES[course].lists else None
    ledgers = [whole(lambda lane=lane: ledger.read(stack, coupon, lane=lane)) for lane in lanes]
    state["users"] = users_of(stack, coupon)
    return {**state, "ledgers": [[line.decode() for line in lines] for lines in ledgers]}


def codes_of(stack, coupon):
    text = whole(lambda: stack.client("ops").get(f"/coupons/{coupon}/codes").expect(200)).body.decode()
    return [(row["code"], row["state"], row["user"]) for row in csv.DictReader(io.StringIO(text))]


def slots_of_codes(stack, coupon):
    """{code: slot}, of a coupon whose codes match exactly."""
    return {row["_id"]["code"]: row["n"] for row in stack.database.codes.find({"_id.c": coupon})}


def names_left(stack):
    """{name: [(collection, coupon)]} of those who come and go, wherever one stands."""
    names = {}
    for collection, document, name in found(stack, ERASABLE):
        coupon = document.get("c") if isinstance(document, dict) else None
        names.setdefault(name.decode(), []).append((collection, coupon))
    return names


def report_of(stack, coupon, seqs):
    """The hours of two days: the ledger's time may be ahead of ours, where clocks have jumped."""
    said, now = {}, time.time()
    since, until = (time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(now + days * 86400)) for days in (-1, 1))

    def caught_up():
        target = f"/coupons/{coupon}/reports?period=hour&from={since}&to={until}"
        said.update(stack.client("reporting").get(target).ok())
        return said["as_of"]["seq"] and all(have >= seq for have, seq in zip(said["as_of"]["seq"], seqs, strict=True))

    wait_until(lambda: f"the report of {coupon} to reach {seqs}: {said['as_of']}", caught_up, CAUGHT_UP_S, every=0.2)
    return said


def events_of(stack, receiver, coupon, lane):
    """(seq, id, kind) of a lane, as they were delivered, once all of the ledger have come or time is up."""
    def said():
        return [(event.data["seq"], entry["id"], entry["kind"])
                for event in receiver.of("redemption.batch", coupon=coupon) if event.data["lane"] == lane
                for entry in event.data["entries"]]

    batches = map(json.loads, whole(lambda: ledger.read(stack, coupon, lane=lane)))
    entries = sum("g" in entry for batch in batches for entry in batch["entries"])
    with contextlib.suppress(AssertionError):  # what is missing, the checker tells
        wait_until("the events", lambda: len(said()) >= entries, CAUGHT_UP_S, every=0.5)
    return said()


def users_of(stack, coupon):
    """{user: what GET says of them}, of up to LOOKED_AT of those who have something."""
    named = stack.database.ledger.distinct("who.u", {"_id.c": coupon})
    users = sorted(user for user in named if user.startswith(("u-", "e-")))
    chosen = random.Random(coupon).sample(users, min(LOOKED_AT, len(users)))
    calls = swarm([stack.way()], [Call("GET", f"/coupons/{coupon}/users/{user}") for user in chosen], connections=8)
    return {body["user"]: body for body in (call.reply.ok() for call in calls)}
