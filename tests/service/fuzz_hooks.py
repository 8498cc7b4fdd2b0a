"""What schemathesis cannot know of this service, for test_fuzz.py: which rules no document of its kind can say."""
import re

import schemathesis

# Problems that a request has for what is there, not for what it is.
OF_THE_STATE = {"bad_cursor", "idempotency_key_reused", "version_changed", "code_required"}

# Rules between members, between parameters, and with what the database knows: details of bad_request.
BETWEEN = re.compile("|".join([
    r"is required with an amount of money", r"must be later than starts_at", r"needs cap.policy exact",
    r"codes need cap.policy exact", r"requires the cap.policy exact", r"cannot be combined with imported codes",
    r"must be at most cap.total", r"present requires codes", r"must have both below and add", r"is not the name of an IANA time zone",
    r"must be the name of an IANA time zone", r"does not belong to this discount.kind", r"is required$", r"must have at most \d+ bytes",
    r"must be 1 to 128 bytes of UTF-8", r"query parameter order requires user", r"query parameters user and order is required",
    r"from must be earlier than to", r"must have either count or until", r"only allowed with state reserved", r"^cannot change",
    r"from and to must be between the years", r"more than \d+ (periods|rows)", r"query parameter lane must be",
    r"contains no (?:codes|users)", r"has no column named", r"does not import codes", r"has no codes",
    r"slots have no codes", r"needs codes.source shared", r"must have (?:only one of )?discount_minor (?:or|and) order", r"must have at least 1 item",r"slots come with its codes", r"has no slots",
    r"must be 1 for a coupon with codes", r"integer does not fit into 64 bits", r"an integer beyond 2\^53",
    r"cannot be combined with lanes above 1", r"must be an absolute URL", r"must begin with https://", r"must not contain a (?:user|fragment|zone)", r"has an invalid host",
    r"is not a public address", r"There are already 100 webhooks", r"must add up to at most", r"must be that of the redemption's order",
    r"must be at most the present discount", r"is required: this key is limited", r"requires a higher cap.total",
    r"are only allowed on /coupons/-/reports", r"must be coupon ids, separated by commas",
]))


@schemathesis.check
def valid_data_is_accepted(ctx, response, case):
    """As schemathesis' own check, but for these."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code not in (400, 412, 413, 415, 422, 428):
        return
    problem = response.json()
    details = [e["detail"] for e in problem.get("errors", [])] or [problem["detail"]]
    if problem["code"] in OF_THE_STATE or all(BETWEEN.search(detail) for detail in details):
        return
    raise AssertionError(f"valid data was refused: {problem['code']} {details}")


@schemathesis.check
def a_503_is_busy(ctx, response, case):
    """It may be tried again, and nothing was done. Any other is an error of the server's."""
    if response.status_code == 503 and response.content:
        problem = response.json()
        assert problem["code"] == "busy" and problem["retry"], problem
