"""The OpenAPI document is right, complete, and true of what the service does. tests/unit/test_openapi.c holds it against the tables."""
import re

import jsonschema_rs
import pytest

import contract
from client import Http, strict_json
from problems import PROBLEMS
from stack import ROOT, wait_until
from test_auth import MAY, NOBODY, ROLES

ADDRESS = contract.ADDRESS
SITE = "https://shop.example"
OF_NGINX = {"OPTIONS", "TRACE", "PROPFIND", "LOCK", "BREW"}


@pytest.fixture(scope="module")
def document(stack):
    said = stack.client().get(ADDRESS).expect(200).body
    assert said == contract.DOCUMENT.read_bytes()
    return strict_json(said)


@pytest.fixture(scope="module")
def operations(document):
    """Those of the paths, and those that keys of the role public make."""
    places = [*document["paths"].values(), *document["components"]["pathItems"].values()]
    return {body["operationId"]: body for methods in places for body in methods.values()}


def asked(operation):
    """The example of a body."""
    content = operation.get("requestBody", {}).get("content", {})
    return next((kind["example"] for kind in content.values()), None)


def all_of(held):
    """The calls of the paths, and those that keys of the role public make."""
    return held.operations + [operation.public for operation in held.operations if operation.public]


class Story:
    """Every call once, as its example has it, with real answers."""

    def __init__(self, stack, asks):
        self.stack, self.asks, self.answers, self.count = stack, asks, {}, 0
        self.ops, self.shop = stack.client("ops"), stack.client("storefront")
        self.page = Http(stack.port, stack.new_key("public", "--origin", SITE))

    def call(self, name, method, target, client=None, **how):
        body = self.asks.get(name)
        if body is not None:
            how.setdefault("body", body.encode() if isinstance(body, str) else body)
        if isinstance(body, str):
            how["headers"] = {"Content-Type": "text/csv" if name == "codes_issue" else "text/plain"}
        self.count += 1
        reply = (client or self.ops).request(method, target, **how)
        assert reply.status < 300, f"{name}\n{reply}"
        self.answers[name] = reply
        return reply

    def step(self, name, redemption, **how):
        return self.call(name, "POST", f"/coupons/summer-sale/redemptions/{redemption}/{name.split('_')[1]}", self.shop,
                         idempotency_key=f"{name}-{self.count}", **how).json()

    def tell(self):
        self.service()
        self.coupons()
        self.takings()
        self.codes()
        self.readings()
        self.webhooks()
        self.call("user_erase", "DELETE", "/coupons/-/users/u-17")
        self.call("user_erase_named", "POST", "/coupons/-/users/erase")
        return self.answers

    def service(self):
        for name, path in (("health", "health"), ("ready", "ready"), ("metrics", "metrics"), ("receipt_keys", "receipt-keys"),
                           ("openapi", "openapi.json"), ("problem", "problems/sold_out")):
            self.call(name, "GET", f"/coupons/-/{path}", headers={"Accept": "application/json, text/plain"})

    def coupons(self):
        self.call("coupon_create", "POST", "/coupons")
        self.stack.job(self.call("slots_add", "POST", "/coupons/summer-sale/slots"))
        self.call("coupon_change", "PATCH", "/coupons/summer-sale", headers={"If-Match": "*"})
        later = self.ops.post("/coupons/summer-sale/slots", {"count": 1, "not_before": "2100-01-01T00:00:00Z"}).json()
        self.call("job_cancel", "POST", f"/coupons/-/jobs/{later['id']}/cancel")
        self.stack.job(self.call("slots_retire", "POST", "/coupons/summer-sale/slots/retire", idempotency_key="retire"))
        self.ops.post("/coupons", {"id": "mistake", "title": "Mistake", "cap": {"total": 1}}).expect(201)
        self.call("coupon_delete", "DELETE", "/coupons/mistake")
        self.ops.post("/coupons", {"id": "past", "title": "Past", "state": "ended", "cap": {"total": 1}}).expect(201)
        self.call("coupon_archive", "POST", "/coupons/past/archive")

    def takings(self):
        target = "/coupons/summer-sale/redemptions"
        self.call("redemption_check", "POST", "/coupons/summer-sale/check", self.shop)
        self.call("public_check", "POST", "/coupons/summer-sale/check", self.page, headers={"Origin": SITE})
        taken = self.call("redemption_take", "POST", target, self.shop, idempotency_key="order-o-99").json()
        self.call("redemption_get", "GET", f"{target}/{taken['id']}", self.shop)
        self.call("redemption_receipt", "GET", f"{target}/{taken['id']}/receipt", self.shop)
        self.step("redemption_adjust", taken["id"])
        self.step("redemption_reverse", taken["id"])
        issued = self.shop.take("summer-sale", "u-18", state="issued").ok(201)
        held = self.step("redemption_reserve", issued["id"])
        self.step("redemption_cancel", held["id"])
        held = self.shop.post(f"{target}/{issued['id']}/reserve", self.asks["redemption_reserve"], idempotency_key="held").ok(201)
        self.step("redemption_redeem", held["id"])
        self.call("redemption_batch", "POST", f"{target}/batch", self.shop)
        self.shop.take("summer-sale", "u-17", order={"id": "o-100", "amount_minor": 3000, "currency": "EUR"}).expect(201)

    def codes(self):
        self.ops.post("/coupons", {"id": "welcome", "title": "Welcome", "state": "active", "codes": {"source": "imported"}}).expect(201)
        job = self.stack.job(self.call("codes_import", "POST", "/coupons/welcome/codes"))
        self.call("job_get", "GET", f"/coupons/-/jobs/{job['id']}")
        self.call("job_rows", "GET", f"/coupons/-/jobs/{job['id']}/rows")
        self.call("job_list", "GET", "/coupons/-/jobs?limit=1&coupon=welcome")
        self.call("key_list", "GET", "/coupons/-/keys?limit=1")
        self.call("resolve", "POST", "/coupons/-/resolve", self.shop)
        self.call("public_resolve", "POST", "/coupons/-/resolve", self.page, headers={"Origin": SITE})
        self.call("code_get", "GET", "/coupons/welcome/codes/WELCOME-1")
        self.call("code_find", "GET", "/coupons/-/codes?code=WELCOME-1")
        self.call("code_retire", "POST", "/coupons/welcome/codes/WELCOME-2/retire")
        self.call("codes_list", "GET", "/coupons/welcome/codes")
        self.stack.job(self.call("codes_issue", "POST", "/coupons/welcome/codes/issue"))
        self.stack.job(self.call("codes_retire", "POST", "/coupons/welcome/codes/retire"))

    def webhooks(self):
        made = self.call("webhook_create", "POST", "/coupons/-/webhooks").json()
        target = f"/coupons/-/webhooks/{made['id']}"
        self.call("webhook_get", "GET", target)
        self.call("webhook_list", "GET", "/coupons/-/webhooks?limit=1")
        self.call("webhook_rotate", "POST", f"{target}/rotate")
        self.ops.patch("/coupons/welcome", {"title": "Welcome again"}).expect(200)
        deliveries = f"{target}/deliveries"
        wait_until("an attempt to deliver", lambda: self.ops.get(deliveries).ok()["items"])
        one = self.call("webhook_deliveries", "GET", f"{deliveries}?limit=1").json()["items"][0]
        self.call("webhook_redeliver", "POST", f"{deliveries}/{one['id']}/redeliver")
        self.call("webhook_test", "POST", f"{target}/test")
        self.call("webhook_change", "PATCH", target)
        self.call("webhook_delete", "DELETE", target)

    def readings(self):
        for name, path in (("coupon_get", ""), ("counts", "/counts"), ("ledger", "/ledger"), ("coupon_history", "/history"),
                           ("refusals", "/refusals"), ("slots_list", "/slots?limit=1"), ("slot_get", "/slots/0"),
                           ("redemption_list", "/redemptions?limit=1"), ("user_get", "/users/u-17"),
                           ("report", "/reports?period=total")):
            self.call(name, "GET", f"/coupons/summer-sale{path}")
        self.call("coupon_list", "GET", "/coupons?limit=1&state=active")
        self.call("wallet", "GET", "/coupons/-/users/u-17?limit=2", self.shop)
        self.call("redemption_search", "GET", "/coupons/-/redemptions?order=o-100", self.shop)
        self.call("user_export", "GET", "/coupons/-/users/u-17/export")
        self.call("user_export_named", "POST", "/coupons/-/users/export")
        self.call("report_several", "GET", "/coupons/-/reports?period=total&coupon=summer-sale,welcome&group=coupon")


# ---- the document ----

def test_the_document_is_openapi_and_its_schemas_are_schemas(document):
    assert document["openapi"] == "3.1.0"
    for name, schema in document["components"]["schemas"].items():
        whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"], **schema}
        jsonschema_rs.meta.validate(whole)
        assert jsonschema_rs.validator_for(whole), name


def test_every_reference_leads_somewhere_and_no_default_is_a_keyword(document):
    """Clients that are generated would send a default: a description says it."""
    def walk(value):
        if isinstance(value, dict):
            assert "default" not in value, value
            if isinstance(value.get("$ref"), str):
                at = document
                for part in value["$ref"].removeprefix("#/").split("/"):
                    assert part in at, f"{value['$ref']} leads nowhere"
                    at = at[part]
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)

    walk(document)


def test_what_is_sent_and_what_is_answered_has_one_form(document, operations):
    """Clients that are generated have one type for it, whose required members are required."""
    for name, operation in operations.items():
        for one in (operation.get("requestBody", {}), *(contract.resolved(document, answer) for answer in operation["responses"].values())):
            for content in one.get("content", {}).values():
                assert not {"anyOf", "oneOf"} & set(content["schema"]), f"{name}: {content['schema']}"


# Members that an answer may lack; all others are in every one.
MAY_LACK = {
    "Coupon": {"job", "slots_missing", "version"}, "Problem": {"reason", "missing_minor", "errors", "rows", "codes", "held"}, "Counts": {"seqs"}, "Day": {"elsewhere"},
    "Totals": {"archived", "elsewhere", "epoch"}, "ReportRow": {"coupon", "code"}, "AsOf": {"seq"}, "Redemption": {"receipt", "allocations"},
    "Check": {"reason", "missing_minor"}, "Candidate": {"reason", "missing_minor"}, "Readiness": {"clock_offset_s"},
    "CouponPage": {"incomplete"}, "Wallet": {"incomplete"}, "StoredRedemption": {"first_order", "numbers"},
    "StoredEntry": {"fingerprint", "numbers", "shares"}, "Webhook": {"secret"},
}
# What these have depends on their kind: they always have only this.
BY_KIND = {"Discount": {"kind"}, "Entry": {"kind"}, "EventEntry": {"kind", "id", "slot", "user"}, "JobResult": set()}


def test_an_answer_says_of_each_member_what_it_is_and_whether_it_is_always_there(document):
    """So that no answer is described by less than it is: what it is described by, all tests hold it against."""
    for name, schema in document["components"]["schemas"].items():
        if contract.is_asked(name, document) or "properties" not in schema:
            continue
        members, always = schema["properties"], set(schema.get("required", []))
        assert always == BY_KIND.get(name, set(members) - MAY_LACK.get(name, set())), name
        for member, what in members.items():
            assert {"type", "$ref", "oneOf", "anyOf"} & set(what), f"{name}/{member} may be anything"


def test_every_example_is_sent_and_every_example_of_an_answer_is_one(beside, document, operations):
    """Each call once, with the body of its example; what it answers has the form of the example, both by the same schema. On a copy
    of its own: the examples name coupons and users that other tests may have."""
    stack = beside()
    asks = {name: asked(operation) for name, operation in operations.items() if asked(operation) is not None}
    answers = Story(stack, asks).tell()
    assert set(answers) == set(operations), "calls that the story does not make, or that are not described"
    assert {name for name, o in operations.items() if o.get("requestBody")} == set(asks), "bodies without an example"
    for operation in all_of(contract.Contract(document)):
        status = str(answers[operation.name].status)
        assert status < "400" and status in operation.responses, answers[operation.name]
        answer = operation.responses[status]
        for kind, content in answer.get("content", {}).items():
            if kind == "application/json" and operation.name != "openapi":
                wrong = operation.faults(content["schema"], content["example"])
                assert not wrong, f"{operation.name}: the example of the answer is none: {wrong}"


def test_every_problem_of_the_service_is_described_with_its_status(document):
    said = set()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                answer = contract.resolved(document, answer)
                if int(status) >= 400:
                    assert answer["content"]["application/problem+json"]["schema"]["$ref"] == "#/components/schemas/Problem"
                for code in answer.get("x-problems", []):
                    assert PROBLEMS[code][0] == int(status), f"{path}: {code} is not a {status}"
                    said.add(code)
    assert said == set(PROBLEMS) - {"method_not_allowed"}


def test_each_call_names_the_roles_that_may_make_it(document):
    """As the table in test_auth.py, which is compared with the service."""
    assert set(document["components"]["securitySchemes"]) == {*ROLES, "public", "metrics"}
    for operation in contract.Contract(document).operations:
        roles = {role for one in operation.body["security"] for role in one}
        assert roles == MAY[operation.name] - NOBODY, operation.name
        assert ({} in operation.body["security"] or not roles) == (MAY[operation.name] is NOBODY), operation.name


def test_a_query_parameter_that_a_handler_reads_is_described(document, operations):
    """Each name that app/http asks the query for stands in some call, and no call has one that nobody asks for."""
    sources = "".join(path.read_text() for path in (ROOT / "app" / "http").glob("*.c"))
    read = set(re.findall(r'(?:query_(?:int|time|enum|bool)\(r, |path_query\(&r->path, |query\[i\]\.name, )"(\w+)"', sources))
    said = {p["name"] for o in operations.values() for p in (contract.resolved(document, p) for p in o["parameters"]) if p["in"] == "query"}
    assert read == said


def test_a_query_parameter_that_may_not_be_empty_says_so(document, stack):
    coupon, tried = stack.coupon(slots=1), 0
    for operation in contract.contract().operations:
        target = re.sub(r"\{\w+\}", "1-1", operation.template.replace("{coupon}", coupon))
        for parameter in (contract.resolved(document, p) for p in operation.body["parameters"]):
            if operation.method != "get" or parameter["in"] != "query":
                continue
            refused = stack.client("ops").get(f"{target}?{parameter['name']}=").status == 400
            words = not contract.validator(parameter["schema"], document["components"]).is_valid("")
            if contract.resolved(document, parameter["schema"])["type"] == "string" and operation.name != "job_rows":  # there is no such job
                assert refused == words, f"{operation.name}: {parameter['name']}"
                tried += 1
    assert tried > 20, tried


def test_a_method_that_a_path_does_not_have_is_told_those_that_it_has(stack, ops):
    coupon, operations = stack.coupon(slots=1), contract.contract().operations
    for template in {operation.template for operation in operations}:
        target = re.sub(r"\{\w+\}", "1-1", template.replace("{coupon}", coupon))
        methods = {o.method.upper() for o in operations if o.path.fullmatch(target)}
        methods |= {"HEAD"} if "GET" in methods else set()
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "LOCK", "BREW"} - methods:
            reply = ops.request(method, target)
            reply.problem("method_not_allowed")
            # nginx answers some methods itself, by what files have
            assert method in OF_NGINX or set(reply.header("Allow").split(", ")) == methods, reply
