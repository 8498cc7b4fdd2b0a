"""Codes: lists of them imported row for row, once, however often that is interrupted or repeated; and generated ones."""
import contextlib
import csv
import datetime
import hashlib
import json
import os
import pty
import random
import re
import signal
import subprocess
import time

import pytest

from effort import effort
from halves import asleep
from stack import ROOT, Failing, wait_until
from test_codes import export
from test_coupons import walk
from test_jobs import kill_runners

ALPHABET = "23456789BCDFGHJKMNPQRSTVWXZ"
COUNTS = ("rows", "imported", "duplicates_in_file", "duplicates_in_coupon", "invalid")
TEXT = {"Content-Type": "text/plain; charset=utf-8"}
CSV = {"Content-Type": "text/csv"}


def some_codes(count, seed):
    return [f"{number:012X}" for number in random.Random(seed).sample(range(1 << 48), count)]


def list_of(codes):
    return "".join(f"{code}\n" for code in codes).encode()


def slowly(stack):
    """For as long as a `with` lasts, each step of a job takes a while, so that it is met in its midst."""
    return Failing(stack, "ledger", "insert", blockConnection=True, blockTimeMS=200)


@contextlib.contextmanager
def asleep_in_its_midst(stack, ops, at):
    """The job's runner, once it has done something of it."""
    wait_until("some progress", lambda: ops.get(at).ok()["done"] > 0)
    with asleep(stack, ["runner"]):
        yield


@pytest.fixture
def coupon(stack):
    """A function that makes a coupon for imported codes."""
    return lambda total=None, **codes: stack.imported(cap={"total": total}, codes=codes)


def send(stack, coupon, text, headers=TEXT, **how):
    return stack.client("ops").post(f"/coupons/{coupon}/codes", text, headers=headers, **how).expect(202)


def counts_of(job):
    assert set(job["result"]) == {"digest", "bad_rows", *COUNTS}, job
    return tuple(job["result"][name] for name in COUNTS)


def assert_has(stack, coupon, codes):
    assert set(export(stack.client("ops"), coupon)) == set(codes)
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"]) == (len(codes), len(codes)), counts
    stack.verify(coupon)


def bad_rows(stack, job, kind=None):
    query = f"?kind={kind}" if kind else ""
    reply = stack.client("ops").get(f"/coupons/-/jobs/{job['id']}/rows{query}").expect(200)
    return [(int(row["line"]), row["kind"], row["reason"]) for row in reply.rows()]


def bad_texts(client, job):
    return [row["text"] for row in client.get(f"/coupons/-/jobs/{job['id']}/rows").expect(200).rows()]


# ---- rows ----

def test_each_row_is_told_what_became_of_it(stack, coupon):
    name = coupon()
    first = stack.job(send(stack, name, list_of(["OLD-1", "OLD-2"])))
    assert counts_of(first) == (2, 2, 0, 0, 0), first
    text = b"\xef\xbb\xbfNEW-1\r\n\r\nOLD-1\r\n  NEW-2\t\r\nabc\r\nNEW-1\r\nGr\xc3\xbc\xc3\x9fe\r\n" + b"x" * 65 + b"\r\nOLD-1\r\nNEW 3"
    reply = send(stack, name, text)
    assert reply.header("Location").startswith("/coupons/-/jobs/") and reply.json()["kind"] == "import", reply
    job = stack.job(reply)
    assert counts_of(job) == (9, 3, 1, 2, 3) and job["result"]["digest"] == "sha256:" + hashlib.sha256(text).hexdigest(), job
    assert (job["done"], job["total"]) == (10, 10), job
    said = bad_rows(stack, job)
    assert said == [(3, "duplicate", "the coupon has this code"), (5, "invalid", "too short"),
                    (6, "duplicate", "an earlier row has this code"), (7, "invalid", "not printable ASCII"),
                    (8, "invalid", "too long"), (9, "duplicate", "the coupon has this code")], said
    assert [(r["line"], r["kind"], r["reason"]) for r in job["result"]["bad_rows"]] == said
    assert bad_rows(stack, job, "invalid") == [r for r in said if r[1] == "invalid"]
    assert bad_rows(stack, job, "duplicate") == [r for r in said if r[1] == "duplicate"]
    assert_has(stack, name, ["OLD-1", "OLD-2", "NEW-1", "NEW-2", "NEW 3"])


def test_csv_is_read_by_its_header(stack, coupon):
    name = coupon()
    text = b'\xef\xbb\xbfowner, Code ,note\r\n"Doe, John",AAAA-1,"says ""hi"""\r\nx,"BBBB,1"\r\n,,\r\ny,"CCCC\r\nz\r\nw, DDDD ,\r\n'
    job = stack.job(send(stack, name, text, CSV))
    assert counts_of(job) == (6, 3, 0, 0, 3), job
    assert bad_rows(stack, job) == [(4, "invalid", "no code"), (5, "invalid", "unclosed quote"),
                                    (6, "invalid", "too few columns")]
    assert_has(stack, name, ["AAAA-1", "BBBB,1", "DDDD"])
    refused = stack.client("ops").post(f"/coupons/{name}/codes", b"Gutschein,Nr\nAAAA,1\n", headers=CSV).problem("bad_request")
    assert "no column named code" in refused["detail"] and "Gutschein, Nr" in refused["detail"], refused
    job = stack.job(stack.client("ops").post(f"/coupons/{name}/codes?column=gutschein", b"Nr,Gutschein\n1,EEEE\n", headers=CSV).expect(202))
    assert counts_of(job) == (1, 1, 0, 0, 0), job


HEADED = "Nr{0}Code{0}Note\r\n1{0}SHEET-1{0}\r\n2{0}\"SHEET-2\"{0}\"a{0}b\"\r\n3{0}8.71235E+12{0}\u00fc\r\n"
SHEETS = {"semicolons": HEADED.format(";").encode(), "tabs": HEADED.format("\t").encode(), "bars": HEADED.format("|").encode(),
          "sep=": ("sep=;\r\n" + HEADED.format(";")).encode(), "CR": HEADED.format(",").replace("\r\n", "\r").encode(),
          "UTF-8 with a mark": HEADED.format(";").encode("utf-8-sig"), "UTF-16 LE": b"\xff\xfe" + HEADED.format("\t").encode("utf-16-le"),
          "UTF-16 BE": b"\xfe\xff" + ("sep=;\n" + HEADED.format(";")).encode("utf-16-be"), "latin-1": HEADED.format(";").encode("latin-1")}


@pytest.mark.parametrize("kind", SHEETS)
def test_a_list_is_read_as_a_spreadsheet_writes_it(stack, coupon, kind):
    name = coupon()
    job = stack.job(send(stack, name, SHEETS[kind], CSV))
    assert counts_of(job) == (3, 2, 0, 0, 1), job
    line = 5 if b"s\0e\0p" in SHEETS[kind] or SHEETS[kind].startswith((b"sep=", b"\xfe\xff")) else 4
    assert bad_rows(stack, job) == [(line, "invalid", "a number in scientific notation")]
    [text] = bad_texts(stack.client("ops"), job)
    assert "8.71235E+12" in text and text.startswith("3") and (kind == "latin-1" or text.endswith("\u00fc")), text
    assert_has(stack, name, ["SHEET-1", "SHEET-2"])


def test_a_field_in_quotes_may_have_line_ends(stack, coupon):
    """They are the row's; a quote that is never closed is one bad row, and lines are counted as in the file."""
    name = coupon()
    text = ('code,note\r\nAAAA-1,"two\r\nlines ""more"""\r\n"BBBB-2\r\n","a\r\n\r\nb"\r\n"CC\r\nCC",x\r\nab,y\r\nDDDD-4,"open\r\n'
            'EEEE-5,"x"\r\n"FFFF\r\nGGGG-7,z\r\n')
    job = stack.job(send(stack, name, text.encode(), CSV))
    assert bad_rows(stack, job) == [(8, "invalid", "not printable ASCII"), (10, "invalid", "too short"), (13, "invalid", "unclosed quote")], job
    assert counts_of(job) == (8, 5, 0, 0, 3), job
    assert_has(stack, name, ["AAAA-1", "BBBB-2", "DDDD-4", "EEEE-5", "GGGG-7"])


@pytest.mark.parametrize("charset", ["", "; charset=utf-16", "; charset=\"UTF-16LE\""])
def test_a_plain_list_in_utf_16_with_cr_line_ends_is_read(stack, coupon, charset):
    name = coupon()
    headers = {"Content-Type": "text/plain" + charset}
    assert counts_of(stack.job(send(stack, name, b"\xff\xfe" + "PLAIN-1\rPLAIN-2\r".encode("utf-16-le"), headers))) == (2, 2, 0, 0, 0)
    assert_has(stack, name, ["PLAIN-1", "PLAIN-2"])


@pytest.mark.parametrize("text, lines", [(b"Code\nAAAA-1\n", [1]), (b"\nCoupon codes\nAAAA-1\n", [2]), (b"AAAA-1\nBBBB;1\n\"CCCC\"\n", [2, 3]),
                                         (b"AAAA-1\tx\r\nBBBB\r\n", [1]), (b"AAAA-1,\n" * 500, list(range(1, 21)))])
def test_a_plain_list_that_looks_like_another_is_refused_before_anything_is_made(stack, ops, coupon, text, lines):
    name = coupon()
    refused = ops.post(f"/coupons/{name}/codes", text, headers=TEXT).problem("suspicious_rows")
    assert [row["line"] for row in refused["rows"]] == lines, refused
    assert all(row["text"] in text.decode() and row["reason"] for row in refused["rows"])
    assert ops.get(f"/coupons/-/jobs?coupon={name}").ok()["items"] == [] and stack.counts(name)["slots"] == 0
    assert stack.job(ops.post(f"/coupons/{name}/codes?accept=all", text, headers=TEXT).expect(202))["result"]["rows"] > 0
    ops.post(f"/coupons/{name}/codes?accept=some", text, headers=TEXT).problem("bad_request")


def test_a_dry_run_says_what_would_happen_and_makes_nothing(stack, ops, coupon):
    one, name = coupon(unique="service"), coupon(total=6, unique="service", match="loose")
    stack.job(send(stack, one, list_of(["DRY-OTHER"])))
    stack.job(send(stack, name, list_of(["DRY-OLD"])))
    codes = some_codes(effort(24_000, 40_000), seed=20)  # two chunks
    text = list_of(["dryold", "DRYOTHER", "DRY-1", "dry 1", "abc"] + codes + codes[:3])
    before = stack.counts(name)
    said = ops.post(f"/coupons/{name}/codes?dry_run=true", text, headers=TEXT).ok(200)
    assert stack.counts(name) | {"as_of": 0} == before | {"as_of": 0}
    assert len(ops.get(f"/coupons/-/jobs?coupon={name}").ok()["items"]) == 1
    assert said["imported"] == 5
    job = stack.job(send(stack, name, text), "failed")
    assert said == job["result"], (said, job["result"])
    assert said["bad_rows"][1]["reason"] == f"coupon {one} has this code"
    ops.post(f"/coupons/{name}/codes?dry_run=true", b"Code\nAAAA\n", headers=TEXT).problem("suspicious_rows")
    ops.post(f"/coupons/{name}/codes?dry_run=true", b"a;b\nAAAA\n", headers=CSV).problem("bad_request")
    ops.post(f"/coupons/{name}/codes?dry_run=true", b"A" * 1023 + b"\n" + b"0123456789ABCDE\n" * (1 << 20), headers=TEXT).problem("too_large")


def test_the_texts_of_bad_rows_are_for_ops_alone(stack, ops, reporting, coupon):
    name = coupon()
    job = stack.job(send(stack, name, b'code,x\nabc,"1,2"\nGr\xc3\xbc\xff\x01e,3\n', CSV))
    assert bad_texts(ops, job) == ['abc,"1,2"', "Gr\u00fc??e,3"]
    assert bad_texts(reporting, job) == ["", ""]
    assert "abc" not in json.dumps(job)


def test_a_loose_match_finds_doubles_however_they_are_written(stack, coupon):
    name = coupon(match="loose")
    job = stack.job(send(stack, name, list_of(["ab-cd 1", "ABCD1", "A B C D - 1", "----", "abcd2"])))
    assert counts_of(job) == (5, 2, 2, 0, 1), job
    assert_has(stack, name, ["ab-cd 1", "abcd2"])
    assert counts_of(stack.job(send(stack, name, list_of(["ABCD-2"])))) == (1, 0, 0, 1, 0)


def test_a_list_sent_again_changes_nothing(stack, coupon):
    name, codes = coupon(), some_codes(20_000, seed=1)
    text = list_of(codes + codes[:50])
    jobs = [stack.job(send(stack, name, text)) for _ in range(3)]
    assert [counts_of(job) for job in jobs] == [(20_050, 20_000, 50, 0, 0)] + [(20_050, 0, 0, 20_050, 0)] * 2, jobs
    assert len({job["result"]["digest"] for job in jobs}) == 1, jobs
    assert len(jobs[1]["result"]["bad_rows"]) == 100 and len(bad_rows(stack, jobs[1])) == 20_050
    assert_has(stack, name, codes)


def test_what_passes_the_cap_is_told_and_the_rest_stays(stack, coupon):
    name, codes = coupon(total=12_000), some_codes(30_000, seed=2)
    text = list_of(codes + codes[:10] + ["bad"])
    job = stack.job(send(stack, name, text), "failed")
    assert job["error"] == "cap_exceeded" and "18000" in job["error_detail"], job
    assert counts_of(job)[:2] == (30_011, 12_000) and counts_of(job)[2:] == (10, 0, 1), job
    assert_has(stack, name, codes[:12_000])
    stack.patch(name, {"cap": {"total": 40_000}})
    job = stack.job(send(stack, name, text))
    assert counts_of(job) == (30_011, 18_000, 0, 12_010, 1), job
    assert_has(stack, name, codes)


def test_a_code_of_one_coupon_is_a_duplicate_in_another_where_codes_are_the_services_own(stack, coupon):
    one, two = coupon(unique="service"), coupon(unique="service")
    stack.job(send(stack, one, list_of(["SHARED-1", "OWN-1"])))
    job = stack.job(send(stack, two, list_of(["shared1", "OWN-2", "OWN-1"])))
    assert counts_of(job) == (3, 1, 0, 2, 0), job
    assert [r[2] for r in bad_rows(stack, job)] == [f"coupon {one} has this code"] * 2
    assert_has(stack, two, ["OWN-2"])
    assert_has(stack, one, ["SHARED-1", "OWN-1"])


def test_a_deleted_coupon_that_was_never_used_gives_its_codes_back(stack, ops, coupon):
    """Codes that differ only in dashes among them; and those of a job that still runs."""
    one, two = coupon(unique="service"), coupon(unique="service")
    twins = ["BACK-1", "BACK1", "BA-CK1", "BACK-2"]
    assert counts_of(stack.job(send(stack, one, list_of(twins)))) == (4, 4, 0, 0, 0)
    assert counts_of(stack.job(send(stack, two, list_of(twins)))) == (4, 0, 0, 4, 0)
    with slowly(stack):
        running = send(stack, one, list_of(codes := some_codes(effort(100_000, 200_000), seed=21)))
        with asleep_in_its_midst(stack, ops, running.header("Location")):
            ops.delete(f"/coupons/{one}").expect(204)
    assert counts_of(stack.job(send(stack, two, list_of(twins)))) == (4, 4, 0, 0, 0)
    stack.job(running, "failed")
    assert counts_of(stack.job(send(stack, two, list_of(codes[:30_000])))) == (30_000, 30_000, 0, 0, 0)
    assert_has(stack, two, twins + codes[:30_000])


# ---- interrupted, repeated, side by side ----

@pytest.mark.full
def test_a_list_of_twins_is_imported_although_its_runner_is_killed(stack, ops, coupon):
    """Each pair differs only in its dashes and has one entry in the directory of the service."""
    name = coupon(unique="service")
    codes = [twin for code in some_codes(30_000, seed=22) for twin in (code, f"{code[:4]}-{code[4:]}")]
    at = send(stack, name, list_of(codes)).header("Location")
    for _ in range(3):
        target = ops.get(at).ok()["done"]
        wait_until("progress", lambda: (job := ops.get(at).ok())["done"] > target or job["state"] == "done")
        stack.kill("runner", stopped=True)
    assert counts_of(stack.job_at(at)) == (60_000, 60_000, 0, 0, 0)
    assert_has(stack, name, codes)


def test_two_imports_of_overlapping_lists_at_once(stack, coupon):
    third = effort(12_000, 20_000)  # a list has two chunks
    name, codes = coupon(), some_codes(3 * third, seed=3)
    lists = [codes[:2 * third], codes[third:]]
    replies = [send(stack, name, list_of(one)) for one in lists]
    jobs = [stack.job(reply) for reply in replies]
    for job, one in zip(jobs, lists):
        rows, imported, in_file, in_coupon, invalid = counts_of(job)
        assert (rows, in_file, invalid) == (2 * third, 0, 0) and imported + in_coupon == len(one), job
    assert sum(job["result"]["imported"] for job in jobs) == 3 * third, jobs
    assert_has(stack, name, codes)


@pytest.mark.full
@pytest.mark.heavy
def test_an_import_whose_runner_is_killed_is_right_row_for_row(stack, ops, coupon):
    """kill -9 at random moments, and the list sent again: each row counts once, and says so."""
    chance, name = random.Random(4), coupon()
    count = effort(40_000, 100_000)
    codes = some_codes(count, seed=4)
    rows = codes + chance.choices(codes, k=3_000) + ["bad"] * 500
    chance.shuffle(rows)
    with slowly(stack):
        at = send(stack, name, list_of(rows)).header("Location")
        kill_runners(stack, [at], 6, lambda: chance.randrange(1, count // 8))
    job = stack.job_at(at)
    assert counts_of(job) == (count + 3_500, count, 3_000, 0, 500), job
    first = set()
    expected = [i for i, code in enumerate(rows, 1) if code == "bad" or code in first or first.add(code)]
    assert [line for line, _, _ in bad_rows(stack, job)] == expected
    assert_has(stack, name, codes)
    again = stack.job(send(stack, name, list_of(rows)))
    assert counts_of(again) == (count + 3_500, 0, 0, count + 3_000, 500), again
    assert_has(stack, name, codes)


@pytest.mark.full
@pytest.mark.heavy
def test_a_runner_that_sleeps_past_its_lease_imports_nothing_twice(stack, ops, coupon):
    name, codes = coupon(), some_codes(80_000, seed=5)
    at = send(stack, name, list_of(codes)).header("Location")
    wait_until("some progress", lambda: ops.get(at).ok()["done"] > 0)
    with asleep(stack, ["runner"]):
        time.sleep(3)  # longer than its lease of 2 s
    job = stack.job_at(at)
    assert counts_of(job) == (80_000, 80_000, 0, 0, 0), job
    assert_has(stack, name, codes)


def test_a_cancelled_import_says_what_it_did_and_leaves_the_coupon_free_for_others(stack, ops, coupon):
    name, codes = coupon(), some_codes(600_000, seed=6)
    with slowly(stack):
        at = send(stack, name, list_of(codes)).header("Location")
        with asleep_in_its_midst(stack, ops, at):
            ops.post(f"{at}/cancel").expect(200)
    job = stack.job_at(at, "cancelled")
    imported = job["result"]["imported"]
    assert 0 < imported < 600_000 and imported == stack.counts(name)["slots"], job
    assert_has(stack, name, codes[:imported])
    assert counts_of(stack.job(send(stack, name, list_of(codes[imported:imported + 1000]))))[1] == 1000


@pytest.mark.full
@pytest.mark.parametrize("other", [False, True], ids=["alone", "while-another-waits"])
def test_a_job_that_is_cancelled_while_it_is_put_off_gives_its_turn_back(stack, ops, coupon, other):
    """It had its turn when its runner died, and the next one put it back into the queue, having another job of this coupon."""
    name, codes = coupon(), some_codes(600_000, seed=8)
    with slowly(stack):
        at = send(stack, name, list_of(codes)).header("Location")
        with asleep_in_its_midst(stack, ops, at):
            soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=500)
            put_off = stack.database["jobs"].update_one({"_id": at.rpartition("/")[2], "state": "running"}, {
                "$set": {"state": "queued", "not_before": soon}, "$unset": {"lease": 1}})
            assert put_off.modified_count == 1
            waiting = send(stack, name, list_of(codes[-1000:])) if other else None
            ops.post(f"{at}/cancel").expect(200)
    imported = stack.job_at(at, "cancelled")["result"]["imported"]
    assert 0 < imported < 600_000
    if other:
        assert counts_of(stack.job(waiting))[1] == 1000
    assert counts_of(stack.job(send(stack, name, list_of(codes[-2000:]))))[1] == (1000 if other else 2000)
    stack.verify(name)


@pytest.mark.full
@pytest.mark.heavy
def test_a_killed_runner_generates_each_code_once(stack, ops):
    chance, count = random.Random(7), effort(50_000, 150_000)
    name = stack.coupon(cap={"total": 10**6}, codes={"source": "generated", "length": 8, "prefix": "SALE-"})
    at = ops.post(f"/coupons/{name}/slots", {"count": count}).expect(202).header("Location")
    for _ in range(3):
        target = ops.get(at).ok()["done"] + chance.randrange(1, count // 5)
        wait_until("progress", lambda: (job := ops.get(at).ok())["done"] >= target or job["state"] == "done")
        stack.kill("runner")
    job = stack.job_at(at)
    assert (job["done"], job["result"]) == (count, {"generated": count}), job
    codes = export(ops, name)
    assert len(codes) == stack.counts(name)["slots"] == count
    assert all(len(code) == 13 and code.startswith("SALE-") and set(code[5:]) <= set(ALPHABET) for code in codes)
    stack.verify(name)


def test_jobs_that_make_codes_of_one_coupon_take_turns(stack, ops):
    name, count = stack.coupon(cap={"total": 10**6}, codes={"source": "generated"}), effort(10_000, 20_000)  # in several steps
    replies = [ops.post(f"/coupons/{name}/slots", {"count": count}).expect(202) for _ in range(4)]
    for reply in replies:
        assert stack.job(reply)["done"] == count
    assert len(export(stack.client("ops"), name)) == 4 * count
    stack.verify(name)


# ---- couponctl ----

def peak_kb(pid):
    """The most memory that the process ever had."""
    with open(f"/proc/{pid}/status") as status:
        return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)


def test_couponctl_imports_a_file_and_tells_of_every_row(stack, coupon, tmp_path):
    name, path = coupon(), tmp_path / "list.txt"
    path.write_bytes(list_of(["AAAA", "BBBB", "AAAA", "x"]))
    out, err = stack.ctl_apart("codes", "import", name, path)
    assert "4 rows: 2 imported, 1 twice in the file, 0 already there, 1 invalid" in out and "sha256:" in out, out
    assert "line 3: duplicate" in err and "line 4: invalid: too short" in err, err
    said = json.loads(stack.ctl_apart("codes", "import", name, "-", "--json", "--csv", text=b"id,code\n1,CCCC\n2,BBBB\n")[0])
    assert tuple(said[name] for name in COUNTS) == (2, 1, 0, 1, 0), said
    assert_has(stack, name, ["AAAA", "BBBB", "CCCC"])


def test_couponctl_sends_lists_as_spreadsheets_write_them(stack, coupon, tmp_path):
    name, path, plain = coupon(), tmp_path / "list.csv", tmp_path / "list.txt"
    path.write_bytes("sep=;\r\nNr;Gutschein\r\n1;CTL-1\r\n2;abc\r\n".encode("utf-16"))
    err = stack.ctl_apart("codes", "import", name, path, status=1)[1]
    assert err.count("couponctl: ") == 1, f"the refusal is printed once: {err}"
    out, err = stack.ctl_apart("codes", "import", name, path, "--column", "Gutschein", "--dry-run")
    assert "2 rows: 1 imported" in out and "nothing was made" in out and "line 4: invalid: too short" in err, (out, err)
    assert stack.counts(name)["slots"] == 0
    stack.ctl_apart("codes", "import", name, path, "--column", "Gutschein")
    plain.write_text("Code\nCTL-2\n")
    out, err = stack.ctl_apart("codes", "import", name, plain, status=1)
    assert "line 1: a heading: Code" in err, (out, err)
    stack.ctl_apart("codes", "import", name, plain, "--accept-all")
    assert_has(stack, name, ["CTL-1", "Code", "CTL-2"])


def test_a_list_that_is_too_long_is_refused_before_anything_is_sent(stack, coupon, tmp_path):
    name, path = coupon(), tmp_path / "list.txt"
    with path.open("wb") as text:
        text.truncate((256 << 20) + 1)
    assert "longer than 256 MiB" in stack.ctl_apart("codes", "import", name, path, status=2)[1]


@pytest.mark.full
@pytest.mark.heavy
def test_a_list_whose_import_is_killed_and_then_run_twice_at_a_time_is_imported_once(stack, coupon, tmp_path):
    """The tool dies while the service works; two of it then begin, one of a file, one of its input."""
    name, path, codes = coupon(), tmp_path / "list.txt", some_codes(60_000, seed=10)
    path.write_bytes(list_of(codes))
    command = [str(ROOT / "scripts" / "couponctl"), "codes", "import", name]

    def begin(source, **how):
        return subprocess.Popen([*command, source], env=stack.environment, text=True,
                                stdout=subprocess.PIPE, **how)

    with slowly(stack):
        first = begin(str(path))
        wait_until("the first codes", lambda: stack.counts(name)["slots"] > 3000)
        with asleep(stack, ["runner"]):
            first.kill()
            first.communicate(timeout=60)
            assert first.returncode == -signal.SIGKILL and stack.counts(name)["slots"] < 60_000, "it ended too early"
    with path.open() as text:
        tools = [begin(str(path)), begin("-", stdin=text)]
    said = [tool.communicate(timeout=300)[0] for tool in tools]
    for tool, out in zip(tools, said):
        counted = re.search(r": (\d+) rows: (\d+) imported, 0 twice in the file, (\d+) already there, 0 invalid", out)
        rows, imported, present = map(int, counted.groups())
        assert tool.returncode == 0 and rows == 60_000 == imported + present, out
    jobs = walk(stack.client("ops"), f"/coupons/-/jobs?coupon={name}")[0]
    assert {job["state"] for job in jobs} == {"done"} and sum(job["result"]["imported"] for job in jobs) == 60_000
    assert_has(stack, name, codes)


@pytest.mark.heavy
def test_on_a_terminal_the_progress_of_an_import_is_a_bar(stack, coupon, tmp_path):
    name, path, count = coupon(), tmp_path / "list.txt", effort(30_000, 80_000)
    path.write_bytes(list_of(some_codes(count, seed=11)))
    terminal, end = pty.openpty()
    tool = subprocess.Popen([ROOT / "scripts" / "couponctl", "codes", "import", name, path], env=stack.environment,
                            stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    drawn = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while more := os.read(terminal, 4096):
            drawn += more
    os.close(terminal)
    assert tool.wait(60) == 0, drawn
    bars = re.findall(rb"\r\x1b\[K%s \[(#*)(\.*)\] +(\d+)%% (\d+)/%d lines \d+/s" % (name.encode()[:64], count), drawn)
    assert bars and all(len(full) + len(rest) == 30 for full, rest, _, _ in bars), drawn
    assert [int(done) for *_, done in bars] == sorted(int(done) for *_, done in bars), drawn
    assert drawn.endswith(b"\r\x1b[K"), "the bar is taken away at the end"


def test_couponctl_fails_where_the_import_does(stack, coupon, tmp_path):
    name, path = coupon(total=3), tmp_path / "list.txt"
    path.write_bytes(list_of(["AAAA", "BBBB", "CCCC", "DDDD"]))
    out, err = stack.ctl_apart("codes", "import", name, path, status=1)
    assert "4 rows: 3 imported" in out and "cap_exceeded" in err, (out, err)
    stack.ctl_apart("codes", "import", "never-made", path, status=1)
    stack.ctl_apart("codes", "import", name, tmp_path / "none", status=2)
    stack.ctl_apart("codes", "import", name, "-", text=b"", status=1)


def test_couponctl_exports_shows_and_retires_codes(stack, coupon, storefront, tmp_path):
    name, path = coupon(claim="present"), tmp_path / "out.csv"
    stack.job(send(stack, name, list_of(["AAAA", "BBBB", "CC CC"])))
    storefront.take(name, "u-1", code="BBBB", state="issued").expect(201)
    assert "issued" in stack.ctl_apart("codes", "show", name, "BBBB")[0]
    assert json.loads(stack.ctl_apart("codes", "show", name, "BBBB", "--json")[0])["user"] == "u-1"
    assert "retired" in stack.ctl_apart("codes", "retire", name, "CC CC")[0]
    stack.ctl_apart("codes", "show", name, "ZZZZ", status=1)
    stack.ctl_apart("codes", "export", name, path)
    rows = list(csv.DictReader(path.open()))
    assert [(r["code"], r["state"], r["user"]) for r in rows] == [("AAAA", "free", ""), ("BBBB", "issued", "u-1"), ("CC CC", "retired", "")]
    assert stack.ctl_apart("codes", "export", name)[0] == path.read_bytes().decode()
    assert path.stat().st_mode & 0o777 == 0o600
    stack.ctl_apart("codes", "export", "never-made", tmp_path / "none.csv", status=1)
    assert not (tmp_path / "none.csv").exists() and len(list(tmp_path.iterdir())) == 1
    stack.verify(name)


def test_couponctl_lists_shows_and_cancels_jobs_and_erases_users(stack, ops, storefront):
    name = stack.coupon(slots=5, cap={"total": 100})
    later = ops.post(f"/coupons/{name}/slots", {"count": 1, "not_before": "2090-01-01T00:00:00Z"}).ok(202)["id"]
    listed = stack.ctl_apart("jobs", "list", name)[0]
    assert later in listed and "queued" in listed and "done" in listed, listed
    assert json.loads(stack.ctl_apart("jobs", "show", later)[0])["state"] == "queued"
    assert json.loads(stack.ctl_apart("jobs", "cancel", later)[0])["state"] == "cancelled"
    stack.ctl_apart("jobs", "show", "none", status=1)
    storefront.take(name, "to-be-forgotten").expect(201)
    stack.ctl_apart("users", "erase", "to-be-forgotten")
    assert "to-be-forgotten" not in ops.get(f"/coupons/{name}/ledger").expect(200).body.decode()
    stack.verify(name)


@pytest.mark.heavy
@pytest.mark.timed
def test_a_list_of_any_length(stack, coupon, tmp_path, figure):
    """Time, and the memory of both ends: it does not grow with the list."""
    name, path, count = coupon(), tmp_path / "list.txt", effort(100_000, 250_000, 1_000_000)
    path.write_bytes(list_of(some_codes(count, seed=9)))
    before = time.monotonic()
    ctl_kb = 0
    with (tmp_path / "out").open("w+") as said:
        child = subprocess.Popen([ROOT / "scripts" / "couponctl", "codes", "import", name, path], env=stack.environment, stdout=said)
        while child.poll() is None:
            ctl_kb = max(ctl_kb, peak_kb(child.pid))
            time.sleep(0.05)
    took, out = time.monotonic() - before, (tmp_path / "out").read_text()
    runner_kb = peak_kb(stack.pid("runner"))
    worker_kb = max(peak_kb(stack.pid(f"worker-{i}")) for i in range(2))
    figure(f"{count:,} codes imported in {took:.1f} s ({count / took:,.0f}/s); peak memory: "
           f"couponctl {ctl_kb / 1024:.0f} MB, runner {runner_kb / 1024:.0f} MB, worker {worker_kb / 1024:.0f} MB")
    assert f"{count} rows: {count} imported, 0 twice in the file, 0 already there, 0 invalid" in out, out
    assert ctl_kb < 50 * 1024 and runner_kb < 100 * 1024 and worker_kb < 300 * 1024
    counts = stack.counts(name)  # verify goes over all coupons when the stack is stopped
    assert (counts["slots"], counts["free"]) == (count, count), counts
