"""Holds every answer that a test gets against the service's own OpenAPI document, and every request that was accepted."""
import json
import re

import jsonschema_rs

ADDRESS = "/coupons/-/openapi.json"
# What the front server may answer to any call, whatever the call is.
OF_THE_FRONT = {408, 413, 414}
LARGEST = 1 << 20  # bytes of a body that is looked at


def closed(schema):
    """The same schema, in which an object has no members but those that are named."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: closed(value) if name not in ("enum", "const", "example", "default") else value for name, value in schema.items()}
    if "properties" in out and out.get("type") == "object":
        out.setdefault("additionalProperties", False)
    return out


class Operation:
    def __init__(self, method, template, body, components):
        self.name, self.method, self.template, self.body = body["operationId"], method, template, body
        parts = [r"(?!-(?:/|$))[^/]+" if part == "{coupon}" else r"[^/]+" if part.startswith("{") else re.escape(part)
                 for part in template.split("/")]
        self.path = re.compile("/".join(parts))
        self.components, self.validators = components, {}

    def validator(self, schema):
        key = json.dumps(schema)
        if key not in self.validators:
            whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": self.components, "allOf": [schema]}
            self.validators[key] = jsonschema_rs.validator_for(whole, validate_formats=True)
        return self.validators[key]

    def faults(self, schema, value):
        return [f"{'/'.join(map(str, e.instance_path))}: {e.message}"[:500] for e in self.validator(schema).iter_errors(value)][:5]

    def check_reply(self, reply):
        answer = self.body["responses"].get(str(reply.status))
        if answer is None:
            assert reply.status in OF_THE_FRONT | {405}, f"{self.name} has no answer {reply.status}\n{reply}"
            return
        assert len(reply.header("X-Request-Id") or "") > 0, f"X-Request-Id\n{reply}"
        for name in ("Location", "ETag", "Link", "Idempotent-Replayed", "Coupons-As-Of", "Retry-After", "WWW-Authenticate", "RateLimit",
                     "RateLimit-Policy"):
            assert reply.header(name) is None or name in answer["headers"], f"{self.name} does not say that it answers {name}\n{reply}"
        if "Location" in answer["headers"]:
            assert reply.header("Location"), f"Location\n{reply}"
        kind = (reply.header("Content-Type") or "").split(";")[0]
        if "content" not in answer:
            assert not reply.body, f"{self.name} has no body with {reply.status}\n{reply}"
            return
        assert kind in answer["content"], f"{self.name} does not answer {kind} with {reply.status}\n{reply}"
        if reply.body and kind in ("application/json", "application/problem+json") and len(reply.body) < LARGEST:
            wrong = self.faults(answer["content"][kind]["schema"], reply.json())
            assert not wrong, f"{self.name} answers what it does not say: {wrong}\n{reply}"

    def check_lines(self, reply):
        """Of a ledger: each line is a batch."""
        lines = reply.body[:LARGEST].split(b"\n")[:-1]
        for line in lines[:50]:
            wrong = self.faults({"$ref": "#/components/schemas/Batch"}, json.loads(line))
            assert not wrong, f"{self.name}: {wrong}\n{line[:1000]}"

    def check_accepted(self, body, reply):
        """A body that was accepted is one that the document permits."""
        content = self.body.get("requestBody", {}).get("content", {}).get("application/json")
        if not content or not body or len(body) > LARGEST:
            return
        wrong = self.faults(content["schema"], json.loads(body))
        assert not wrong, f"{self.name} took a body that it says it does not take: {wrong}\n{reply}"


class Contract:
    def __init__(self, document):
        self.document = document
        components = {"schemas": {name: s if is_asked(name, document) else closed(s)
                                  for name, s in document["components"]["schemas"].items()}}
        self.operations = [Operation(method, template, body, components)
                           for template, methods in document["paths"].items() for method, body in methods.items()]
        self.seen = set()

    def find(self, method, target):
        method = "get" if method == "HEAD" else method.lower()
        path = target.split("?")[0]
        return next((o for o in self.operations if o.method == method and o.path.fullmatch(path)), None)

    def check(self, method, target, body, reply):
        operation = self.find(method, target)
        if not operation:
            return
        operation.check_reply(reply)
        self.seen.add((operation.name, reply.status, reply.code() if method != "HEAD" else None))
        if operation.name == "ledger" and reply.status == 200 and method != "HEAD":
            operation.check_lines(reply)
        if 200 <= reply.status < 300:
            operation.check_accepted(body, reply)


def is_asked(name, document):
    """A schema of bodies: it says itself what it does not take."""
    return "additionalProperties" in document["components"]["schemas"][name]


contract = None  # of the service under test: fetched once


def check(caller, method, target, body, reply):
    """Of any answer; the caller's _send() fetches the document before the first one."""
    global contract
    if contract is None:
        contract = Contract(json.loads(caller._send("GET", ADDRESS, [], None).expect(200).body))
    contract.check(method, target, body, reply)
