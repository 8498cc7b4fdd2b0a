"""Keys and roles: who may call what."""
import pytest

from client import Direct
from stack import wait_until

ROLES = ("storefront", "reporting", "ops")
S, R, O = ROLES

# method, path, body, roles that may; the rest gets 403
CALLS = [
    ("GET", "/coupons", None, {S, R, O}),
    ("POST", "/coupons", {}, {O}),
    ("GET", "/coupons/{c}", None, {S, R, O}),
    ("PATCH", "/coupons/{c}", {}, {O}),
    ("DELETE", "/coupons/no-such", None, {O}),
    ("GET", "/coupons/{c}/counts", None, {R, O}),
    ("GET", "/coupons/{c}/ledger", None, {R, O}),
    ("GET", "/coupons/{c}/reports?period=day", None, {R, O}),
    ("GET", "/coupons/{c}/slots", None, {R, O}),
    ("GET", "/coupons/{c}/slots/0", None, {R, O}),
    ("POST", "/coupons/{c}/slots", {}, {O}),
    ("POST", "/coupons/{c}/slots/retire", {}, {O}),
    ("GET", "/coupons/-/jobs", None, {R, O}),
    ("GET", "/coupons/-/jobs/none", None, {R, O}),
    ("POST", "/coupons/-/jobs/none/cancel", None, {O}),
    ("POST", "/coupons/{c}/redemptions", {}, {S, O}),
    ("POST", "/coupons/{c}/redemptions/batch", {}, {S, O}),
    ("POST", "/coupons/{c}/check", {}, {S, O}),
    ("GET", "/coupons/{c}/redemptions", None, {S, R, O}),
    ("GET", "/coupons/{c}/redemptions/0-1", None, {S, R, O}),
    ("POST", "/coupons/{c}/redemptions/0-1/reverse", None, {S, O}),
    ("GET", "/coupons/{c}/users/u", None, {S, R, O}),
    ("GET", "/coupons/-/users/u", None, {S, R, O}),
]


@pytest.fixture(scope="module")
def coupon(stack):
    return stack.coupon(slots=3)


@pytest.mark.parametrize("method, path, body, may", CALLS, ids=[f"{m} {p}" for m, p, _, _ in CALLS])
def test_each_call_is_for_its_roles_only(stack, coupon, method, path, body, may):
    path = path.format(c=coupon)
    for role in ROLES:
        reply = stack.client(role).request(method, path, body)
        if role in may:
            assert reply.status not in (401, 403), f"{role} may\n{reply}"
        else:
            reply.problem("forbidden")
    stack.client().request(method, path, body).problem("unauthorized")


FORGED = ["", "Bearer", "Bearer ", "Bearer x", "Basic b3BzOm9wcw==", "{ops}", "bearer", "Bearer {ops}x", "Bearer {short}",
          "Bearer {other}", "Bearer " + "x" * 5000, "Bearer {ops},{ops}", "Bearer \u00e4", "Bearer {upper}", "Token {ops}"]


@pytest.mark.parametrize("field", FORGED, ids=[f[:20] for f in FORGED])
def test_a_key_that_is_not_ours_is_unauthorized(stack, coupon, field):
    ops = stack.key("ops")
    other = ops[:-1] + ("a" if ops[-1] != "a" else "b")
    value = field.format(ops=ops, short=ops[:-1], other=other, upper=ops.upper())
    reply = stack.client().get(f"/coupons/{coupon}", headers={"Authorization": value})
    reply.problem("unauthorized")


def test_the_scheme_is_matched_without_case(stack, coupon):
    stack.client().get(f"/coupons/{coupon}", headers={"Authorization": f"bearer {stack.key('ops')}"}).expect(200)


def test_a_revoked_key_is_unauthorized(stack, coupon):
    made = stack.couponctl("keys", "create", "--role", "reporting", "--label", "short-lived")
    assert made.returncode == 0, made.stdout
    key = made.stdout.split()[-1]
    stack.client().get(f"/coupons/{coupon}/counts", headers={"Authorization": f"Bearer {key}"}).expect(200)
    revoked = stack.couponctl("keys", "revoke", key.split("_")[1])
    assert revoked.returncode == 0, revoked.stdout
    wait_until("the key to be refused", lambda: stack.client().get(
        f"/coupons/{coupon}/counts", headers={"Authorization": f"Bearer {key}"}).status == 401, 15)
    for worker in (0, 1):
        wait_until(f"worker {worker} to refuse the key", lambda: Direct(
            stack.var / "run" / f"worker-{worker}.sock", key).get(f"/coupons/{coupon}/counts").status == 401, 15)
    listed = stack.couponctl("keys", "list").stdout
    assert key.split("_")[1] in listed and key.split("_")[2] not in listed, listed


def test_keys_are_files_for_their_owner_alone(stack):
    for role in ROLES:
        assert (stack.var / "keys" / role).stat().st_mode & 0o777 == 0o600, role
    assert (stack.var / "keys").stat().st_mode & 0o777 == 0o700


def test_no_key_stands_in_the_log_or_the_database(stack, coupon):
    stack.client("ops").get(f"/coupons/{coupon}").expect(200)
    stored = repr(list(stack.database.keys.find()))
    for role in ROLES:
        secret = stack.key(role).split("_")[2]
        assert secret not in stack.log() and secret not in stored, role


@pytest.mark.parametrize("path", ["/coupons/-/health", "/coupons/-/ready", "/coupons/-/problems/sold_out"])
def test_some_addresses_need_no_key(nobody, path):
    nobody.get(path).expect(200)


def test_who_may_not_is_told_before_whether_it_exists(stack, storefront, reporting):
    """401 and 403 come before 404, 405 and everything else."""
    stack.client().get("/coupons/never-made").problem("unauthorized")
    storefront.get("/coupons/never-made/counts").problem("forbidden")
    reporting.post("/coupons/never-made/redemptions", b"{", headers={"Content-Type": "text/plain"}).problem("forbidden")
