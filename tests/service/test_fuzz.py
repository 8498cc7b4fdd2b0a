"""schemathesis reads what the service says of itself, asks for all of it in every way it can think of, and finds nothing."""
import os
import pathlib
import subprocess
import sys

from effort import seconds
from test_openapi import ADDRESS

HERE = pathlib.Path(__file__).parent
SECONDS = int(seconds("COUPONS_SCHEMATHESIS_S", 5, 20, 60))
# A PATCH without If-Match is a 428; that of a version that is gone is refused before its body is read.
# A batch answers a malformed item in its place, and 200.
# A coupon that another test archived is a 410, whatever its body.
# A 503 is looked at by fuzz_hooks.py: a user whose erasure is under way, or of whom other tests left a damaged view, is busy.
# A code may be called "export", a user "erase": so the addresses whose last part could also be an id answer to the id's GET too, and say so in Allow.
SETTINGS = """\
request-timeout = 100
[checks]
positive_data_acceptance.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
missing_required_header.expected-statuses = [400, 401, 403, 404, 415, 428]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 428, 429]
[[operations]]
include-operation-id = "redemption_batch"
checks.allow_header_conformance.enabled = false
checks.negative_data_rejection.enabled = false
[[operations]]
include-operation-id = ["slots_retire", "codes_retire", "codes_issue", "user_erase_named", "user_export_named"]
checks.allow_header_conformance.enabled = false
[generation]
allow-x00 = false
deterministic = {deterministic}
[output]
truncation.enabled = false
"""


def test_schemathesis_finds_nothing(stack, tmp_path, nothing_dies):
    """The same cases each time, unless COUPONS_SCHEMATHESIS_S asks for more than the everyday run. The check of what is accepted is
    fuzz_hooks.py's, which knows more. One thread only: CPython 3.11 counts the depth of what ast.parse reads for all threads together, and
    fails when two of them meet in it."""
    (tmp_path / "schemathesis.toml").write_text(SETTINGS.format(deterministic=str(SECONDS <= 60).lower()))
    for seconds in (SECONDS, SECONDS + 300):  # to read the document may take longer than the first
        done = subprocess.run(
            [pathlib.Path(sys.executable).parent / "schemathesis", "run", f"http://127.0.0.1:{stack.port}{ADDRESS}", "--no-color",
             "-H", f"Authorization: Bearer {stack.key('ops')}", "--max-time", str(seconds), "--workers", "1",
             "--suppress-health-check", "all", "--warnings", "off"],
            cwd=tmp_path, env={**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(HERE)}, text=True, timeout=seconds + 200,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "No test cases were generated" not in done.stdout:
            break
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-8000:]}"
    assert "No issues found" in done.stdout, done.stdout[-8000:]
    ops = stack.client("ops")
    for hook in ops.get("/coupons/-/webhooks").ok()["items"]:  # there may be a hundred, and others make some, too
        ops.delete(f"/coupons/-/webhooks/{hook['id']}").expect(204)
