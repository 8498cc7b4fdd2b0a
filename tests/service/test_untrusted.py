"""couponctl and what it reads: no answer, name or file can crash it, fill its memory, or control the terminal."""
import concurrent.futures
import contextlib
import gzip
import json
import os
import pty
import resource
import select
import subprocess

import pytest

from answering import answering
from stack import BUILD, ROOT

NOWHERE = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"
MEMORY = 700 << 20
# C0 and C1 controls, DEL, and what reorders text; the last is CSI as one byte, which is no UTF-8.
EVIL = ("\x1b[31m", "\x9b31m", "\x7f", "\x85", "\u202e", "\u2066", "\u200f", "\u061c")
METRICS = "coupons_start_time_seconds 1\ncoupons_requests_total{status=\"200\"} nan\n"


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def couponctl(*arguments, url=None, status=None):
    """Exit code and output, by a process with little memory; never a signal."""
    address = ["--url", url, "--key", "k"] if url else ["--mongodb", NOWHERE]
    bounds = {} if "address" in str(BUILD) else {"preexec_fn": limited}  # a sanitizer reserves terabytes
    done = subprocess.run([BUILD / "couponctl", *address, *map(str, arguments)], capture_output=True, timeout=120, cwd=ROOT, **bounds)
    text = done.stdout.decode(errors="surrogateescape") + done.stderr.decode(errors="surrogateescape")
    assert done.returncode in ((0, 1, 2, 3) if status is None else (status,)), f"{arguments}: exit {done.returncode}\n{text[:3000]}"
    return text


def on_a_terminal(*arguments, url):
    """What a terminal gets as standard output."""
    master, slave = pty.openpty()
    process = subprocess.Popen([BUILD / "couponctl", "--url", url, "--key", "k", *map(str, arguments)], stdout=slave, stderr=slave, cwd=ROOT)
    os.close(slave)
    got = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while select.select([master], [], [], 60)[0] and (piece := os.read(master, 65536)):
            got += piece
    assert process.wait(60) in (0, 1), got
    os.close(master)
    return got


def json_of(value, status=200):
    return status, "application/json", json.dumps(value, ensure_ascii=False).encode()


def bomb(path, line, times):
    path.write_bytes(gzip.compress(line * times + b"0]}\n"))
    assert path.stat().st_size < 200_000
    return path


# ---- files ----

def test_an_archive_that_is_blown_up_is_refused(tmp_path):
    path = bomb(tmp_path / "a.gz", b'{"a":[' + b"0," * 11_000_000, 3)
    text = couponctl("verify", path, status=1)
    assert "compressed further than any ledger can be" in text, text


def test_a_line_without_end_is_refused_compressed_or_not(tmp_path):
    path = tmp_path / "a.archive"
    with open(path, "wb") as plain:
        plain.write(b'{"a":[' + b"0," * 20_000_000 + b"0]}\n")
    assert "a line has too many values" in couponctl("verify", path, status=1)
    with open(path, "wb") as plain:
        plain.truncate(200 << 20)
    assert "a line is too long" in couponctl("verify", path, status=1)


def test_a_ledger_of_another_hand_is_refused_by_receipt_verify(stack, tmp_path):
    coupon = stack.coupon(slots=1)
    taken = stack.client("storefront").take(coupon, "u").ok(201)["id"]
    receipt = stack.client("storefront").get(f"/coupons/{coupon}/redemptions/{taken}/receipt").ok()["receipt"]
    path = bomb(tmp_path / "ledger", b'{"a":[' + b"0," * 11_000_000, 3)
    keys = tmp_path / "keys"
    keys.write_text(json.dumps(stack.client("storefront").get("/coupons/-/receipt-keys").ok()))
    assert "compressed further" in couponctl("receipt", "verify", "--keys", keys, "--ledger", path, receipt, status=1)


def test_a_list_of_what_is_lost_is_refused_by_restored(stack, tmp_path):
    assert "compressed further" in stack.ctl("restored", bomb(tmp_path / "events", b'{"a":[' + b"0," * 11_000_000, 3), status=2)


# ---- answers ----

MEMBERS = ("items", "seqs", "keys", "errors", "result", "discount", "next", "id", "state", "changes", "refusals", "code")
ODD = [7, None, "x", [], [[]], {}, {"id": 7}, {"id": None}, {"id": {"a": []}}, {"id": "a", "changes": 7, "refusals": 7, "pointer": []}]
WRONG = [None, 7, "x", [], [7], {}, *({name: value for name in MEMBERS} for value in (7, "x", {"a": 1}, [], ODD)),
         {"items": ODD, "result": {"bad_rows": ODD}, "counts": []}]
CALLS = [("top", "--once", "--interval", "1"), ("top", "--once", "--interval", "1", "named"), ("top", "--once", "--json", "--interval", "1"),
         ("coupon", "show", "a"), ("coupon", "list"), ("coupon", "clone", "a", "--amount", "5"), ("coupon", "history", "a"),
         ("coupon", "pause", "a"), ("jobs", "list"), ("jobs", "show", "a"), ("redemptions", "list", "a"), ("redemptions", "show", "a", "0-1"),
         ("codes", "show", "a", "c"), ("report", "a"), ("webhooks", "list"), ("webhooks", "create", "http://a"), ("webhooks", "test", "a"),
         ("codes", "export", "a", "--json"), ("receipt", "verify", "a.b.c"), ("users", "erase", "u"), ("slots", "generate", "a", "5", "--no-wait")]


@pytest.mark.parametrize("status", [200, 409])
def test_answers_of_a_wrong_type_are_no_end(status):
    def tried(wrong):
        def answers(path):
            return (200, "text/plain", METRICS.encode()) if path.endswith("metrics") else json_of(wrong, status)

        with answering(answers) as url:
            for call in CALLS:
                couponctl(*call, url=url)

    with concurrent.futures.ThreadPoolExecutor(len(WRONG)) as threads:  # top sleeps
        assert len(list(threads.map(tried, WRONG))) == len(WRONG)


def endless(start, piece):
    yield start
    while True:
        yield piece


@pytest.mark.parametrize("start, piece", [(b'{"a": "', b"a" * 65536), (b'{"a": [', b"0," * 32768)], ids=["text", "values"])
def test_an_answer_without_end_has_one(start, piece):
    with answering(lambda path: (200, "application/json", endless(start, piece))) as url:
        for call in (("coupon", "show", "a"), ("top", "--once"), ("report", "a")):
            assert "its answer is longer than 32 MiB" in couponctl(*call, url=url, status=3)


# ---- a terminal ----

def is_harmless(got):
    text = got.decode()  # which is UTF-8
    left = [c for c in text if c not in "\r\n\t" and (c < " " or "\x7f" <= c <= "\x9f" or c in "\u061c\u200e\u200f" or
                                                    "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069")]
    assert not left, f"the terminal gets {left} in {text!r}"
    return text


@pytest.mark.parametrize("evil", EVIL)
def test_nothing_that_is_stored_controls_a_terminal(tmp_path, evil):
    row = f"code,state,user,at\nA{evil}B,issued,u{evil}v,\n".encode()
    item = {"id": f"a{evil}b", "title": f"t{evil}u", "state": f"s{evil}t", "secret": f"w{evil}x", "event": f"e{evil}f", "cap": {"total": 5}}

    def answers(path):
        if path.endswith("/codes"):
            return 200, "text/csv", row
        if path.endswith("/users/export"):
            return 200, "application/x-ndjson", json.dumps(item, ensure_ascii=False).encode() + b"\n"
        return json_of({"items": [item], "next": None, **item})

    with answering(answers) as url:
        for call in (("codes", "export", "a"), ("users", "export", "u"), ("coupon", "list"), ("coupon", "show", "a"), ("jobs", "list"),
                     ("webhooks", "create", "http://a"), ("webhooks", "test", "w"), ("coupon", "list", "--json"), ("coupon", "pause", "a"),
                     ("codes", "export", "a", "--json"), ("redemptions", "list", "a")):
            is_harmless(on_a_terminal(*call, url=url))
        shown = is_harmless(on_a_terminal("codes", "export", "a", url=url))
        assert shown.startswith("code,state,user,at\r\nA?") and "B,issued,u?" in shown, shown
        couponctl("codes", "export", "a", tmp_path / "codes", url=url, status=0)
        assert (tmp_path / "codes").read_bytes() == row, "a file is exact"
        done = subprocess.run([BUILD / "couponctl", "--url", url, "--key", "k", "codes", "export", "a"], stdout=subprocess.PIPE, cwd=ROOT)
        assert done.stdout == row, "a pipe is exact"


def test_what_is_no_utf_8_does_not_control_a_terminal_either():
    row = b"code\n\x9b31m\xc2\n" + "ä€😀".encode() * 3000 + b"\n"
    with answering(lambda path: (200, "text/csv", [row[i:i + 1001] for i in range(0, len(row), 1001)])) as url:
        text = is_harmless(on_a_terminal("codes", "export", "a", url=url))
    assert text == "code\r\n?31m?\r\n" + "ä€😀" * 3000 + "\r\n", "and a character that comes in two pieces is one"


def test_top_still_clears_the_screen():
    def answers(path):
        return (200, "text/plain", METRICS.encode()) if path.endswith("metrics") else json_of({"items": []})

    with answering(answers) as url:
        master, slave = pty.openpty()
        process = subprocess.Popen([BUILD / "couponctl", "--url", url, "--key", "k", "top", "--interval", "1"], stdout=slave, cwd=ROOT)
        os.close(slave)
        try:
            assert select.select([master], [], [], 60)[0]
            assert os.read(master, 65536).startswith(b"\x1b[H\x1b[J")
        finally:
            process.kill()
            process.wait()
            os.close(master)
