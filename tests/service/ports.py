"""Ports of 127.0.0.1 for the servers that a test starts. Whoever gets one has it to the end of its process, also while nobody listens
there: no other test of this machine gets it, whichever process or copy of the project it is of."""
import random
import socket

# Below the range from which the system gives ports to whoever connects, and above those of mongod: scripts/lib.sh, tests/engine/mongod.c.
FIRST, LAST = 30000, 32767

reserved = []


def reserve(port):
    """Whether it is ours from now on. An abstract name goes with its process, whatever ends that; tests/engine/mongod.c takes such a
    name, too."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0coupons-test-port-{port}")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))  # it may be somebody's who is no test
    except OSError:
        name.close()
        return False
    reserved.append(name)
    return True


def free_ports(count):
    """The first of so many, one after the other."""
    for first in random.sample(range(FIRST, LAST + 2 - count), LAST + 2 - count - FIRST):
        if all(reserve(port) for port in range(first, first + count)):
            return first
    raise AssertionError(f"no {count} ports are free from {FIRST} to {LAST}")


def free_port():
    return free_ports(1)
