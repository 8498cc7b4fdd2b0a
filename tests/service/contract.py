"""Holds every answer that a test gets against the OpenAPI document, every request that was accepted, and every event."""
import functools
import json
import pathlib
import re

import jsonschema_rs

DOCUMENT = pathlib.Path(__file__).parents[2] / "app" / "static" / "docs" / "openapi.json"
ADDRESS = "/coupons/-/openapi.json"
# What the front server may answer to any call, whatever the call is.
OF_THE_FRONT = {408, 413, 414}
LINES = "application/x-ndjson"
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


def resolved(document, value):
    """What a reference leads to."""
    while "$ref" in value:
        at = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        value = at
    return value


def validator(schema, components):
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": components, "allOf": [schema]}
    return jsonschema_rs.validator_for(whole, validate_formats=True)


def faults(checks, value):
    return [f"{'/'.join(map(str, e.instance_path))}: {e.message}"[:500] for e in checks.iter_errors(value)][:5]


class Operation:
    """A call of a path; `public`: the same as keys of the role public make it, where they may."""

    def __init__(self, method, template, body, document, components):
        self.public = None
        if "x-public" in body:
            self.public = Operation(method, template, resolved(document, body["x-public"])[method], document, components)
        self.name, self.method, self.template, self.body = body["operationId"], method, template, body
        self.responses = {status: resolved(document, answer) for status, answer in body["responses"].items()}
        parts = [r"(?!-(?:/|$))[^/]+" if part == "{coupon}" else r"[^/]+" if part.startswith("{") else re.escape(part)
                 for part in template.split("/")]
        self.path = re.compile("/".join(parts))
        self.components, self.validators = components, {}

    def faults(self, schema, value):
        key = json.dumps(schema)
        if key not in self.validators:
            self.validators[key] = validator(schema, self.components)
        return faults(self.validators[key], value)

    def check_reply(self, reply):
        answer = self.responses.get(str(reply.status))
        if answer is None:
            assert reply.status in OF_THE_FRONT | {405}, f"{self.name} has no answer {reply.status}\n{reply}"
            return
        assert len(reply.header("X-Request-Id") or "") > 0, f"X-Request-Id\n{reply}"
        assert not (reply.header("ETag") or "").startswith("W/"), f"a weak ETag\n{reply}"
        headers = answer.get("headers", {})
        for name in ("Location", "ETag", "Link", "Idempotent-Replayed", "Coupons-As-Of", "Retry-After", "WWW-Authenticate", "RateLimit",
                     "RateLimit-Policy"):
            assert reply.header(name) is None or name in headers, f"{self.name} does not say that it answers {name}\n{reply}"
        if "Location" in headers:
            assert reply.header("Location"), f"Location\n{reply}"
        kind = (reply.header("Content-Type") or "").split(";")[0]
        if "content" not in answer:
            assert not reply.body, f"{self.name} has no body with {reply.status}\n{reply}"
            return
        assert kind in answer["content"], f"{self.name} does not answer {kind} with {reply.status}\n{reply}"
        if reply.body and kind in ("application/json", "application/problem+json") and len(reply.body) < LARGEST:
            wrong = self.faults(answer["content"][kind]["schema"], reply.json())
            assert not wrong, f"{self.name} answers what it does not say: {wrong}\n{reply}"
            if kind == "application/problem+json":
                assert reply.code() in answer["x-problems"], f"{self.name} does not say that it answers {reply.code()}\n{reply}"

    def check_lines(self, reply):
        """Each is what the document says of a line."""
        lines = reply.body[:LARGEST].split(b"\n")[:-1]
        for line in lines[:50]:
            wrong = self.faults(self.responses["200"]["content"][LINES]["schema"]["contentSchema"], json.loads(line))
            assert not wrong, f"{self.name}: {wrong}\n{line[:1000]}"

    def check_accepted(self, body, reply):
        """A body that was accepted is one that the document permits."""
        content = self.body.get("requestBody", {}).get("content", {}).get("application/json")
        if not content or not body or len(body) > LARGEST:
            return
        asked = json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace"))  # a code may have half of a pair
        if self.name == "redemption_batch":  # an item that is malformed is refused in its place
            asked["items"] = [item for item, answer in zip(asked["items"], reply.json()["items"])
                              if answer["body"].get("code") != "bad_request"] or [{"user": "u", "key": "k"}]
        wrong = self.faults(content["schema"], asked)
        assert not wrong, f"{self.name} took a body that it says it does not take: {wrong}\n{reply}"


class Contract:
    def __init__(self, document):
        self.components = {"schemas": {name: s if is_asked(name, document) else closed(s)
                                       for name, s in document["components"]["schemas"].items()}}
        self.operations = [Operation(method, template, body, document, self.components)
                           for template, methods in document["paths"].items() for method, body in methods.items()]
        self.events = {type_: validator(event["post"]["requestBody"]["content"]["application/json"]["schema"], self.components)
                       for type_, event in document["webhooks"].items()}

    def find(self, method, target, public=False):
        method = "get" if method == "HEAD" else method.lower()
        path = target.split("?")[0]
        found = next((o for o in self.operations if o.method == method and o.path.fullmatch(path)), None)
        return found.public if found and found.public and public else found

    def check(self, method, target, body, reply, public=False):
        """public: it was sent with a key of that role."""
        operation = self.find(method, target, public)
        if not operation:
            return
        operation.check_reply(reply)
        if reply.header("Content-Type") == LINES and method != "HEAD":
            operation.check_lines(reply)
        if 200 <= reply.status < 300:
            operation.check_accepted(body, reply)

    def check_event(self, type_, body):
        """What was delivered to a webhook is what the document says of its type."""
        wrong = faults(self.events[type_], json.loads(body))
        assert not wrong, f"an event that is not as the document says: {wrong}\n{body}"


def is_asked(name, document):
    """A schema of bodies: it says itself what it does not take."""
    return "additionalProperties" in document["components"]["schemas"][name]


@functools.cache
def contract():
    return Contract(json.loads(DOCUMENT.read_bytes()))
