"""Metrics: the text is Prometheus's to the letter, the numbers are true, summed over the processes and kept when one dies; and what
conf/ says of metrics names only what is there."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import exposition
from stack import ROOT, WORKERS, wait_until

METRICS = "/coupons/-/metrics"


def look(stack, client=None):
    reply = (client or stack.client("ops")).get(METRICS)
    reply.expect(200)
    assert reply.header("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.header("Cache-Control") == "no-store"
    return exposition.read(reply.body.decode())


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


class Growth:
    """What the counters grew by since it was made."""

    def __init__(self, stack):
        self.stack, self.before = stack, look(stack)

    def __call__(self, name, **labels):
        return exposition.total(look(self.stack), name, **labels) - exposition.total(self.before, name, **labels)


@pytest.mark.parametrize("text", [
    "# TYPE a gauge\na 1\na 2\n", "# TYPE a gauge\na one\n", "# TYPE a counter\na 1\n", "# TYPE a gauge\na_total 1\n",
    "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
    "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n", "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 2\n"])
def test_what_promtool_lets_pass_is_a_fault_too(text):
    with pytest.raises((AssertionError, ValueError)):
        exposition.read(text)


def test_metrics_have_their_kinds_and_labels(stack, storefront):
    storefront.take(stack.coupon(slots=1), "u").expect(201)
    families = look(stack)
    for name, kind in (("coupons_requests_total", "counter"), ("coupons_decisions_total", "counter"),
                       ("coupons_batch_requests", "histogram"), ("coupons_commit_duration_seconds", "histogram"),
                       ("coupons_queue_requests", "gauge"), ("coupons_redo_entries", "gauge"), ("coupons_conflicts_total", "counter"),
                       ("coupons_user_filter_bytes", "gauge"), ("coupons_user_cache_bytes", "gauge"),
                       ("coupons_users_cached_total", "counter"), ("coupons_users_new_total", "counter"),
                       ("coupons_users_read_total", "counter"),
                       ("coupons_append_retries_total", "counter"), ("coupons_reporter_lag_seconds", "gauge"),
                       ("coupons_holds_expired_total", "counter"), ("coupons_sweeps_total", "counter"),
                       ("coupons_jobs_running", "gauge"), ("coupons_jobs_finished_total", "counter"),
                       ("coupons_deliveries_total", "counter"), ("coupons_deliveries_pending", "gauge")):
        assert families[name].kind == kind, name
    assert families["coupons_requests_total"].labels == {"route", "status"}
    assert families["coupons_decisions_total"].labels == {"code"}


def test_requests_and_decisions_are_counted_exactly(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"per_user": 1})
    grown, began = Growth(stack), time.monotonic()
    for user in ("a", "b", "c", "d"):
        storefront.take(coupon, user)
    storefront.take(coupon, "a")  # has one
    storefront.take("never-made", "a").expect(404)
    storefront.get(f"/coupons/{'x' * 30}/nothing/here").expect(404)
    wait_until("the last to be counted, which is after its answer", lambda: grown("coupons_request_duration_seconds_count") >= 7)
    assert grown("coupons_requests_total", route="redemption_take", status=201) == 3
    assert grown("coupons_requests_total", route="redemption_take", status=409) == 2
    assert grown("coupons_requests_total", route="redemption_take", status=404) == 1
    assert grown("coupons_requests_total", route="none", status=404) == 1, "a path that is none must not make a series of its own"
    assert grown("coupons_decisions_total", code="ok") == 3
    assert grown("coupons_decisions_total", code="sold_out") == 1
    assert grown("coupons_decisions_total", code="user_cap_reached") == 1
    assert 0 < grown("coupons_request_duration_seconds_sum") < 60 + time.monotonic() - began


def test_users_are_counted_by_where_they_were_found(beside):
    """One that has the coupon in memory knows who is new to it. Another worker has neither."""
    stack = beside()
    coupon = stack.coupon(slots=20, cap={"per_user": 3})
    grown = Growth(stack)
    one, other = (stack.direct(i) for i in range(WORKERS))
    one.take(coupon, "first").expect(201)
    news = grown("coupons_users_new_total")
    one.take_each(coupon, (f"u-{i}" for i in range(10)))
    assert grown("coupons_users_new_total") == news + 10
    cached, read = grown("coupons_users_cached_total"), grown("coupons_users_read_total")
    one.take(coupon, "u-3", key="again").expect(201)
    assert (grown("coupons_users_cached_total"), grown("coupons_users_read_total")) == (cached + 1, read)
    families = look(stack)
    assert 0 < exposition.total(families, "coupons_user_filter_bytes") <= 2 * 64 << 20
    assert 0 < exposition.total(families, "coupons_user_cache_bytes") <= 2 * 64 << 20
    stack.kill_workers()
    read = grown("coupons_users_read_total")
    stack.direct(1).take(coupon, "u-3", key="once more").expect(201)
    assert grown("coupons_users_read_total") > read


def test_batches_are_counted_with_their_size_and_their_time(stack, storefront):
    coupon = stack.coupon(slots=20)
    grown, seq, began = Growth(stack), stack.counts(coupon)["seq"], time.monotonic()
    storefront.take_each(coupon, (f"u-{i}" for i in range(20)))
    batches = stack.counts(coupon)["seq"] - seq
    assert grown("coupons_batches_total") >= batches
    assert grown("coupons_commit_duration_seconds_count") >= batches
    assert grown("coupons_ledger_entries_total") >= 20
    assert grown("coupons_batch_requests_sum") >= 20
    assert 0 < grown("coupons_commit_duration_seconds_sum") < 60 + time.monotonic() - began
    wait_until("the reporter to fold them", lambda: grown("coupons_reporter_batches_total") >= batches)
    assert 0 <= exposition.total(look(stack), "coupons_reporter_lag_seconds") < 60


def test_jobs_are_counted(stack):
    grown = Growth(stack)
    stack.coupon(slots=100)
    wait_until("the job to be counted", lambda: grown("coupons_jobs_finished_total") >= 1)
    wait_until("none to run", lambda: exposition.total(look(stack), "coupons_jobs_running") == 0)


def test_a_hold_that_ran_out_is_counted_once(beside):
    """On a stack of its own: holds of others end at any time."""
    stack = beside()
    storefront = stack.client("storefront")
    coupon = stack.coupon(slots=1)
    grown = Growth(stack)
    storefront.take(coupon, "a", state="reserved", reserve_s=1).expect(201)
    wait_until("its slot to be free again", lambda: storefront.take(coupon, "b").status == 201)
    assert grown("coupons_holds_expired_total") == 1
    assert stack.counts(coupon)["redeemed"] == 1


def test_every_worker_tells_the_sum_of_all(stack):
    before = [look(stack, stack.direct(i, "ops")) for i in range(WORKERS)]
    for i in range(WORKERS):
        for _ in range(5 * (i + 1)):
            stack.direct(i).get("/coupons/-/health").expect(200)
    wanted = sum(5 * (i + 1) for i in range(WORKERS))

    def grown():
        return [exposition.total(look(stack, stack.direct(i, "ops")), "coupons_requests_total", route="health")
                - exposition.total(before[i], "coupons_requests_total", route="health") for i in range(WORKERS)]

    wait_until(lambda: f"{wanted} requests to be counted: {grown()}", lambda: all(g >= wanted for g in grown()))
    assert all(g < wanted + 20 for g in grown()), grown()  # others may ask for health meanwhile


def test_counters_survive_the_death_of_a_worker_and_gauges_do_not(beside):
    stack = beside()
    coupon = stack.coupon(slots=50)
    direct = [stack.direct(i) for i in range(WORKERS)]
    for i in range(50):
        direct[i % WORKERS].take(coupon, f"u-{i}").expect(201)
    before = look(stack)
    stack.kill_workers()
    after = look(stack)
    for name, family in before.items():
        if family.kind == "counter":
            for (sample, labels), value in family.samples.items():
                assert after[name].samples.get((sample, labels), 0) >= value, f"{sample}{labels} went back"
    assert exposition.total(after, "coupons_decisions_total", code="ok") == 50
    assert exposition.total(after, "coupons_respawns_total") == WORKERS
    assert exposition.total(after, "coupons_start_time_seconds") == exposition.total(before, "coupons_start_time_seconds")
    assert abs(exposition.total(after, "coupons_start_time_seconds") - time.time()) < 600
    assert 1 <= exposition.total(after, "coupons_requests_in_flight") <= 2, "what was in flight at a death is not any more"
    assert 0 <= exposition.total(after, "coupons_connections") <= 8


def test_counters_go_on_over_a_reload(beside):
    stack = beside()
    coupon = stack.coupon(slots=20)
    storefront, before = stack.client("storefront"), stack.pids()
    storefront.take_each(coupon, (f"u-{i}" for i in range(10)))
    stack.signal("coupond", signal.SIGHUP)
    wait_until("successors", lambda: all(p and p != before[n] for n, p in stack.pids().items()))
    storefront.take_each(coupon, (f"u-{i}" for i in range(10, 20)))
    assert exposition.total(look(stack), "coupons_decisions_total", code="ok") == 20


def test_who_is_killed_while_it_drains_leaves_nothing_in_the_gauges(beside):
    stack = beside("[coupond]\ndrain_s = 1\n")
    kept = [stack.direct(0) for _ in range(30)]
    for client in kept:
        client.get("/coupons/-/health").expect(200)
    assert exposition.total(look(stack), "coupons_connections") >= 30
    old = stack.signal("worker-0", signal.SIGSTOP)  # so that it cannot say good-bye
    stack.signal("coupond", signal.SIGHUP)
    wait_until("its end", lambda: not is_alive(old))
    assert stack.pid("worker-0") != old
    wait_until("the gauge to forget its connections", lambda: exposition.total(look(stack), "coupons_connections") < 15)


# ---- single coupons ----

def counted(families, coupon):
    """What the metrics say of a coupon: {} nothing."""
    of = (("coupon", coupon),)
    stock = {name: families[f"coupons_coupon_{name}"].samples.get((f"coupons_coupon_{name}", of)) for name in ("free", "taken")}
    return {name: n for name, n in stock.items() if n is not None}


def await_told(stack, coupon, expected):
    wait_until(lambda: f"{expected} of {coupon}: {counted(look(stack), coupon)}", lambda: counted(look(stack), coupon) == expected, every=0.5)


def test_active_coupons_are_told_with_what_is_free_and_taken(stack, storefront):
    coupon, spread, free_for_all, draft = (
        stack.coupon(slots=3), stack.coupon(slots=40, lanes=3), stack.coupon(cap={"policy": "none", "total": None}),
        stack.coupon(slots=1, state="draft"))
    for user in ("a", "b", "a"):
        storefront.take(coupon, user)
    storefront.take(coupon, "c", state="reserved").expect(201)
    storefront.take(coupon, "d").problem("sold_out")
    storefront.take(draft, "a").problem("coupon_not_active")
    for i in range(20):
        storefront.take(spread, f"u-{i}").expect(201)
        storefront.take(free_for_all, f"u-{i}").expect(201)
    await_told(stack, coupon, {"free": 0, "taken": 3})
    await_told(stack, spread, {"free": 20, "taken": 20})
    await_told(stack, free_for_all, {"taken": 20})
    assert counted(look(stack), draft) == {}
    every = [counted(look(stack, stack.direct(i, "ops")), coupon) for i in range(WORKERS)]
    assert every == [every[0]] * WORKERS, "whichever worker is asked"
    stack.patch(coupon, {"state": "paused"})
    await_told(stack, coupon, {})


@pytest.mark.full
def test_so_many_coupons_are_told_as_the_setting_says(beside):
    stack = beside("[metrics]\ncoupons = 2\n")
    coupons = [stack.coupon(slots=1, id=f"c-{i}") for i in range(4)]

    def names():
        return {dict(labels)["coupon"] for _, labels in look(stack)["coupons_coupon_free"].samples}

    wait_until(lambda: f"the two newest: {names()}", lambda: names() == set(coupons[2:]), every=0.5)


# ---- conf/ ----

SELECTOR = re.compile(r"\b(coupons_[a-z_]+)(?:\{([^}]*)\})?")
OF_PROMETHEUS = {"instance", "job", "le"}


def expressions():
    """(where, PromQL) of everything under conf/ that names metrics."""
    dashboard = json.loads((ROOT / "conf/grafana/coupons.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["targets"]
        for target in panel["targets"]:
            yield f"dashboard: {panel['title']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"dashboard: ${variable['name']}", variable["query"]
    rules = (ROOT / "conf/prometheus/coupons-alerts.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)\n +expr: (.+)\n((?: {8}.*\n)*)", rules)
    assert len(alerts) == rules.count("- alert:") > 10, "an alert is written otherwise than the test reads it"
    for name, expression, rest in alerts:
        assert "severity:" in rest and "summary:" in rest, f"{name} has no severity or no summary"
        yield f"alert {name}", expression


def balanced(text):
    depth = []
    pairs = {")": "(", "]": "[", "}": "{"}
    for c in re.sub(r'"[^"]*"', "", text):
        if c in "([{":
            depth.append(c)
        elif c in pairs and (not depth or depth.pop() != pairs[c]):
            return False
    return not depth


def test_dashboard_and_alerts_name_only_what_the_service_counts(stack, storefront):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    families = look(stack)
    named = set()
    for where, expression in expressions():
        assert balanced(expression), f"{where}: {expression}"
        selectors = SELECTOR.findall(expression)
        assert selectors or expression.startswith("up{"), f"{where} names none of our metrics: {expression}"
        for name, matchers in selectors:
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            family = families.get(name) or families.get(base)
            assert family, f"{where}: there is no {name}"
            assert (name != base) == (family.kind == "histogram"), f"{where}: {name} is a {family.kind}"
            assert family.kind != "counter" or re.search(rf"(rate|increase)\({name}", expression), f"{where}: a bare counter"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) | {
                label for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", by)}
            if family.samples:
                assert labels <= family.labels | OF_PROMETHEUS, f"{where}: {name} has no {labels - family.labels - OF_PROMETHEUS}"
            named.add(family.name)
    assert named == set(families), f"on no panel and in no alert: {set(families) - named}"


def test_the_alerts_are_yaml_of_the_right_shape():
    yaml = pytest.importorskip("yaml")
    for group in yaml.safe_load((ROOT / "conf/prometheus/coupons-alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"} and rule["annotations"]["summary"], rule
    (scrape,) = yaml.safe_load((ROOT / "conf/prometheus/scrape.yml").read_text())["scrape_configs"]
    assert (scrape["job_name"], scrape["metrics_path"]) == ("coupons", METRICS)


# ---- what Prometheus itself says ----

def promtool(*words, stdin=None):
    """Its exit code, and what it said."""
    done = subprocess.run(["promtool", *map(str, words)], input=stdin, text=True, capture_output=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def configuration(tmp_path):
    """Prometheus's files as an operator has them, with a key."""
    shutil.copytree(ROOT / "conf/prometheus", tmp_path / "prometheus")
    scrape, key = tmp_path / "prometheus/scrape.yml", tmp_path / "prometheus/coupons.key"
    key.write_text("cpn_key")
    text = scrape.read_text()
    assert text.count("/etc/prometheus/coupons.key") == 2, "in the comment, and where it is used"
    scrape.write_text(text.replace("/etc/prometheus/coupons.key", str(key)))
    return scrape


def test_promtool_accepts_the_configuration_and_its_alerts(configuration):
    code, said = promtool("check", "config", configuration)
    assert code == 0 and re.search(r"SUCCESS: \d\d rules found", said) and "FAILED" not in said, said
    alerts = configuration.parent / "coupons-alerts.yml"
    alerts.write_text(alerts.read_text().replace("rate(", "rates(", 1))
    assert promtool("check", "config", configuration)[0] != 0, "it would accept an alert that it cannot read"


def test_promtool_accepts_the_metrics(stack, storefront):
    coupon = stack.coupon(slots=1)
    storefront.take(coupon, "u").expect(201)
    storefront.take(coupon, "v").problem("sold_out")
    wait_until("the coupon to be counted", lambda: counted(look(stack), coupon))
    code, said = promtool("check", "metrics", stdin=stack.client("ops").get(METRICS).body.decode())
    assert code == 0 and not said, said
