"""What the service's commands were, and what the database examined for them: its profile."""
import contextlib

import pymongo

from stack import wait_until

PROFILE_BYTES = 1 << 30
NAMESPACE_EXISTS = 48


def examined(entry):
    return entry.get("keysExamined", 0) + entry.get("docsExamined", 0)


def shape(entry):
    """What a command is, without its values."""
    command = entry["originatingCommand"] if entry["op"] == "getmore" else entry["command"]
    query = command["pipeline"][0] if "pipeline" in command else command.get("filter") or command.get("q") or command.get("query") or {}
    return entry["ns"].partition(".")[2], entry["op"], " ".join(query)


def has_empty_profile(database):
    """A command that began under the last one may have made it anew, in between."""
    database.drop_collection("system.profile")
    try:
        database.command("create", "system.profile", capped=True, size=PROFILE_BYTES)
    except pymongo.errors.OperationFailure as e:
        assert e.code == NAMESPACE_EXISTS, e
        return False
    return True


@contextlib.contextmanager
def profiled(database):
    """What the service's commands were, once the block has ended."""
    entries = []
    wait_until("an empty profile", lambda: has_empty_profile(database))
    database.command("profile", 2)
    yield entries
    database.command("profile", 0)
    assert database.command("collstats", "system.profile")["size"] < 0.9 * PROFILE_BYTES, "the first entries may be gone"
    entries += database["system.profile"].find({"appName": "coupons"})
