"""The page for shops, /coupons/-/docs/checkout.html: its programs check out orders, and its table has every refusal.

The one in TypeScript is in clients.py, with what compiles it.
"""
import contextlib
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading

import pytest

import contract
import shop

CALLS = ("redemption_take", "redemption_reserve", "redemption_redeem", "redemption_cancel")
PYTHON = """
import json
import sys

coupon, coded, hold_s = sys.argv[1:]
ends = {}


def taking(user, order, amount, **code):
    return {"user": user, "order": {"id": order, "amount_minor": amount, "currency": "EUR"}, **code}


def buy(name, coupon, taking, attempt, pays=lambda: True):
    charged = []

    def pay(amount):
        if not pays():
            return False
        charged.append(amount)
        return True

    ends[name] = [check_out(coupon, taking, attempt, pay)["state"], sum(charged)]
    return ends[name][0]


def pays_late():
    time.sleep(float(hold_s) + 0.1)
    return True


def buy_held(name, taking, attempt, pays=lambda: True):
    # the next attempt, where this machine is so slow that the hold ends before there is time to pay
    while buy(name, coded, taking, attempt, pays) == "expired":
        attempt += 1


buy("paid", coupon, taking('o"neil', 'o"1', 4200), 1)
buy("unpaid", coupon, taking("u-2", "o-2", 4200), 1, lambda: False)
buy("unpaid_again", coupon, taking("u-2", "o-2", 4200), 1)
buy("then_paid", coupon, taking("u-2", "o-2", 4200), 2)
buy("paid_again", coupon, taking("u-2", "o-2", 4200), 2)
try:
    buy("refused", coupon, taking("u-3", "o-3", 1500), 1)
except Refused as refused:
    ends["refused"] = [refused.problem["code"], refused.problem["missing_minor"]]
u4, u5 = taking("u-4", "o-4", 4200, code="FLYER-1"), taking("u-5", "o-5", 4200, code="FLYER-2")
hold(coded, u5, 1)
buy_held("late", u4, 1, pays_late)
buy("lapsed", coded, u5, 1)
buy_held("after_lapse", u5, 2)
print(json.dumps(ends))
"""
SHELL = r"""
coupon=$1 coded=$2 hold_s=$3 ends=
pays() {
    echo "$1" > charged
}
pays_late() {
    sleep "$hold_s.1"
    pays "$1"
}

# buy NAME COUPON TAKING ATTEMPT PAY
buy() {
    echo 0 > charged
    check_out "${@:2}"
    state=$(said state)
    end="\"$1\": [\"$state\", $(cat charged)]"
}
# with the next attempt, where this machine is so slow that the hold ends before there is time to pay
buy_held() {
    local attempt=$3
    buy "$1" "$coded" "$2" "$attempt" "$4"
    while [ "$state" = expired ]; do
        attempt=$((attempt + 1))
        buy "$1" "$coded" "$2" "$attempt" "$4"
    done
}
note() {
    ends="$ends$end, "
}

buy paid "$coupon" "$(taking 'o"neil' 'o"1' 4200)" 1 pays && note
buy unpaid "$coupon" "$(taking u-2 o-2 4200)" 1 false && note
buy unpaid_again "$coupon" "$(taking u-2 o-2 4200)" 1 pays && note
buy then_paid "$coupon" "$(taking u-2 o-2 4200)" 2 pays && note
buy paid_again "$coupon" "$(taking u-2 o-2 4200)" 2 pays && note
how=0
check_out "$coupon" "$(taking u-3 o-3 1500)" 1 pays || how=$?
[ $how -eq 1 ]
end="\"refused\": [\"$(said code)\", $(said missing_minor)]" && note
u4=$(taking u-4 o-4 4200 FLYER-1) u5=$(taking u-5 o-5 4200 FLYER-2)
hold "$coded" "$u5" 1
buy_held late "$u4" 1 pays_late && note
buy lapsed "$coded" "$u5" 1 pays && note
buy_held after_lapse "$u5" 2 pays && note
echo "{${ends%, }}"
"""


def test_the_program_in_python_checks_out(stack, tmp_path):
    (tmp_path / "checkout.py").write_text(shop.program("py") + PYTHON)
    shop.check_out(stack, tmp_path, sys.executable, "checkout.py")


def test_the_program_for_curl_checks_out(stack, tmp_path):
    (tmp_path / "checkout").write_text("set -euo pipefail\n" + shop.program("sh") + SHELL)
    shop.check_out(stack, tmp_path, "bash", "checkout")


def test_what_stays_unknown_is_found_by_the_same_call(stack, tmp_path, monkeypatch):
    coupon = stack.coupon(slots=2)
    (tmp_path / "page.py").write_text(shop.program("py"))
    monkeypatch.setenv("COUPONS_KEY", stack.key("storefront"))
    with shop.losing(stack.port) as (port, _):
        monkeypatch.setenv("COUPONS_URL", f"http://127.0.0.1:{port}/coupons")
        spec = importlib.util.spec_from_file_location("page", tmp_path / "page.py")
        page = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(page)
        request = f"/{coupon}/redemptions", "hold-o-1-1", {"user": "u", "state": "reserved", "order": {"id": "o-1"}}
        for _ in range(2):
            with pytest.raises(page.Unknown):
                page.call(*request, patience_s=0)
        held = page.call(*request, patience_s=0)
        page.service.close()
    assert held["state"] == "reserved" and stack.counts(coupon)["reserved"] == 1


@contextlib.contextmanager
def forbidding():
    """Yield the address of a proxy that lets nobody through, and says so in HTML."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(403)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>Forbidden</h1>")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/coupons"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("language, program, command", [
    ("py", 'try:\n    call("/c/redemptions", "k", {}, patience_s=0)\nexcept Unknown:\n    print("unknown")\n', sys.executable),
    ("sh", 'how=0\ncall /c/redemptions k {} || how=$?\nif [ $how -eq 2 ]; then echo unknown; fi\n', "bash"),
])
def test_an_answer_that_is_not_the_services_leaves_it_unknown(tmp_path, language, program, command):
    (tmp_path / "program").write_text(shop.program(language) + program)
    with forbidding() as address:
        done = subprocess.run([command, "program"], cwd=tmp_path, env={**os.environ, "COUPONS_URL": address, "COUPONS_KEY": "k"}, text=True,
                              capture_output=True, timeout=500)
    assert (done.returncode, done.stdout) == (0, "unknown\n"), done.stderr


def test_every_refusal_of_its_calls_is_in_its_table():
    operations = {o.name: o for o in contract.contract().operations}
    may = {code for name in CALLS for answer in operations[name].responses.values()
           for code in answer.get("content", {}).get("application/problem+json", {}).get("examples", {})}
    told = re.findall(r'<a href="../problems/(\w+)"><code>(\w+)</code>', shop.PAGE.read_text())
    assert all(address == code for address, code in told)
    assert sorted(code for code, _ in told) == sorted(may)
