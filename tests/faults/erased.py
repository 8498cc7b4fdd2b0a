"""Users who were erased: what had begun under their name ends with it, their caps start anew, and the name stands
nowhere.

An erasure may come twice, and late, as any request may: what the ledger says of it is what counts. What a call does
that comes after it, it does under another alias, and then the name is there again.
"""
from evidence import Violation
from refusals import NOTHING_DONE
from replay import ms


def in_passing(e, entry):
    """The end of what the user had when they were erased: by the same batch."""
    erasure = e.replay.erased.get(entry.get("alias"))
    return erasure is not None and erasure["seq"] == entry["seq"]


def check_erasures(e):
    """Each was asked for; and when one was answered, what had begun before it was asked is over."""
    for alias, entry in e.replay.erased.items():
        user, latest = e.users.get(alias), ms(entry["at"])
        if not any(a.user == user and e.earliest_ms(a.asked_at) <= latest for a in e.erasures):
            e.complain("I3", f"nobody asked to erase {user}: {entry}")
    for a in (a for a in e.erasures if a.out == "ok"):
        for alias in e.aliases.get(a.user, []):
            began, erasure = e.replay.began.get(alias, 0), e.replay.erased.get(alias)
            if began > e.least(a.asked_at):
                continue  # by what came late
            if erasure is None or ms(erasure["at"]) > e.latest_ms(a.told_at):
                e.complain("erasure", f"{a.user} is still {alias}, who began at seq {began}: {erasure}, {a}")


def living(wholes, user):
    """The coupons in which the user has come back since, or was never erased."""
    return {whole.name for whole in wholes for alias in whole.of(user).aliases.get(user, [])
            if alias not in whole.of(user).replay.erased}


def check_names(history, wholes):
    """Of whom nothing is left in a coupon, no document of it holds the name; and what is no coupon's holds it never."""
    erasures = [a for a in history.attempts if a.do == "erase"]
    for a in (a for a in erasures if a.out == "refused" and a.code not in NOTHING_DONE):
        yield Violation("erasure", None, f"nobody is refused to be erased: {a}")
    for user in sorted({a.user for a in erasures if a.out == "ok"} & set(history.end["names"])):
        wrong = [place for place in history.end["names"][user] if place[1] not in living(wholes, user)]
        if wrong:
            yield Violation("erasure", None, f"{user} was erased, and is named in {wrong[:5]}")
