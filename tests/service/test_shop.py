"""The page for shops, /coupons/-/docs/checkout.html: its programs check out orders, and its table has every refusal.

Those in TypeScript and PHP are in clients.py, with what compiles and runs them.
"""
import html
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

import contract
import shop
from answering import answering

CALLS = ("resolve", "redemption_take", "redemption_reserve", "redemption_redeem", "redemption_cancel", "redemption_adjust", "redemption_reverse")
PYTHON = """
import json
import sys

coupon, coded, hold_s, second = sys.argv[1:]
ends = {}


def taking(user, order, amount, **code):
    return {"user": user, "order": {"id": order, "amount_minor": amount, "currency": "EUR"}, **code}


def till(pays):
    # what takes the payments, if `pays` says so; and those that it took
    charged = []

    def pay(amount):
        if not pays():
            return False
        charged.append(amount)
        return True

    return pay, charged


def buy(name, coupon, taking, attempt, pays=lambda: True):
    pay, charged = till(pays)
    ends[name] = [check_out(coupon, taking, attempt, pay)["state"], sum(charged)]
    return ends[name][0]


def pays_late():
    time.sleep(float(hold_s) + 0.1)
    return True


def buy_held(name, taking, attempt, pays=lambda: True):
    # the next attempt, where this machine is so slow that the hold ends before there is time to pay
    while buy(name, coded, taking, attempt, pays) == "expired":
        attempt += 1


def buy_several(name, second_code, user, order, pays=lambda: True):
    pay, charged = till(pays)
    ended = check_out_all([(coupon, None), (second, second_code)], taking(user, order, 4200), 1, pay)
    ends[name] = [" ".join(one["state"] for one in ended), sum(charged)]


found = look_up("FLYER-3", "u-4", taking("u-4", "o-4", 4200)["order"])
ends["found"] = [found["ok"], found["discount_minor"]]
ends["unknown_code"] = [look_up("NEVER", "u-4", taking("u-4", "o-4", 4200)["order"]), 0]
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
buy_several("several", "SECOND", "u-6", "o-6")
buy_several("several_again", "SECOND", "u-6", "o-6")
buy_several("several_unpaid", "SECOND", "u-7", "o-7", lambda: False)
try:
    buy_several("several_refused", "NEVER", "u-8", "o-8")
except Refused as refused:
    ends["several_refused"] = [refused.problem["code"], 0]
print(json.dumps(ends))
"""
SHELL = r"""
coupon=$1 coded=$2 hold_s=$3 second=$4 ends=
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
# buy_several NAME CODE USER ORDER PAY
buy_several() {
    echo 0 > charged
    check_out_all "$(taking "$3" "$4" 4200)" 1 "$5" "$coupon" '' "$second" "$2" || return
    end="\"$1\": [\"$(jq --raw-output '[.[].state] | join(" ")' answer)\", $(cat charged)]"
}

order=$(jq .order <<< "$(taking u-4 o-4 4200)")
look_up FLYER-3 u-4 "$order"
end="\"found\": [$(said ok), $(said discount_minor)]" && note
how=0
look_up NEVER u-4 "$order" || how=$?
[ $how -eq 1 ]
end='"unknown_code": [null, 0]' && note

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
buy_several several SECOND u-6 o-6 pays && note
buy_several several_again SECOND u-6 o-6 pays && note
buy_several several_unpaid SECOND u-7 o-7 false && note
how=0
buy_several several_refused NEVER u-8 o-8 pays || how=$?
[ $how -eq 1 ]
end="\"several_refused\": [\"$(said code)\", 0]" && note
echo "{${ends%, }}"
"""


@pytest.mark.full
def test_the_program_in_python_checks_out(stack, tmp_path):
    (tmp_path / "checkout.py").write_text(shop.program("py") + PYTHON)
    shop.check_out(stack, tmp_path, sys.executable, "checkout.py")


@pytest.mark.full
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
        request = f"/{coupon}/redemptions", {"user": "u", "state": "reserved", "order": {"id": "o-1"}}, "hold-o-1-1"
        for _ in range(2):
            with pytest.raises(page.Unknown):
                page.call(*request, patience_s=0)
        held = page.call(*request, patience_s=0)
        page.service.close()
    assert held["state"] == "reserved" and stack.counts(coupon)["reserved"] == 1


@pytest.mark.parametrize("language, program, command", [
    ("py", 'try:\n    call("/c/redemptions", {}, "k", patience_s=0)\nexcept Unknown:\n    print("unknown")\n', sys.executable),
    ("sh", 'how=0\ncall /c/redemptions {} k || how=$?\nif [ $how -eq 2 ]; then echo unknown; fi\n', "bash"),
])
def test_an_answer_that_is_not_the_services_leaves_it_unknown(tmp_path, language, program, command):
    (tmp_path / "program").write_text(shop.program(language) + program)
    with answering(lambda path: (403, "text/html", b"<h1>Forbidden</h1>")) as proxy:  # it lets nobody through
        done = subprocess.run([command, "program"], cwd=tmp_path, text=True, capture_output=True, timeout=500,
                              env={**os.environ, "COUPONS_URL": f"{proxy}/coupons", "COUPONS_KEY": "k"})
    assert (done.returncode, done.stdout) == (0, "unknown\n"), done.stderr


def examples():
    """{name: text} of those that are no program."""
    return dict(re.findall(r'<pre tabindex="0" data-example="(\w+)">(.*?)</pre>', shop.PAGE.read_text(), re.S))


def example(stack, folder, name):
    """The answers, as JSON."""
    script = html.unescape(examples()[name]).replace("--json", "--header 'Content-Type: application/json' --data")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl "$@" && echo; }}\n{script}'], cwd=folder, text=True,
                          capture_output=True, timeout=300, env=os.environ | {
                              "COUPONS_URL": f"http://127.0.0.1:{stack.port}/coupons", "COUPONS_KEY": stack.key("storefront"),
                              "COUPONS_OPS_KEY": stack.key("ops")})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_example_is_what_a_shop_gets(stack, tmp_path):
    made, resolved, redeemed = example(stack, tmp_path, "code")
    assert made["state"] == "active", made
    assert {"coupon": "summer", "ok": True, "problem": None, "discount_minor": 599} in resolved["items"], resolved
    assert (redeemed["state"], redeemed["code"], redeemed["discount_minor"]) == ("redeemed", "SUMMER10", 599), redeemed
    [reversed_] = example(stack, tmp_path, "transfer")
    assert (reversed_["user"], reversed_["state"], reversed_["discount_minor"]) == ("u-18", "reversed", 599), reversed_
    adjusted, refunded = example(stack, tmp_path, "refunds")
    assert (adjusted["state"], adjusted["discount_minor"], refunded["state"]) == ("redeemed", 599, "reversed"), (adjusted, refunded)
    stack.client("storefront").take("summer", "u-19", code="ANNA10", order={"amount_minor": 1, "currency": "EUR", "items": [
        {"category": "shoes", "amount_minor": 1}]}).problem("user_cap_reached")
    [welcome] = example(stack, tmp_path, "mailing")
    heading, *rows = (tmp_path / "mailing.csv").read_text().split()
    assert heading == "user,code" and [row.split(",")[0] for row in rows] == ["anna@example.com", "ben@example.com"], rows
    assert stack.counts(welcome["id"])["issued"] == 2
    assert set(examples()) == {"code", "transfer", "refunds", "mailing"}


def test_every_refusal_of_its_calls_is_in_its_table():
    operations = {o.name: o for o in contract.contract().operations}
    may = {code for name in CALLS for answer in operations[name].responses.values()
           for code in answer.get("x-problems", [])}
    said = re.findall(r'<a href="../problems/(\w+)"><code>(\w+)</code>', shop.PAGE.read_text())
    assert all(address == code for address, code in said)
    assert sorted(code for code, _ in said) == sorted(may)


# The words for a discount code that is refused: ACP's discount_error_codes of 2026-04-17, UCP's discount extension of 2026-04-08.
UCP = {f"discount_code_{word}" for word in ("expired", "invalid", "already_applied", "combination_disallowed", "user_not_logged_in",
                                            "user_ineligible")}
ACP = UCP | {"discount_code_minimum_not_met", "discount_code_usage_limit_reached"}
NOT_OF_THE_CODE = {"not_found", "code_required", "reservation_expired", "invalid_transition", "rate_limited"}


def test_agents_are_told_of_every_refusal_in_words_of_their_protocols():
    page = shop.PAGE.with_name("agents.html").read_text()
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", page)]
    problems, acp, ucp = ([set(re.findall(r"<code>(\w+_\w+)</code>", row[i])) for row in rows] for i in range(3))
    take = next(o for o in contract.contract().operations if o.name == "redemption_take")
    may = {code for status in ("404", "409", "410", "429")
           for code in take.responses[status].get("x-problems", [])}
    assert set().union(*problems) - {"min_spend"} == may - NOT_OF_THE_CODE
    assert all(len(words) == 1 and words <= ACP for words in acp) and all(len(words) == 1 and words <= UCP for words in ucp), rows
    assert {word for word in UCP if word not in set().union(*acp)} - {"discount_code_user_ineligible"} == set(
        re.findall(r"<code>(discount_\w+)</code>", page.split('id="shop"')[1]))
