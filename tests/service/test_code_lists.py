"""Lists that a job works off: codes that are retired, users who get a code; and codes found page by page."""
import json
import random
import time

import pytest

from effort import effort
from halves import asleep
from stack import Failing
from test_codes import export
from test_coupons import walk
from test_import import SHEETS, bad_rows, bad_texts, list_of, some_codes
from test_jobs import kill_runners

PLAIN = {"Content-Type": "text/plain"}
CSV = {"Content-Type": "text/csv"}
RETIRED = ("rows", "retired", "already", "spent", "held", "unknown")
ISSUED = ("rows", "issued", "already", "refused")


@pytest.fixture
def coupon(stack):
    """A function that makes a coupon with these imported codes, which anybody may take."""
    return lambda listed, per_user=5, **codes: stack.imported(listed, cap={"per_user": per_user}, codes={"claim": "any", **codes})


def retire(stack, name, text, headers=PLAIN, query="", **how):
    return stack.client("ops").post(f"/coupons/{name}/codes/retire{query}", text, headers=headers, **how).expect(202)


def issue(stack, name, text, query="", **how):
    text = text if isinstance(text, bytes) else text.encode()
    return stack.client("ops").post(f"/coupons/{name}/codes/issue{query}", text, headers=CSV, **how).expect(202)


def counts_of(job, names):
    assert set(job["result"]) == {"digest", "bad_rows", *names}, job
    return tuple(job["result"][name] for name in names)


def pairs_of(client, job):
    """The rows of a list of users: {user: code}, and that it is a file for a mailing tool."""
    reply = client.get(f"/coupons/-/jobs/{job['id']}/rows").expect(200)
    assert reply.header("Content-Type").startswith("text/csv") and reply.body.startswith(b"user,code\r\n"), reply
    rows = reply.rows()
    return {row["user"]: row["code"] for row in rows}, len(rows)


# ---- retiring ----

def test_each_row_says_what_became_of_its_code(stack, ops, storefront, coupon):
    name = coupon(["FREE-1", "FREE-2", "ISSUED", "HELD", "SPENT", "GONE", "KEPT"], match="loose")
    storefront.take(name, "anna", code="ISSUED", state="issued").expect(201)
    storefront.take(name, "bob", code="HELD", state="reserved").expect(201)
    storefront.take(name, "carl", code="SPENT").expect(201)
    ops.post(f"/coupons/{name}/codes/GONE/retire").expect(200)
    job = stack.job(retire(stack, name, b"FREE-1\nfree 2\r\n\nISSUED\nHELD\nSPENT\nGONE\nNEVER\nFREE1\nGr\xc3\xbc\xc3\x9fe\n----\nabc\n"))
    assert job["kind"] == "retire_codes" and (job["done"], job["total"]) == (12, 12), job
    assert counts_of(job, RETIRED) == (11, 3, 2, 1, 1, 4), job
    said = bad_rows(stack, job)
    assert said == [(5, "held", "it is held for a checkout"), (6, "spent", "it is redeemed"), (7, "already", "it was retired before"),
                    (8, "unknown", "the coupon does not have this code"), (9, "already", "an earlier row has this code"),
                    (10, "unknown", "not printable ASCII"), (11, "unknown", "only spaces and dashes"), (12, "unknown", "too short")], said
    assert [(r["line"], r["kind"], r["reason"]) for r in job["result"]["bad_rows"]] == said
    assert bad_rows(stack, job, "held") == said[:1] and bad_texts(ops, job)[:3] == ["HELD", "SPENT", "GONE"]
    assert {row["code"]: row["state"] for row in export(stack.client("ops"), name).values()} == {
        "FREE-1": "retired", "FREE-2": "retired", "ISSUED": "retired", "HELD": "reserved", "SPENT": "redeemed", "GONE": "retired", "KEPT": "free"}
    storefront.take(name, "anna", code="ISSUED").problem("code_not_found")
    again = stack.job(retire(stack, name, b"FREE-1\nFREE-2\nISSUED\n"))
    assert counts_of(again, RETIRED) == (3, 0, 3, 0, 0, 0), again
    stack.verify(name)


@pytest.mark.parametrize("kind", ["semicolons", "tabs", "sep=", "CR", "UTF-16 LE", "UTF-16 BE", "latin-1"])
def test_a_list_to_retire_is_read_as_a_spreadsheet_writes_it(stack, coupon, kind):
    name = coupon(["SHEET-1", "SHEET-2", "SHEET-3"])
    job = stack.job(retire(stack, name, SHEETS[kind], CSV))
    assert counts_of(job, RETIRED) == (3, 2, 0, 0, 0, 1), job
    assert [row["code"] for row in export(stack.client("ops"), name).values() if row["state"] == "free"] == ["SHEET-3"]


def test_a_wrong_list_retires_nothing(stack, ops, storefront, reporting, coupon):
    name = coupon(["AAAA-1", "BBBB-1"])
    path = f"/coupons/{name}/codes/retire"
    assert [r["line"] for r in ops.post(path, b"Code\nAAAA-1\n", headers=PLAIN).problem("suspicious_rows")["rows"]] == [1]
    assert "Gutschein, Nr" in ops.post(path, b"Gutschein;Nr\nAAAA-1;1\n", headers=CSV).problem("bad_request")["detail"]
    assert "dry_run" in ops.post(path + "?dry_run=true", b"AAAA-1\n", headers=PLAIN).problem("bad_request")["detail"]
    ops.post(path, b"\n\n", headers=PLAIN).problem("bad_request")
    ops.post(path, {"codes": ["AAAA-1"]}).problem("unsupported_media_type")
    ops.post("/coupons/never-made/codes/retire", b"AAAA-1\n", headers=PLAIN).problem("coupon_not_found")
    for source in ("none", "generated"):
        other = stack.coupon(cap={"total": 5}, codes={"source": source})
        reply = ops.post(f"/coupons/{other}/codes/retire", b"AAAA-1\n", headers=PLAIN)
        if source == "none":
            assert "codes.source" in reply.problem("bad_request")["detail"]
        else:
            assert counts_of(stack.job(reply.expect(202)), RETIRED) == (1, 0, 0, 0, 0, 1)
    for client in (storefront, reporting):
        client.post(path, b"AAAA-1\n", headers=PLAIN).problem("forbidden")
    assert {row["state"] for row in export(stack.client("ops"), name).values()} == {"free"}
    job = stack.job(retire(stack, name, b"Gutschein;Nr\nAAAA-1;1\n", CSV, "?column=gutschein"))
    assert counts_of(job, RETIRED) == (1, 1, 0, 0, 0, 0), job
    key = "leak-1"
    first = retire(stack, name, b"BBBB-1\n", idempotency_key=key).json()["id"]
    repeated = retire(stack, name, b"BBBB-1\n", idempotency_key=key)
    assert repeated.json()["id"] == first and repeated.header("Idempotent-Replayed") == "true"
    ops.post(path, b"AAAA-1\n", headers=PLAIN, idempotency_key=key).problem("idempotency_key_reused")


def test_leaked_codes_among_many_are_retired_many_at_a_time(stack, coupon, figure):
    """And a code of these that somebody takes meanwhile is retired, or theirs, never both."""
    many, leaked_count = effort(20_000, 100_000), effort(1_000, 5_000)
    codes = some_codes(many, seed=31)
    name = coupon(codes)
    leaked = random.Random(32).sample(codes, leaked_count)
    started = time.monotonic()
    at = retire(stack, name, list_of(leaked)).header("Location")
    taken = [code for i, code in enumerate(leaked[::50]) if stack.client("storefront").take(name, f"u-{i}", code=code).status == 201]
    job = stack.job_at(at)
    figure(f"{leaked_count} leaked codes of {many}: retired in {time.monotonic() - started:.1f} s")
    assert counts_of(job, RETIRED) == (leaked_count, leaked_count - len(taken), 0, len(taken), 0, 0), (job, len(taken))
    states = {row["code"]: row["state"] for row in export(stack.client("ops"), name).values()}
    assert {code for code, state in states.items() if state == "retired"} == set(leaked) - set(taken)
    assert stack.database.ledger.count_documents({"_id.c": name, "e.k": "retire"}) <= leaked_count / 32, "hardly more than one at a time"
    stack.verify(name)


def test_a_list_whose_runner_is_killed_again_and_again_is_retired_once(stack, ops, coupon):
    """What it had retired itself is "retired" in the end, not "already"."""
    codes = some_codes(effort(6_000, 20_000), seed=33)
    name, chance = coupon(codes), random.Random(34)
    before = codes[:100]
    assert counts_of(stack.job(retire(stack, name, list_of(before))), RETIRED)[1] == 100
    rows = codes[:-500] + codes[100:200] + ["no-such-code"] * 10
    chance.shuffle(rows)
    with Failing(stack, "ledger", "insert", blockConnection=True, blockTimeMS=500):  # so that it is killed in its midst
        at = retire(stack, name, list_of(rows)).header("Location")
        kill_runners(stack, [at], 4, lambda: 1, lambda: ops.get(f"/coupons/{name}/slots?limit=1").ok()["slots"]["retired"])
    job = stack.job_at(at)
    count = len(codes) - 500
    assert counts_of(job, RETIRED) == (count + 110, count - 100, 200, 0, 0, 10), job
    assert {row["code"] for row in export(stack.client("ops"), name).values() if row["state"] == "free"} == set(codes[-500:])
    lines = {line: (kind, reason) for line, kind, reason in bad_rows(stack, job)}
    seen = set()
    for line, code in enumerate(rows, 1):
        kind = "unknown" if code == "no-such-code" else "already" if code in seen or code in before else None
        assert lines.get(line, (None,))[0] == kind, (line, code, lines.get(line))
        seen.add(code)
    stack.verify(name)


# ---- issuing ----

def test_each_user_gets_a_code_and_a_repeat_the_same(stack, ops, storefront, coupon):
    name = coupon(some_codes(20, seed=35), per_user=2)
    mine = storefront.take(name, "has-one", state="issued").ok(201)["code"]
    spent = storefront.take(name, "has-spent").ok(201)["code"]
    text = ("\ufeffName;User;Mail\r\nAnna;anna@x.de;a\r\n\"Doe; Jane\";\"u;2\";b\r\n\r\nAnna again;anna@x.de;a\r\nX;has-one;\r\nY;has-spent;\r\n"
            "Z;;\r\nNr;8.71235E+12;\r\n\u00dcnal;\u00fcnal;\r\n")
    reply = issue(stack, name, text, idempotency_key="mailing-1")
    job = stack.job(reply)
    assert job["kind"] == "issue_codes" and counts_of(job, ISSUED) == (8, 3, 3, 2), job
    refused = [(8, "refused", "no user"), (9, "refused", "a number in scientific notation")]
    assert [(r["line"], r["kind"], r["reason"]) for r in job["result"]["bad_rows"]] == refused == bad_rows(stack, job, "refused")
    pairs, rows = pairs_of(ops, job)
    assert list(pairs) == ["anna@x.de", "u;2", "has-one", "has-spent", "\u00fcnal"] and rows == 6, pairs
    assert (pairs["has-one"], pairs["has-spent"]) == (mine, spent) and len(set(pairs.values())) == 5
    for user, code in pairs.items():
        held = ops.get(f"/coupons/{name}/codes/{code}").ok()
        assert (held["user"], held["state"]) == (user, "redeemed" if user == "has-spent" else "issued")
    assert issue(stack, name, text, idempotency_key="mailing-1").json()["id"] == job["id"]
    storefront.take(name, "anna@x.de", code=pairs["anna@x.de"]).ok()
    again = stack.job(issue(stack, name, text))
    assert counts_of(again, ISSUED) == (8, 0, 6, 2) and pairs_of(ops, again)[0] == pairs, again
    assert stack.counts(name)["taken_total"] == 5
    stack.verify(name)


def test_nothing_of_a_list_is_stored_but_who_waits_and_an_erasure_finds_them(stack, ops, storefront, coupon):
    """The other columns never are; names go with their part of the list; a user who is erased while it waits gets no code."""
    name = coupon(some_codes(10, seed=36))
    with asleep(stack, ["runner"]):
        at = issue(stack, name, "user,mail\nstays,secret-mail-1\nto-be-erased,secret-mail-2\nto-be-erased-not,secret-mail-3\n").header("Location")
        upload = stack.database.jobs.find_one({"_id": at.rsplit("/", 1)[1]})["upload"]
        [part] = stack.database.parts.find({"_id.u": upload})
        assert part["names"] is True and part["text"] == b"\nstays\nto-be-erased\nto-be-erased-not\n", part
        ops.delete("/coupons/-/users/to-be-erased").expect(204)
        [part] = stack.database.parts.find({"_id.u": upload})
        assert b"to-be-erased\n" not in part["text"] and b"stays\n" in part["text"], part
    job = stack.job_at(at)
    assert counts_of(job, ISSUED) == (3, 2, 0, 1), job
    assert [(r["line"], r["reason"]) for r in job["result"]["bad_rows"]] == [(3, "the user was erased")]
    assert set(pairs_of(ops, job)[0]) == {"stays", "to-be-erased-not"}
    [part] = stack.database.parts.find({"_id.u": upload})
    assert "text" not in part and "names" not in part and "stays" not in str(part) and "stays" not in json.dumps(job), part
    ops.delete("/coupons/-/users/stays").expect(204)
    assert set(pairs_of(ops, job)[0]) == {"to-be-erased-not"}
    stack.verify(name)


def test_users_for_whom_nothing_is_left_get_none_and_the_job_says_so(stack, ops, storefront, reporting, coupon):
    name = coupon(["ONE-1", "TWO-2"], claim="present")
    assert storefront.take(name, "anna", state="issued").problem("code_required")
    job = stack.job(issue(stack, name, "user\n" + "".join(f"u-{i}\n" for i in range(5))), "failed")
    assert (job["error"], counts_of(job, ISSUED)) == ("sold_out", (5, 2, 0, 3)) and job["error_detail"].startswith("3 rows got no code."), job
    assert pairs_of(ops, job)[0] == {"u-0": "ONE-1", "u-1": "TWO-2"}
    reporting.get(f"/coupons/-/jobs/{job['id']}/rows").problem("forbidden")
    assert [r["reason"] for r in job["result"]["bad_rows"]] == ["sold_out"] * 3
    stack.import_codes(name, ["THREE-3"])
    job = stack.job(issue(stack, name, "user\nu-1\nu-2\n"))
    assert pairs_of(ops, job)[0] == {"u-1": "TWO-2", "u-2": "THREE-3"}, job
    stack.patch(name, {"state": "paused"})
    job = stack.job(issue(stack, name, "user\nu-9\n"), "failed")
    assert job["error"] == "coupon_not_active", job
    path = f"/coupons/{name}/codes/issue"
    ops.post(path, b"u-1\n", headers=PLAIN).problem("unsupported_media_type")
    assert "no column named user" in ops.post(path, b"mail\nu-1\n", headers=CSV).problem("bad_request")["detail"]
    plain = stack.coupon(slots=5)
    assert "codes.source" in ops.post(f"/coupons/{plain}/codes/issue", b"user\nu\n", headers=CSV).problem("bad_request")["detail"]


def test_a_list_whose_runner_is_killed_again_and_again_gives_each_user_one_code(stack, ops, coupon):
    count = effort(6_000, 20_000)
    name = coupon(some_codes(count + 100, seed=37))
    users = [f"user-{i}" for i in range(count)]
    rows = users + users[:200]
    with Failing(stack, "ledger", "insert", blockConnection=True, blockTimeMS=500):  # so that it is killed in its midst
        at = issue(stack, name, "user\n" + "".join(f"{user}\n" for user in rows)).header("Location")
        kill_runners(stack, [at], 4, lambda: 1, lambda: stack.counts(name)["issued"])
        ops.get(f"{at}/rows").problem("invalid_transition")
    job = stack.job_at(at)
    assert counts_of(job, ISSUED) == (count + 200, count, 200, 0), job
    pairs, said = pairs_of(ops, job)
    assert said == count + 200 and list(pairs) == users and len(set(pairs.values())) == count
    assert stack.counts(name)["issued"] == count == stack.counts(name)["taken_total"]
    stack.verify(name)


# ---- finding ----

JSON = {"Accept": "application/json"}


def test_codes_are_found_page_by_page(stack, ops, storefront, reporting, coupon):
    codes = [f"SUMMER-{i:04}" for i in range(150)] + [f"WINTER-{i:04}" for i in range(50)]
    name = coupon(codes, match="loose")
    storefront.take(name, "anna", code="SUMMER-0007", state="issued").expect(201)
    storefront.take(name, "bob", code="WINTER-0003").expect(201)
    ops.post(f"/coupons/{name}/codes/SUMMER-0009/retire").expect(200)
    path = f"/coupons/{name}/codes"
    items, pages = walk(ops, f"{path}?limit=64", headers=JSON)
    assert [item["code"] for item in items] == codes and pages >= 4
    assert set(items[0]) == {"code", "slot", "state", "user", "at"} and (items[0]["state"], items[0]["user"], items[0]["at"]) == ("free", None, None)
    assert [(i["code"], i["user"]) for i in walk(ops, f"{path}?state=issued", headers=JSON)[0]] == [("SUMMER-0007", "anna")]
    assert [i["code"] for i in walk(ops, f"{path}?state=retired", headers=JSON)[0]] == ["SUMMER-0009"]
    assert [i["code"] for i in walk(ops, f"{path}?prefix=winter%200&limit=7", headers=JSON)[0]] == codes[150:]
    assert [i["code"] for i in walk(ops, f"{path}?prefix=WINTER&state=redeemed", headers=JSON)[0]] == ["WINTER-0003"]
    assert walk(ops, f"{path}?prefix=nothing", headers=JSON)[0] == walk(ops, f"{path}?prefix=%C3%BC", headers=JSON)[0] == []
    assert len(walk(ops, f"{path}?prefix=-", headers=JSON)[0]) == 200
    assert [row["code"] for row in ops.get(f"{path}?prefix=winter&state=free").expect(200).rows()] == [c for c in codes[150:] if c != "WINTER-0003"]
    ops.get(f"{path}?state=gone", headers=JSON).problem("bad_request")
    ops.get(f"{path}?cursor=AAAA", headers=JSON).problem("bad_cursor")
    first = ops.get(f"{path}?limit=5", headers=JSON).ok()["next"]
    ops.get(f"{path}?limit=5&state=free&cursor={first}", headers=JSON).problem("bad_cursor")
    for client in (storefront, reporting):
        client.get(path, headers=JSON).problem("forbidden")
    for accept, kind in ((None, "text/csv"), ("*/*", "text/csv"), ("text/csv, application/json", "text/csv"), ("application/json, */*;q=0.1", "application/json")):
        assert ops.get(path, headers={"Accept": accept} if accept else {}).header("Content-Type").startswith(kind), accept
    ops.get(path, headers={"Accept": "text/html"}).problem("not_acceptable")
