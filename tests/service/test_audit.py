"""The audit log: who read or changed what with which key, as ids alone."""
import re
import signal

import pytest

from client import Direct, Http
from stack import GUESSES, SETTINGS, SLOW_DATABASE, Stack, wait_until

LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT[0-9:.]+Z) key=(?P<key>\S+) role=(?P<role>\S+) call=(?P<call>\S+) "
                  r"method=(?P<method>\S+) status=(?P<status>\d{3})(?P<ids>(?: (?:coupon|job|webhook|delivery|slot|redemption|made)=\S+)*)"
                  r" from=(?P<address>\S+) request=(?P<request>\S+)")


class Audit:
    def __init__(self, stack):
        self.stack, self.path = stack, stack.var / "log" / "audit.log"

    def lines(self):
        text = self.path.read_text()
        found = [LINE.fullmatch(line) for line in text.splitlines()]
        assert all(found), text
        return found

    def of(self, request):
        """The line of the request with this id: it is written before the answer is sent."""
        return next(line for line in self.lines() if line["request"] == request)


@pytest.fixture(scope="module")
def audited(stack):
    with Stack(SETTINGS + SLOW_DATABASE + GUESSES + "[audit]\npath = log/audit.log\n", beside=stack) as s:
        yield s


def key_id(stack, role):
    """Keys are cpn_<id>_<secret>."""
    return stack.key(role).split("_")[1]


def take(shop, coupon, request):
    return shop.post(f"/coupons/{coupon}/redemptions", {"user": "anna-secretname"}, idempotency_key=request,
                     headers={"X-Request-Id": request})


def test_each_call_with_a_key_is_told_with_the_ids_of_what_it_read_or_changed(audited):
    audit = Audit(audited)
    coupon = audited.coupon(2)
    shop, ops, reporting = (audited.client(role) for role in ("storefront", "ops", "reporting"))
    taken = take(shop, coupon, "taking").expect(201).json()
    line = audit.of("taking")
    assert (line["key"], line["role"], line["call"], line["method"], line["status"], line["address"]) == \
        (key_id(audited, "storefront"), "storefront", "redemption_take", "POST", "201", "127.0.0.1")
    assert line["ids"] == f" coupon={coupon} made=/coupons/{coupon}/redemptions/{taken['id']}"
    reporting.get(f"/coupons/{coupon}/redemptions/{taken['id']}", headers={"X-Request-Id": "reading"}).expect(200)
    assert audit.of("reading")["ids"] == f" coupon={coupon} redemption={taken['id']}"
    ops.patch(f"/coupons/{coupon}", {"title": "secrettitle"}, headers={"X-Request-Id": "changing"}).expect(200)
    assert (audit.of("changing")["call"], audit.of("changing")["ids"]) == ("coupon_change", f" coupon={coupon}")
    take(shop, coupon, "refused").problem("user_cap_reached")
    assert (audit.of("refused")["status"], audit.of("refused")["ids"]) == ("409", f" coupon={coupon}")
    job = ops.post(f"/coupons/{coupon}/slots/retire", {"count": 1}, headers={"X-Request-Id": "job"}, idempotency_key="r").expect(202)
    assert audit.of("job")["ids"] == f" coupon={coupon} made={job.header('Location')}"


def test_a_list_of_codes_is_told_once_though_its_key_is_asked_for_first(audited):
    audit = Audit(audited)
    coupon = audited.imported()
    for role, status in (("ops", 202), ("reporting", 403)):
        audited.client(role).post(f"/coupons/{coupon}/codes", b"CODE-0001\n",
                                  headers={"X-Request-Id": role, "Content-Type": "text/plain"}).expect(status)
        [line] = [line for line in audit.lines() if line["request"] == role]
        assert (line["call"], line["method"], line["status"]) == ("codes_import", "POST", str(status))


def test_names_and_codes_are_never_in_it_wherever_they_stand(audited):
    audit = Audit(audited)
    coupon = audited.imported(["SECRETCODE1"])
    shop, ops, reporting = (audited.client(role) for role in ("storefront", "ops", "reporting"))
    before = len(audit.lines())
    calls = [
        shop.take(coupon, "anna-secretname", code="SECRETCODE1"),
        shop.get(f"/coupons/{coupon}/users/anna-secretname"),
        shop.get("/coupons/-/users/anna-secretname"),
        ops.get(f"/coupons/{coupon}/codes/SECRETCODE1"),
        ops.get(f"/coupons/{coupon}/codes/SECRETCODE2"),
        shop.get("/coupons/SECRETCODE1"),                      # where a coupon's id belongs
        shop.get("/coupons/SECRETCODE1/slots"),                # not with this key, and nobody has looked for it
        reporting.get(f"/coupons/{coupon}/redemptions/anna-secretname"),
        ops.get("/coupons/-/jobs/anna-secretname"),
        ops.get("/coupons/-/webhooks/anna-secretname"),
        ops.get(f"/coupons/{coupon}/slots/anna-secretname"),
        ops.delete("/coupons/-/users/anna-secretname"),
    ]
    assert len(audit.lines()) == before + len(calls)
    text = audit.path.read_text()
    assert "secretname" not in text and "SECRETCODE" not in text, text


def test_who_has_no_good_key_writes_nothing(audited):
    audit = Audit(audited)
    before = len(audit.lines())
    audited.client().get("/coupons/-/health").expect(200)
    audited.client().get("/coupons/-/metrics")
    audited.client().get("/coupons").problem("unauthorized")
    assert len(audit.lines()) == before


def test_an_id_without_its_secret_is_nobody(audited):
    """Ids are no secret: they are in this log. Neither is one whose key has ended, or was revoked, logged as a caller."""
    audit = Audit(audited)
    good, revoked = audited.key("ops"), audited.new_key("ops")
    audited.client("ops").get("/coupons").expect(200)
    Http(audited.port, revoked).get("/coupons").expect(200)
    assert audited.couponctl("keys", "revoke", revoked.split("_")[1]).returncode == 0
    for door in (Direct(audited.var / "run" / f"worker-{i}.sock", revoked) for i in range(audited.workers)):
        wait_until("it to be refused", lambda: door.get("/coupons").status == 401)
    before = len(audit.lines())
    for key in (good[:-4] + ("2222" if good[-4:] != "2222" else "3333"), revoked):
        for method, path in (("GET", "/coupons"), ("POST", "/coupons/x/codes"), ("GET", "/coupons/-/nothing")):
            Http(audited.port, key).request(method, path, headers={"X-Request-Id": "forged"}).problem("unauthorized")
    assert len(audit.lines()) == before, audit.lines()[before:]


def test_it_is_reopened_when_it_was_moved_away(audited):
    audit = Audit(audited)
    shop = audited.client("storefront")
    shop.get("/coupons").expect(200)
    moved = audit.path.with_suffix(".1")
    audit.path.rename(moved)
    audited.signal("coupond", signal.SIGUSR1)

    def both_workers_write():
        shop.get("/coupons").expect(200)
        return audit.path.exists() and len(audit.lines()) > 10

    size = moved.stat().st_size
    wait_until("the new file to be written", both_workers_write)
    assert moved.stat().st_size >= size and all(LINE.fullmatch(line) for line in moved.read_text().splitlines())
    assert audit.path.stat().st_mode & 0o777 == 0o640


def test_without_a_path_there_is_none(stack, storefront):
    storefront.get("/coupons").expect(200)
    assert not list(stack.var.glob("**/audit*"))
