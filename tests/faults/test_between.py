"""What is between two fronts: it passes, waits while it is lost, or is refused."""
import contextlib
import socket
import threading

import pytest

from between import LOCAL, Between

QUIET_S = 0.2  # for what must not come
PATIENCE_S = 30


@pytest.fixture
def between():
    one = Between()
    one.start()
    yield one
    one.stop()


@pytest.fixture
def called(between):
    """A connection from the first front to the second: (the end of the one who calls, the other end)"""
    with socket.create_server((LOCAL, between.ports[1])) as server, call(between) as near:
        server.settimeout(PATIENCE_S)
        far, _ = server.accept()
        far.settimeout(PATIENCE_S)
        with far:
            yield near, far


def call(between):
    return socket.create_connection((LOCAL, between.entries[0]), PATIENCE_S)


def hears(s):
    """What comes; None: nothing within a while."""
    s.settimeout(QUIET_S)
    try:
        return s.recv(100)
    except TimeoutError:
        return None
    finally:
        s.settimeout(PATIENCE_S)


def passes(here, there, data):
    here.sendall(data)
    assert there.recv(100) == data


def test_both_hear_each_other(called):
    near, far = called
    passes(near, far, b"question")
    passes(far, near, b"answer")


def test_what_one_sends_is_lost_and_arrives_late(between, called):
    near, far = called
    passes(near, far, b"question")
    between.lose(1)
    far.sendall(b"answer")
    passes(near, far, b"another question")
    assert hears(near) is None
    between.heal()
    assert near.recv(100) == b"answer"


def test_a_call_that_was_given_up_arrives_late_all_the_same(between, called):
    near, far = called
    between.lose(0, 1)
    near.sendall(b"question")
    near.close()
    assert hears(far) is None
    between.heal()
    assert far.recv(100) == b"question" and far.recv(100) == b""


def test_who_is_refused_is_told_so_and_so_is_who_comes_anew(between, called):
    near, far = called
    passes(near, far, b"question")
    assert between.came == 0
    between.refuse()
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(100)
    with pytest.raises(ConnectionError), call(between) as another:
        assert another.recv(100), "closed"
    assert between.came == 1


def test_it_passes_again_when_healed(between):
    between.refuse()
    between.heal()
    with socket.create_server((LOCAL, between.ports[1])) as server, call(between) as near:
        far, _ = server.accept()
        with far:
            passes(near, far, b"question")


def test_where_nobody_listens_the_connection_is_closed(between):
    with call(between) as near:
        with contextlib.suppress(ConnectionResetError):
            assert near.recv(100) == b""


def test_its_end_closes_all(between, called):
    near, _ = called
    between.stop()
    assert near.recv(100) == b"" and not any(thread is between for thread in threading.enumerate())
