"""What a run shows, beside violations: faults and what they met, the gap that clients saw, how soon all was as before.

The gap at a fault: the longest time after it, until the next fault comes, in which a coupon of the flow had no
acknowledged taking; the worst of those coupons. Recovery: from the fault's end until they are acknowledged again at
RECOVERED of the rate of the whole run, over WINDOW_S. Faults overlap, so either may be another's from before.
"""
import bisect
import collections
import re
import statistics

from check import in_flight
from evidence import EFFECTS
from mixes import CALM_DOWN_S
from refusals import NOTHING_DONE
from scenarios import COURSES, FLOW

AFTER_S = 5.0  # so long after a fault is healed a gap may begin that is still its own
WINDOW_S = 0.5
RECOVERED = 0.5
LOOKED_AT = {"I1": "entries", "I2": "acknowledged steps", "I3": "entries with a key", "I4": "of slots",
             "I5": "answers repeated", "I6": "reads", "I7": "refusals", "I8": "batches"}


def flow_times(history):
    """Of each coupon of the flow, when takings were acknowledged."""
    names = {coupon for name, coupon in history.begin["coupons"].items() if COURSES[name] is FLOW}
    times = {name: [] for name in names}
    for a in history.attempts:
        if a.coupon in names and a.do == "take" and a.out == "ok" and not a.replayed:
            times[a.coupon].append(a.told_at)
    return {name: sorted(found) for name, found in times.items()}


def gap_at(times, fault, until):
    """The longest time, from the fault until then, between two of `times`."""
    first = bisect.bisect_right(times, fault["t"])
    last = bisect.bisect_left(times, until)
    seen = [fault["t"], *times[first:last], until]
    return max((b - a for a, b in zip(seen, seen[1:])), default=0.0)


def recovery_at(times, fault, rate, end):
    """Seconds from the fault's end to the first window in which takings come at half the rate; or to the load's end, if
    none does."""
    enough = max(1, RECOVERED * rate * WINDOW_S)
    start = max(fault["heals"], fault["t"])
    i = bisect.bisect_left(times, start)
    while i < len(times):
        if bisect.bisect_left(times, times[i] + WINDOW_S) - i >= enough:
            return times[i] - start
        i += 1
    return max(0.0, end - start)


def worst(seconds):
    return round(max(seconds, default=0), 3)


def figures_of(history, violations):
    """Everything that the run prints, and that runs can be added up by."""
    flow, faults = flow_times(history), sorted(history.faults, key=lambda fault: fault["t"])
    out = in_flight(history.attempts)
    end = max([t[-1] for t in flow.values() if t] + [max(f["t"], f["heals"]) + CALM_DOWN_S for f in faults], default=0)
    rates = {name: len(t) / max(1e-9, t[-1] - t[0]) for name, t in flow.items() if len(t) > 1}
    kinds = {name: {"times": 0, "in_flight": [], "gap_s": [], "recovery_s": []} for name in history.begin["faults"]}
    for fault in faults:
        until = min([other["t"] for other in faults if other["t"] > fault["heals"]] + [fault["heals"] + AFTER_S, end])
        kind = kinds[fault["name"]]
        kind["times"] += 1
        kind["in_flight"].append(out(fault["t"]))
        kind["gap_s"].append(worst(gap_at(flow[name], fault, until) for name in rates))
        kind["recovery_s"].append(worst(recovery_at(flow[name], fault, rates[name], end) for name in rates))
    outs = collections.Counter(a.out for a in history.attempts)
    by_invariant = collections.Counter(v.invariant for v in violations)
    acknowledged = {(a.coupon, a.user, a.key) for a in history.attempts
                    if a.out == "ok" and a.key and a.do in ("take", "redeem")}
    begin = history.begin
    done = collections.Counter((a.do, a.out) for a in history.attempts)
    return {"mix": begin["mix"], "seed": begin["seed"], "faults": kinds, "attempts": len(history.attempts),
            "ok": outs["ok"], "refused": outs["refused"], "unknown": outs["unknown"], "acknowledged": len(acknowledged),
            "moves": moves_of(history), "erased": done["erase", "ok"], **looked_at(history),
            "in_batches": sum(a.part for a in history.attempts), "imported": imported_by(history),
            "broken": by_invariant["I8"], "lost": by_invariant["I2"], "over": by_invariant["I1"],
            "duplicates": by_invariant["I5"],
            "violations": [str(v) for v in violations]}


def looked_at(history):
    """{invariant: how often there was something that could have violated it}"""
    seen = collections.Counter(dict.fromkeys(LOOKED_AT, 0))
    for line in (line for state in history.end["coupons"].values() for lines in state["ledgers"] for line in lines):
        seen.update({"I1": line.count('"kind":"'), "I3": line.count('"key":"'), "I4": line.count('"g":'), "I8": 1})
    for a in history.attempts:
        ok, refused = a.out == "ok", a.out == "refused"
        seen.update({"I2": ok and a.do in EFFECTS, "I5": ok and a.replayed, "I6": ok and a.do in ("counts", "user"),
                     "I7": refused and a.code not in NOTHING_DONE})
    return seen


def moves_of(history):
    """Steps by which slots moved from lane to lane."""
    return sum(len(re.findall(r'"job":"lane-\d+-from-', line)) for state in history.end["coupons"].values()
               for lines in state["ledgers"] for line in lines)


def imported_by(history):
    return sum(job["imported"] for state in history.end["coupons"].values() for job in state.get("jobs") or ())


def added_up(runs):
    """Several runs as one."""
    total = collections.Counter()
    faults = {}
    for run in runs:
        total.update({name: value for name, value in run.items() if isinstance(value, int) and name != "seed"})
        for name, kind in run["faults"].items():
            mine = faults.setdefault(name, {"times": 0, "in_flight": [], "gap_s": [], "recovery_s": []})
            for member, value in kind.items():
                mine[member] += value
    return {**total, "faults": faults, "violations": [v for run in runs for v in run["violations"]]}


def middle_and_most(values, unit=1):
    return f"{statistics.median(values) * unit:.0f} / {max(values) * unit:.0f}" if values else "-"


def table(figures):
    """Lines to print."""
    yield f"{'fault':<32}{'survived':>9}{'requests in flight':>20}{'gap, ms':>16}{'recovery, ms':>16}"
    yield f"{'':<32}{'':>9}{'p50 / max':>20}{'p50 / max':>16}{'p50 / max':>16}"
    for name, kind in figures["faults"].items():
        gap, recovery = (middle_and_most(kind[member], 1000) for member in ("gap_s", "recovery_s"))
        yield f"{name:<32}{kind['times']:>9}{middle_and_most(kind['in_flight']):>20}{gap:>16}{recovery:>16}"
    yield "{attempts} requests: {ok} ok, {refused} refused, {unknown} unknown and then resolved".format_map(figures)
    yield ("{in_batches} more items of batches, {moves} moves from lane to lane, {imported} codes out of lists, "
           "{erased} users erased").format_map(collections.defaultdict(int, figures))
    yield "looked at: " + ", ".join(f"{name} {figures[name]} {what}" for name, what in LOOKED_AT.items())
    if figures["broken"]:
        yield "what was lost, or taken too often, is not known: an order is broken"
        return
    yield ("acknowledged redemptions lost: {lost} of {acknowledged}; over-redemptions: {over}; "
           "duplicate answers: {duplicates}").format_map(figures)
