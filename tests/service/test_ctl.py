"""couponctl: its commands, their exit codes, and that verify finds what is wrong."""
import configparser
import datetime
import json
import re
import subprocess

import pytest

from crowd import issued_before
from lanes import users_of
from stack import BUILD, ROOT, wait_until
from test_reconcile import BUCKET, Damaged, member, settled, view


def commands(stack):
    """As --help lists them: "coupon create", ..., "report"."""
    return re.findall(r"^  ([a-z]+(?:-[a-z]+)?(?: [a-z]+)?)(?= |$)", stack.ctl("--help").split("Commands")[1].split("Exit codes")[0], re.M)


def test_the_programs_tell_their_version(stack):
    newest = re.search(r"^(\d+\.\d+)", (ROOT / "conf" / "CHANGELOG").read_text(), re.M)[1]
    version = stack.client().get("/coupons/-/openapi.json").ok()["info"]["version"]
    assert re.fullmatch(rf"{newest}\.\d+", version), (newest, version)
    for arguments in (["--version"], ["-V"], ["coupon", "list", "--version"]):
        assert stack.ctl(*arguments) == f"couponctl {version}\n"
    for option in ("--version", "-V"):
        assert subprocess.run([BUILD / "coupond", option], text=True, capture_output=True, check=True).stdout == f"coupond {version}\n"


# ---- completion ----

COMPLETE = r"""source "$1" && shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_couponctl
printf '%s\n' "${COMPREPLY[@]}"
"""


def completed(*words):
    """What bash offers for the last of these words, the others being there."""
    done = subprocess.run(["bash", "-u", "-c", COMPLETE, "bash", ROOT / "conf/completion/couponctl", BUILD / "couponctl", *words],
                          text=True, capture_output=True, check=True)
    assert not done.stderr, done.stderr
    return sorted(done.stdout.split())


def test_completion_offers_the_commands_that_there_are(stack):
    listed = [command.split() for command in commands(stack)]
    assert completed("") == sorted({words[0] for words in listed})
    assert completed("c") == ["codes", "config", "coupon"]
    for group in {words[0] for words in listed if len(words) > 1}:
        assert completed(group, "") == sorted(words[1] for words in listed if words[0] == group)
    assert completed("--url", "http://x", "-c", "slots", "--json", "slots", "r") == ["retire"], "after options and their values"
    assert completed("--key", "=", "coupon", "slots", "") == ["generate", "retire"]
    assert completed("fly", "") == completed("coupon", "fly", "") == completed("slots", "retire", "") == [], "names of files"


@pytest.mark.full
def test_completion_offers_the_options_that_a_command_has(stack):
    for command in ["", *commands(stack)]:
        said = subprocess.run([BUILD / "couponctl", *command.split(), "--help"], text=True, capture_output=True, check=True).stdout
        options = set(re.findall(r"^ +(?:-\S, )?(--[a-z-]+)", said, re.M))
        assert {"--json", "--help", "--url"} <= options, said
        assert completed(*command.split(), "-") == sorted(options), command
    assert completed("jobs", "--js") == ["--json"]
    assert completed("slots", "generate", "x", "--unt") == ["--until"]
    assert completed("keys", "create", "--label", "--r") == [], "the label's text"
    assert completed("keys", "create", "--label", "x", "--r") == ["--rate", "--role", "--run-dir"]


@pytest.mark.parametrize("arguments", [[], ["fly"], ["coupon"], ["coupon", "fly"], ["coupon", "show"], ["slots", "generate", "x"],
                                       ["slots", "generate", "x", "many"], ["keys", "create"], ["keys", "create", "--role", "king"],
                                       ["keys", "create", "ops", "--role", "storefront"],
                                       ["report"], ["verify", "--fly"], ["coupon", "show", "a", "b"]], ids=" ".join)
def test_a_command_that_is_none_says_so_and_fails(stack, arguments):
    done = stack.couponctl(*arguments)
    assert done.returncode not in (0, 1), f"exit {done.returncode}\n{done.stdout}"
    assert done.stdout.strip(), "nothing was said"


def test_a_coupon_can_be_made_filled_shown_listed_and_reported(stack):
    name = f"by-hand-{next(stack.names)}"
    assert name in stack.ctl("coupon", "create", "--id", name, "--title", "By hand", "--state", "active", "--total", 10)
    assert stack.ctl("coupon", "create", "--id", name, "--title", "Again", "--total", 10, status=1)
    stack.ctl("slots", "generate", name, 10)
    stack.client("storefront").take(name, "u").expect(201)
    shown = json.loads(stack.ctl("coupon", "show", name, "--json"))
    assert shown["definition"]["title"] == "By hand" and shown["counts"]["redeemed"] == 1, shown
    assert "By hand" in stack.ctl("coupon", "show", name)
    assert name in stack.ctl("coupon", "list") and name in stack.ctl("coupon", "list", "--state", "active")
    assert name not in stack.ctl("coupon", "list", "--state", "draft")
    wait_until("the report to hold it", lambda: " 1" in stack.ctl("report", name, "--period", "day"))
    stack.ctl("verify", name)
    assert stack.ctl("slots", "generate", name, 1, status=1), "above the cap"
    assert stack.ctl("coupon", "show", "never-made", status=1)


def test_a_list_with_a_filter_goes_on_where_a_page_of_it_is_empty(stack):
    """A page looks at 5,000 takings at the most."""
    coupon = issued_before(stack, 5_500)
    page = stack.client("ops").get(f"/coupons/{coupon}/redemptions?state=issued&limit=10").ok()
    assert page["items"] == [] and page["next"], page
    said = stack.ctl("redemptions", "list", coupon, "--state", "issued", "--json")
    assert [json.loads(line)["user"] for line in said.splitlines()] == ["first"], said
    assert len(stack.ctl("redemptions", "list", coupon, "--limit", 1000, "--json").splitlines()) == 1000


def definition(stack, name):
    return stack.client("ops").get(f"/coupons/{name}").ok()


def test_a_coupon_is_changed_by_options_and_by_a_file(stack, tmp_path):
    name, path = stack.coupon(slots=5, cap={"total": 5, "per_day": 3}, ends_at="2999-01-01T00:00:00Z",
                              discount={"kind": "amount", "amount_minor": 50, "currency": "EUR"}), tmp_path / "patch.json"
    before = definition(stack, name)
    said = json.loads(stack.ctl("coupon", "change", name, "--title", "Anew", "--per-day", "default", "--ends-at", "default", "--json"))
    assert said == definition(stack, name) == {**before, "title": "Anew", "ends_at": None, "cap": {**before["cap"], "per_day": None}}
    path.write_text('{"title": "By file", "metadata": {"channel": "shop"}}')
    stack.ctl("coupon", "change", name, path, "--low-stock", 2, "--percent-bp", 500)
    said = definition(stack, name)
    assert (said["title"], said["metadata"], said["low_stock"]) == ("By file", {"channel": "shop"}, 2), said
    assert (said["discount"]["kind"], said["discount"]["percent_bp"]) == ("percent", 500), said
    stack.ctl("coupon", "change", name, "--amount", 100)
    assert definition(stack, name)["discount"]["amount_minor"] == 100
    assert "/cap/total" in stack.ctl("coupon", "change", name, "--total", 0, status=1)
    assert stack.ctl("coupon", "change", name, status=2) and stack.ctl("coupon", "change", name, "--total", "many", status=2)
    stack.ctl("coupon", "change", "never-made", "--title", "x", status=1)


def test_a_coupon_is_paused_resumed_ended_and_deleted(stack, storefront):
    name = stack.coupon(slots=5)
    for verb, state, refused in (("pause", "paused", "coupon_not_active"), ("resume", "active", None), ("end", "ended", "coupon_ended")):
        assert stack.ctl("coupon", verb, name) == f"{name} is {state}\n"
        assert definition(stack, name)["state"] == state
        reply = storefront.take(name, f"u-{verb}")
        assert reply.status == 201 if refused is None else reply.problem(refused), reply
        assert "coupon_not_found" in stack.ctl("coupon", verb, "never-made", status=1)
    assert "coupon_in_use" in stack.ctl("coupon", "delete", name, status=1)
    unused = stack.coupon()
    assert stack.ctl("coupon", "delete", unused) == f"{unused} is deleted\n"
    stack.client("ops").get(f"/coupons/{unused}").problem("coupon_not_found")
    stack.verify(name)


def test_a_clone_is_a_draft_with_the_same_definition(stack):
    one = stack.coupon(slots=5, cap={"total": 5, "per_user": 3}, metadata={"channel": "shop"}, starts_at="2026-01-01T00:00:00Z",
                       discount={"kind": "amount", "amount_minor": 250, "currency": "EUR", "only": {"skus": ["A1"]}})
    before = definition(stack, one)
    name = stack.ctl("coupon", "clone", one).strip()
    assert definition(stack, name) == {**before, "id": name, "state": "draft"} and stack.counts(name)["slots"] == 0
    other = f"clone-{next(stack.names)}"
    assert stack.ctl("coupon", "clone", one, "--id", other, "--percent-bp", 500, "--state", "active", "--generate").strip() == other
    said = definition(stack, other)
    assert (said["state"], said["discount"]["percent_bp"], said["discount"]["only"]["skus"]) == ("active", 500, ["A1"]), said
    assert stack.counts(other)["slots"] == 5
    assert "coupon_exists" in stack.ctl("coupon", "clone", one, "--id", other, status=1)
    assert stack.ctl("coupon", "clone", one, "--total", "many", status=2)
    assert "coupon_not_found" in stack.ctl("coupon", "clone", "never-made", status=1)


def test_a_clone_leaves_out_a_window_that_is_over_and_says_so(stack):
    over = stack.coupon(cap={"total": 5}, starts_at="2020-01-01T00:00:00Z", ends_at="2020-02-01T00:00:00Z")
    said = stack.ctl("coupon", "clone", over, "--id", f"clone-{next(stack.names)}")
    assert "The window ended at 2020-02-01T00:00:00.000Z: the copy has none." in said, said
    copy = definition(stack, said.split()[-1])
    assert (copy["starts_at"], copy["ends_at"]) == (None, None), copy
    said = stack.ctl("coupon", "clone", over, "--ends-at", "2099-01-01T00:00:00Z").split()[-1]
    assert definition(stack, said)["ends_at"] == "2099-01-01T00:00:00.000Z"
    future = stack.coupon(cap={"total": 5}, ends_at="2099-01-01T00:00:00Z")
    assert definition(stack, stack.ctl("coupon", "clone", future).strip())["ends_at"] == "2099-01-01T00:00:00.000Z"


def test_a_total_is_raised_with_its_slots_and_lowered_with_its_codes(stack):
    name = stack.coupon(cap={"total": 5}, codes={"source": "generated"}, generate=True)
    assert '"slots_missing": 5' in stack.ctl("coupon", "change", name, "--total", 10)
    assert "slots_missing" not in stack.ctl("coupon", "change", name, "--total", 12, "--generate")
    wait_until("codes", lambda: stack.counts(name)["slots"] == 12)
    assert "codes_would_retire" in stack.ctl("coupon", "change", name, "--total", 11, status=1)
    stack.ctl("coupon", "change", name, "--total", 11, "--retire")
    assert stack.counts(name)["slots"] == 11


def lines_of(stack, *arguments):
    """What a command prints with --json, parsed."""
    return [json.loads(line) for line in stack.ctl(*arguments, "--json").splitlines()]


def test_lists_of_codes_are_retired_issued_and_found(stack, ops, storefront, tmp_path):
    name = stack.imported([f"CODE-{i}" for i in range(10)])
    storefront.take(name, "spender", code="CODE-9").expect(201)
    leaked, users = tmp_path / "leaked.csv", tmp_path / "users"
    leaked.write_bytes("Nr;Voucher\r\n1;CODE-0\r\n2;CODE-9\r\n3;NEVER\r\n".encode("utf-16"))
    said = stack.ctl("codes", "retire", name, "--file", leaked, "--column", "voucher")
    assert f"{name}: 3 rows: 1 retired, 0 retired before, 1 redeemed, 0 held, 1 unknown" in said, said
    assert "line 3: spent: it is redeemed" in said and "line 4: unknown: the coupon does not have this code" in said, said
    stack.ctl("codes", "retire", name, status=2)
    stack.ctl("codes", "retire", name, "CODE-1", "--file", leaked, status=2)
    users.write_text("mail,user\na@x.de,anna\nb@x.de,bob\n")
    said = stack.ctl("codes", "issue", name, users).splitlines()
    assert said[-3:] == ["user,code", "anna,CODE-1", "bob,CODE-2"], said
    assert f"{name}: 2 rows: 2 issued, 0 had one, 0 refused" in said, said
    [sums] = lines_of(stack, "codes", "issue", name, users)
    assert (sums["rows"], sums["already"]) == (2, 2), sums
    (tmp_path / "some").write_text("CODE-0\r\ncode-1\n\nNEVER\n")
    found = [line.split()[:3] for line in stack.couponctl("codes", "find", name, tmp_path / "some").stdout.splitlines()]
    assert found == [["CODE", "STATE", "USER"], ["CODE-0", "retired", "-"], ["code-1", "unknown", "-"], ["NEVER", "unknown", "-"]], found
    found = lines_of(stack, "codes", "find", name, "--state", "issued", "--prefix", "CODE-")
    assert [(row["code"], row["user"]) for row in found] == [("CODE-1", "anna"), ("CODE-2", "bob")], found
    assert stack.ctl("codes", "find", name, "--state", "gone", status=1)


def test_redemptions_are_listed_shown_and_given_back(stack, storefront):
    name = stack.coupon(slots=5)
    spent, held = storefront.take(name, "u 1", order={"id": "o-1"}).ok(201), storefront.take(name, "u 2", state="reserved").ok(201)
    listed = stack.ctl("redemptions", "list", name).splitlines()
    assert len(listed) == 3 and held["id"] in listed[1] and "u 2" in listed[1] and spent["id"] in listed[2] and "o-1" in listed[2], listed
    assert lines_of(stack, "redemptions", "list", name) == [held, spent]
    for options, want in ((["--user", "u 1", "--order", "o-1"], [spent]), (["--state", "reserved"], [held]), (["--limit", 1], [held]),
                          (["--to", "2000-01-01T00:00:00Z", "--limit", 5], [])):
        assert lines_of(stack, "redemptions", "list", name, *options) == want, options
    assert json.loads(stack.ctl("redemptions", "show", name, spent["id"])) == spent
    assert json.loads(stack.ctl("redemptions", "cancel", name, held["id"], "--json"))["state"] == "cancelled"
    assert json.loads(stack.ctl("redemptions", "reverse", name, spent["id"]))["state"] == "reversed"
    assert stack.counts(name)["free"] == 5
    assert "invalid_transition" in stack.ctl("redemptions", "cancel", name, spent["id"], status=1)
    assert "redemption_not_found" in stack.ctl("redemptions", "show", name, "4-9", status=1)
    assert "bad_request" in stack.ctl("redemptions", "list", name, "--state", "gone", status=1)
    assert stack.ctl("redemptions", "list", name, "--limit", 0, status=2)
    stack.verify(name)


def test_a_redemption_is_adjusted_and_given_back_without_its_use(stack, storefront, tmp_path):
    name = stack.coupon(slots=2, discount={"kind": "percent", "percent_bp": 1000, "currency": "EUR"})
    order = {"amount_minor": 4000, "currency": "EUR"}
    spent = storefront.take(name, "u", order={"id": "o", **order}).ok(201)
    rest = tmp_path / "order.json"
    rest.write_text('{"id": "o", "amount_minor": 3000, "currency": "EUR"}')
    adjust = "redemptions", "adjust", name, spent["id"]
    said = json.loads(stack.ctl(*adjust, "--order", rest, "--idempotency-key", "k"))
    assert said["money"] == [{"currency": "EUR", "discount_minor": 300, "order_minor": 3000}], said
    assert json.loads(stack.ctl(*adjust, "--discount", 100))["discount_minor"] == 100
    assert json.loads(stack.ctl(*adjust, "--order", rest, "--idempotency-key", "k", "--json")) == said, "a repeat"
    assert "bad_request" in stack.ctl(*adjust, "--discount", 101, status=1)
    rest.write_text("[]")
    for options in ([], ["--discount", 1, "--order", rest], ["--discount", -1], ["--order", rest], ["--order", tmp_path / "none"]):
        stack.ctl(*adjust, *options, status=2)
    assert json.loads(stack.ctl("redemptions", "reverse", name, spent["id"], "--keep-use"))["state"] == "reversed"
    assert stack.counts(name)["free"] == 2
    storefront.take(name, "u", order=order).problem("user_cap_reached")
    stack.verify(name)


@pytest.mark.parametrize("arguments, slots", [
    (["--generate"], 10), (["--generate", 4], 4), (["--generate=4"], 4), (["--total", 9, "--generate"], 9), ([], 0)], ids=str)
def test_a_coupon_can_be_made_with_its_slots(stack, arguments, slots, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    create = ["coupon", "create", "--id", name, "--title", "With slots", "--total", 10, *arguments]
    assert stack.ctl(*create, "--idempotency-key", "once").splitlines() == [name]
    assert stack.counts(name)["slots"] == slots
    assert stack.ctl(*create, "--idempotency-key", "once").splitlines() == [name], "the same one"
    assert "coupon_exists" in stack.ctl(*create, status=1)
    assert stack.counts(name)["slots"] == slots


def test_a_definition_from_a_file_can_be_made_with_its_slots(stack, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    (tmp_path / "7").write_text(json.dumps({"id": name, "title": "From a file", "cap": {"total": 12}, "generate": 5}))
    stack.ctl("coupon", "create", "--generate", 6, tmp_path / "7")
    assert stack.counts(name)["slots"] == 6


def test_many_codes_are_waited_for_or_not(stack, ops, tmp_path):
    name = f"by-hand-{next(stack.names)}"
    file = tmp_path / "coupon.json"
    file.write_text(json.dumps({"title": "Codes", "cap": {"total": 5000}, "codes": {"source": "generated"}}))
    stack.ctl("coupon", "create", file, "--id", name, "--generate")
    assert stack.counts(name)["slots"] == 5000
    later = f"by-hand-{next(stack.names)}"
    assert stack.ctl("coupon", "create", file, "--id", later, "--generate", "--no-wait").splitlines() == [later]
    wait_until("all of them", lambda: stack.counts(later)["slots"] == 5000)


def test_slots_that_cannot_be_generated_are_refused_by_name(stack):
    for arguments in (["--generate", 11], ["--generate=0"], ["--generate=many"]):
        said = stack.ctl("coupon", "create", "--title", "None", "--total", 10, *arguments, status=2 if "many" in str(arguments) else 1)
        assert "generate" in said, said


def test_keys_can_be_made_listed_and_revoked(stack):
    key = stack.ctl("keys", "create", "--role", "storefront", "--label", "a till").split()[-1]
    _, name, secret = key.split("_")
    listed = stack.ctl("keys", "list")
    assert name in listed and "a till" in listed and secret not in listed
    stack.ctl("keys", "revoke", name)
    assert stack.ctl("keys", "revoke", "nosuchkey000", status=1)


def test_slots_are_retired(stack, storefront):
    name = stack.coupon(slots=10)
    storefront.take(name, "u").expect(201)
    assert re.fullmatch(rf"{name}: 4 slots retired \(job \w+\)", stack.ctl("slots", "retire", name, 4).splitlines()[-1])
    counts = stack.counts(name)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (6, 5, 1), counts
    [job] = stack.ctl("slots", "retire", name, 2, "--no-wait", "--idempotency-key", "once").split()
    assert stack.ctl("slots", "retire", name, 2, "--no-wait", "--idempotency-key", "once").split() == [job], "the same one"
    stack.job_at(f"/coupons/-/jobs/{job}")
    assert stack.counts(name)["free"] == 3
    stack.ctl("slots", "retire", name, 1, "--not-before", "2100-01-01T00:00:00Z")
    assert " 3 slots retired" in stack.ctl("slots", "retire", name, 50), "no more than there are"
    assert "coupon_not_found" in stack.ctl("slots", "retire", "never-made", 1, status=1)
    assert stack.ctl("slots", "retire", name, 0, status=2)
    stack.verify(name)


# ---- --json ----

class Lines:
    """What commands print with --json, and which commands they were."""

    def __init__(self, stack):
        self.stack, self.seen = stack, set()

    def __call__(self, command, *arguments, status=0, silent=False):
        """The lines of `command`, parsed; a refusal is on standard error, but findings (silent) are not."""
        self.seen.add(command)
        printed, said = self.stack.ctl_apart(*command.split(), *arguments, "--json", status=status)
        assert silent or not status or said.startswith("couponctl: "), said
        return [json.loads(line) for line in printed.splitlines()]

    def one(self, command, *arguments):
        [line] = self(command, *arguments)
        return line


def json_of_coupons(stack, api, lines):
    made = lines.one("coupon create", "--id", "one", "--title", "On\u0085e \u202e", "--total", 20, "--state", "active", "--generate")
    assert made == api("/coupons/one")
    shown = lines.one("coupon show", "one")
    assert shown["definition"] == made and shown["counts"] | {"as_of": 0} == api("/coupons/one/counts") | {"as_of": 0}, shown
    assert lines.one("coupon change", "one", "--low-stock", 3) == api("/coupons/one")
    for verb, state in (("pause", "paused"), ("end", "ended"), ("resume", "active")):
        said = lines.one(f"coupon {verb}", "one")
        assert said == api("/coupons/one") and said["state"] == state
    history = lines("coupon history", "one")
    assert history == api("/coupons/one/history")["items"] and history, history
    clone = lines.one("coupon clone", "one", "--id", "two")
    assert clone == api("/coupons/two") and clone["state"] == "draft"
    wait_until("the list to say so", lambda: {c["id"]: c["state"] for c in api("/coupons")["items"]} == {"one": "active", "two": "draft"})
    assert lines("coupon list") == api("/coupons")["items"] and len(lines("coupon list", "--state", "draft")) == 1
    assert lines("coupon delete", "two") == [], "the answer has no body"
    assert lines("coupon delete", "two", status=1) == lines("coupon show", "two", status=1) == []


def json_of_slots_and_jobs(stack, api, lines):
    stack.client("ops").patch("/coupons/one", {"cap": {"total": 30}}).expect(200)
    for verb in ("generate", "retire"):
        job = lines.one(f"slots {verb}", "one", 5)
        assert (job["state"], job["done"]) == ("done", 5) and job == api(f"/coupons/-/jobs/{job['id']}"), job
    later = lines.one("slots retire", "one", 1, "--not-before", "2100-01-01T00:00:00Z")
    assert later == lines.one("jobs show", later["id"]) == api(f"/coupons/-/jobs/{later['id']}")
    assert lines.one("jobs cancel", later["id"])["state"] == "cancelled"
    assert lines("jobs list") == api("/coupons/-/jobs")["items"]


def json_of_redemptions_and_users(stack, api, lines, tmp_path):
    ops, storefront = stack.client("ops"), stack.client("storefront")
    taken = [storefront.take("one", user, order={"id": f"o-{user}"}).ok(201) for user in ("u 1", "u,2")]
    assert lines("redemptions list", "one") == lines("redemptions export", "one") == taken[::-1]
    assert lines("redemptions export", "one", tmp_path / "export", "--user", "u 1") == []
    assert [json.loads(line) for line in (tmp_path / "export").read_text().splitlines()] == taken[:1]
    assert lines.one("redemptions show", "one", taken[0]["id"]) == taken[0]
    assert lines.one("redemptions adjust", "one", taken[0]["id"], "--discount", 0)["state"] == "redeemed"
    assert lines.one("redemptions reverse", "one", taken[0]["id"])["state"] == "reversed"
    held = storefront.take("one", "u-3", state="reserved").ok(201)
    assert lines.one("redemptions cancel", "one", held["id"])["state"] == "cancelled"
    exported = ops.get("/coupons/-/users/u-3/export").expect(200).body.decode().splitlines()
    assert lines("users export", "u-3") == [json.loads(line) for line in exported]
    assert lines("users erase", "u-3") == []
    return taken


def json_of_codes(stack, api, lines, tmp_path):
    stack.client("ops").post("/coupons", {"id": "coded", "title": "Codes", "state": "active", "codes": {"source": "imported"}}).expect(201)
    codes = [f'A"{i:04},"B' for i in range(2000)]
    (tmp_path / "codes").write_text("\n".join(codes) + "\n")
    said = lines.one("codes import", "coded", tmp_path / "codes", "--accept-all")
    assert (said["imported"], said["jobs"]) == (2000, [api(f"/coupons/-/jobs/{said['jobs'][0]['id']}")]), said
    queued = lines.one("codes import", "coded", tmp_path / "codes", "--accept-all", "--no-wait")
    assert (queued["kind"], stack.job_at(f"/coupons/-/jobs/{queued['id']}")["result"]["duplicates_in_coupon"]) == ("import", 2000)
    spent = stack.client("storefront").take("coded", 'u,"4"', code=codes[7]).ok(201)
    assert lines.one("codes show", "coded", codes[7])["user"] == 'u,"4"'
    assert lines.one("codes retire", "coded", codes[8])["state"] == "retired"
    assert lines("codes find", "coded", "--state", "redeemed") == api("/coupons/coded/codes?state=redeemed", "application/json")["items"]
    (tmp_path / "users").write_text("user\nu-9\n")
    said = lines.one("codes issue", "coded", tmp_path / "users")
    assert (said["issued"], said["jobs"]) == (1, [api(f"/coupons/-/jobs/{said['jobs'][0]['id']}")]), said
    issued = lines.one("codes find", "coded", "--state", "issued")
    assert issued["user"] == "u-9"
    states = {issued["code"]: {"state": "issued", "user": "u-9"}, codes[7]: {"state": "redeemed", "user": 'u,"4"', "at": spent["at"]}, codes[8]: {"state": "retired", "user": None}}
    for line in lines("codes export", "coded"):
        code = codes.pop(codes.index(line["code"]))
        assert line | states.get(code, {"state": "free", "user": None, "at": None}) == line, line
    assert not codes


def json_of_webhooks(stack, api, lines):
    hook = lines.one("webhooks create", "https://shop.example/hook", "one", "--events", "coupon.changed")
    assert hook["secret"].startswith("whsec_") and hook | {"secret": 0} == api(f"/coupons/-/webhooks/{hook['id']}") | {"secret": 0}
    assert lines.one("webhooks rotate", hook["id"])["secret"] != hook["secret"]
    assert lines("webhooks list") == api("/coupons/-/webhooks")["items"]
    lines("coupon change", "one", "--title", "Changed")
    wait_until("an attempt to deliver", lambda: api(f"/coupons/-/webhooks/{hook['id']}/deliveries")["items"])
    first = lines("webhooks deliveries", hook["id"])[-1]
    assert first == api(f"/coupons/-/webhooks/{hook['id']}/deliveries")["items"][-1]
    assert lines.one("webhooks redeliver", hook["id"], first["id"])["event"] == first["event"]
    assert lines.one("webhooks test", hook["id"])["event"].startswith("evt_-_0_")
    assert lines("webhooks delete", hook["id"]) == []


def json_of_keys_and_receipts(stack, taken, lines, tmp_path):
    key = lines.one("keys create", "public", "--origin", "https://a.example, https://b.example", "--networks", "127.0.0.0/8", "--rate", 9)
    assert key["key"].startswith(f"cpn_{key['id']}_") and key["origins"] == ["https://a.example", "https://b.example"], key
    assert (key["role"], key["networks"], key["rate"], key["revoked_at"], key["expires_at"]) == ("public", ["127.0.0.0/8"], 9, None, None)
    kept = lines.one("keys create", "ops", "--output", tmp_path / "key", "--expires", "1d")
    assert "key" not in kept and kept["id"] in (tmp_path / "key").read_text() and kept["expires_at"], kept
    listed = lines("keys list")
    assert kept in listed and {name: value for name, value in key.items() if name != "key"} in listed, listed
    revoked = lines.one("keys revoke", kept["id"])
    assert revoked == kept | {"revoked_at": revoked["revoked_at"]} and revoked["revoked_at"]
    token = stack.client("ops").get(f"/coupons/one/redemptions/{taken[1]['id']}/receipt").ok()["receipt"]
    assert lines.one("receipt verify", token)["id"] == taken[1]["id"]


def json_of_reports(api, lines):
    said, seq = {}, api("/coupons/one/counts")["seq"]

    def reported():
        said.update(lines.one("report", "one", "--period", "total"))
        return said["items"][0]["redeemed"] == 2 and said["as_of"]["seq"][0] >= seq

    wait_until(lambda: f"the report: {said}", reported)
    assert said["items"] == api("/coupons/one/reports?period=total")["items"] and said["as_of"]["seq"], said
    assert lines("report", "one", "--csv", status=2) == []


def json_of_what_is_stored(stack, lines, tmp_path):
    assert [(line["coupon"], line["ok"], line["drifts"]) for line in lines("verify")] == [
        ("coded", True, 0), ("one", True, 0), ("two", True, 0)], "a deleted one has its ledger"
    settled(stack, "one")
    assert lines("reconcile", "one", "--online") == [
        {"coupon": "one", "found": [], "to_change": 0, "changed": 0, "codes_lost": 0, "kept": 0, "ledger_faults": 0}]
    bucket = stack.database.buckets.find_one({"_id.c": "one", "view.t.u": "u,2"})
    at = next(i for i, slot in enumerate(bucket["view"]["t"]) if slot.get("u") == "u,2")
    stack.database.buckets.update_one({"_id": bucket["_id"]}, {"$set": {f"view.t.{at}.u": "somebody else"}})
    drift, result = lines("verify", "one", status=1, silent=True)
    assert (drift["coupon"], drift["lane"], drift["what"]) == ("one", 0, "buckets"), drift
    assert drift["field"].startswith("slot ") and drift["field"].endswith(" user"), drift
    assert (drift["expected"], drift["found"]) == ("u,2", "somebody else"), drift
    assert (result["ok"], result["drifts"]) == (False, 1), result
    [result] = lines("reconcile", "one", "--online", status=1, silent=True)
    assert (result["found"], result["to_change"], result["changed"]) == (
        [{"view": "buckets", "fault": "different", "count": 1, "first": [drift["where"]]}], 1, 0), result
    assert lines.one("reconcile", "one", "--online", "--apply")["changed"] == 1
    assert lines.one("verify", "one")["ok"]
    kept = lines.one("archive", "--keep", "one", "--output", tmp_path / "one.gz")
    assert (kept["coupon"], kept["file"], kept["kid"], kept["names"]) == ("one", str(tmp_path / "one.gz"), None, None), kept
    said = lines.one("verify", kept["file"])
    assert (said["coupon"], said["ok"], said["batches"], said["archive"]["kid"]) == ("one", True, kept["batches"], None), said
    lost = {"coupon": "one", "id": "9-1", "user": "u 1", "ordinal": 7, "lane": 0, "seq": 999, "at": "2026-11-01T00:00:00.000Z"}
    (tmp_path / "receipts").write_text(json.dumps({**lost, "state": "redeemed", "hash": "0" * 64}) + "\n")
    assert lines("restored", tmp_path / "receipts", status=1, silent=True) == [{**lost, "what": "redeemed"}]


def test_every_command_prints_json(beside, tmp_path):
    """What the API answers, unchanged; of a list an item a line; the tool's own findings likewise."""
    stack = beside()
    lines = Lines(stack)

    def api(path, accept=None):
        return stack.client("ops").get(path, headers={"Accept": accept} if accept else {}).ok()

    json_of_coupons(stack, api, lines)
    json_of_slots_and_jobs(stack, api, lines)
    taken = json_of_redemptions_and_users(stack, api, lines, tmp_path)
    json_of_codes(stack, api, lines, tmp_path)
    json_of_webhooks(stack, api, lines)
    json_of_keys_and_receipts(stack, taken, lines, tmp_path)
    json_of_reports(api, lines)
    json_of_what_is_stored(stack, lines, tmp_path)
    frame = lines.one("top", "one", "--once", "--interval", 1)
    assert frame["coupons"] == [{"coupon": "one", "counts": frame["coupons"][0]["counts"]}] and frame["requests"]["all"] >= 0, frame
    checks = lines("doctor")
    assert {c["level"] for c in checks} <= {"ok", "warn"} and "database" in [c["check"] for c in checks], checks
    assert (lines.one("receipt rotate", "--announce")["signs"], lines.one("receipt rotate")["signs"]) == (False, True)
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(stack.ctl("config"))
    assert {section: {name: str(value) for name, value in said.items()} for section, said in lines.one("config").items()} == {
        section: dict(settings[section]) for section in settings.sections()}
    assert lines.seen == set(commands(stack)), "commands that were not tried, or do not exist"


def test_verify_takes_each_coupon_s_lanes_by_themselves(stack, storefront):
    """After one that was deleted, too, and others from which slots have moved."""
    deleted, *others = [stack.coupon(slots=40, lanes=2) for _ in range(3)]
    for coupon in others:
        storefront.take(coupon, next(users_of(1, 2))).expect(201)
    stack.client("ops").delete(f"/coupons/{deleted}").expect(204)
    said = stack.ctl("verify", deleted, *others)
    assert all(f"{coupon}: ok" in said for coupon in others), said


def test_verify_of_a_coupon_that_is_not_there_fails(stack):
    assert stack.couponctl("verify", "never-made").returncode != 0


# ---- every kind of damage is found ----

def taking(document):
    """The ledger's entry of a taking, as it is stored."""
    return next(e for e in document["e"] if e["k"] == "redeem")


def entry(**members):
    return lambda d: member(**members)(taking(d))


TAKEN = "ledger", {"e.k": "redeem"}
DAMAGE = {  # beside what test_reconcile.py has repaired
    "a slot's state": (BUCKET, lambda d: d["view"]["t"].pop()),
    "a slot's generation": (BUCKET, lambda d: view(g=[9, *d["view"]["g"][1:]])(d)),
    "the reporter's money": (("totals", {}), member(discount_minor=0)),
    "an entry's ordinal": (TAKEN, entry(o=99)),
    "an entry's slot": (TAKEN, entry(n=69)),
    "an entry's money": (TAKEN, entry(discount=1)),
    "an entry's user": (TAKEN, lambda d: member(u="z")(d["who"][0])),
    "a batch's hash": (TAKEN, member(hash=bytes(32))),
    "a batch's previous hash": (TAKEN, member(prev=bytes(32))),
    "a batch's time": (TAKEN, lambda d: member(at=d["at"] + datetime.timedelta(days=1))(d)),
    "a batch's totals": (TAKEN, lambda d: member(redeemed=0)(d["totals"])),
    "a user's name": (TAKEN, lambda d: d["who"][0].pop("u")),
    "a batch that is gone": (("ledger", {"_id.seq": 3}), None),
    "a definition's cap": (("coupons", {}), lambda d: member(per_user=4)(d["view"]["def"]["cap"])),
}


def make_settled(stack):
    coupon = stack.coupon(slots=70, cap={"total": 70, "per_user": 3}, discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"})
    stack.client("storefront").take_each(coupon, ("a", "a", "b"))
    settled(stack, coupon)
    return coupon


@pytest.fixture(scope="module")
def settled_coupon(stack):
    """One for all: whoever damages it puts it back."""
    coupon = make_settled(stack)
    stack.verify(coupon)
    return coupon


@pytest.mark.parametrize("what", DAMAGE)
def test_verify_finds_and_names_damage(stack, settled_coupon, what):
    """Of one document; verify fails and says where."""
    with Damaged(stack.database, settled_coupon, *DAMAGE[what]):
        assert settled_coupon in stack.ctl("verify", settled_coupon, status=1)


def test_verify_goes_through_all_coupons_and_says_which_is_wrong(beside):
    stack = beside()
    right, wrong, other = (make_settled(stack) for _ in range(3))
    with Damaged(stack.database, wrong, BUCKET, view(free=0)):
        said = stack.ctl("verify", status=1)
        assert f"{right}: ok, " in said and f"{other}: ok, " in said and f"{wrong}: ok, " not in said and wrong in said, said
    stack.verify()
