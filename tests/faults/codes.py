"""Codes: one slot's each, and one user's at a time; and lists of them, of which every row counts once, however often
it is sent."""
import collections


def slots_of_codes(whole):
    """{code: slot}, and the other way round, as clients got them. A code is one slot's, and a slot has one code."""
    slot_of, code_of = {}, {}
    for e in whole.lanes:
        for a in (a for call in e.calls.values() for a in call.oks if a.reply["code"] is not None):
            code, n = a.reply["code"], a.reply["slot"]
            if slot_of.setdefault(code, n) != n or code_of.setdefault(n, code) != code:
                e.complain("I4", f"code {code} is slot {slot_of[code]}'s, slot {n} has {code_of.get(n)}: {a}")
    return slot_of


def check_codes(whole):
    """... and what is listed of it is what the ledger says."""
    slot_of, listed = slots_of_codes(whole), whole.state.get("codes")
    if listed is None:
        return
    for code, state, user in listed:
        if code in slot_of:
            check_row(whole, code, slot_of[code], state, user)
    unknown = set(slot_of) - {code for code, _, _ in listed}
    if unknown:
        whole.complain("I3", f"codes were given that the coupon does not have: {sorted(unknown)[:5]}")


def check_row(whole, code, n, state, user):
    """Holds may end between the two looks at them."""
    slot = whole.first.replay.slots[n]
    nobody = slot.state == "free" or slot.alias in whole.first.replay.erased
    owner = "" if nobody else whole.first.users.get(slot.alias)
    if "reserved" not in (slot.state, state) and (slot.state, owner) != (state, user):
        whole.complain("views", f"code {code}, slot {n}, is {slot.state} of {owner} by the ledger, "
                                f"and listed as {state} of {user}")


def valid(row):
    return 4 <= len(row) <= 64


def check_lists(whole):
    """Every valid row of every list that was accepted is a slot, once; and the jobs say so, together and each of its
    own list."""
    lists, jobs, listed = (whole.state.get(name) for name in ("lists", "jobs", "codes"))
    if lists is None:
        return
    sent = {row for rows in lists for row in rows if valid(row)}
    times = collections.Counter(code for code, _, _ in listed)
    twice = sorted(code for code, count in times.items() if count > 1)
    if twice:
        whole.complain("I4", f"codes stand in the coupon more than once: {twice[:5]}")
    for invariant, text, found in (("I2", "were accepted, and are not there", sent - set(times)),
                                   ("I3", "are there, and in no list", set(times) - sent)):
        if found:
            whole.complain(invariant, f"codes that {text}: {sorted(found)[:5]}")
    imported = sum(job["imported"] for job in jobs)
    if imported != len(sent):
        whole.complain("I1", f"the lists have {len(sent)} codes, and the jobs say that they imported {imported}")
    by_rows = {(len(rows), sum(not valid(row) for row in rows)) for rows in lists}
    for job in jobs:
        said = sum(job[name] for name in ("imported", "duplicates_in_file", "duplicates_in_coupon", "invalid"))
        if (job["rows"], job["invalid"]) not in by_rows or said != job["rows"]:
            whole.complain("I1", f"a list of which no row counts twice is not this: {job}")
