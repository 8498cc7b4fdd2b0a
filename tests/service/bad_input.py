"""How many bad inputs the tests tried: requests that were refused for what they are, whatever stands in the database; and
FastCGI that is none, of which a worker has only the connection to close. conftest.py prints it at the end."""
import collections

BAD = {400, 408, 413, 414, 415}  # malformed, cut off, too large, of another type

tried = collections.Counter()  # by status


def note(status):
    """One reply came."""
    if status in BAD:
        tried[str(status)] += 1


def note_unanswered():
    tried["closed"] += 1


def told():
    """A line to print."""
    return f"bad inputs tried: {tried.total()} ({', '.join(f'{how}: {n}' for how, n in sorted(tried.items()))})"
