"""What the papers tell a reader to type does what they say. The word after a block's fence says what it is:

sh                commands that must succeed
console           commands after `$ `, with what they print
sh elsewhere      commands that need root, another machine or much time: their syntax is checked
output, text, ini, cron, js, python    no commands
"""
import re
import subprocess

import pytest

from stack import ROOT, wait_until

PAPERS = [path for path in sorted(ROOT.rglob("*.md")) if "build" not in path.relative_to(ROOT).parts[0] and "node_modules" not in path.parts]
KINDS = {"sh", "sh elsewhere", "console", "output", "text", "ini", "cron", "js", "python"}
AS_BY_DEFAULT = "[runner]\nstep_slots = 65536\n"
# What differs from run to run.
VARIES = [(r'"request_id":"[0-9a-f]{8}-[0-9]+\.[0-9]{3}-[0-9]+-[0-9]+"', '"request_id":"..."'), (r"\(job [0-9a-z]{16}\)", "(job ...)"),
          (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME")]


def blocks(paper):
    """(line, kind, text) of each fenced block."""
    found, start = [], None
    for number, line in enumerate(paper.read_text().splitlines(), 1):
        if not line.startswith("```"):
            continue
        if start is None:
            start, kind = number, line[3:]
        else:
            assert line == "```", f"{paper}:{number}: a block within the one of line {start}"
            found.append((start, kind, "\n".join(paper.read_text().splitlines()[start:number - 1]) + "\n"))
            start = None
    assert start is None, f"{paper}:{start}: a block without an end"
    return found


def examples(paper):
    """[command, what it printed] for each line that begins with "$ "; a command goes on in lines that are indented."""
    steps = []
    for _, kind, block in blocks(paper):
        inside = False
        for line in block.splitlines() if kind == "console" else ():
            if line.startswith("$ "):
                steps.append([line[2:], ""])
                inside = True
            elif inside and line.startswith("    ") and not steps[-1][1]:
                steps[-1][0] += "\n" + line
            elif inside:
                steps[-1][1] += line + "\n"
    return steps


def shown(text):
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return text


def of(stack, text, directory):
    """The command with the test's directories instead of a reader's. The copy is the one in COUPONS_VAR."""
    instead = {"scripts/": f"{ROOT}/scripts/", "/tmp/": f"{directory}/", "/backup": f"{directory}/backup", ":8080": f":{stack.port}"}
    return re.sub(r"(?<![\w/.-])(?:scripts/|/tmp/|/backup\b)|:8080", lambda found: instead[found[0]], text)


def run(stack, shell, directory):
    return subprocess.run(["bash", "-c", of(stack, shell, directory)], cwd=directory, env=stack.environment, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=600)


def test_every_block_says_what_it_is():
    unsaid = [f"{paper.relative_to(ROOT)}:{line}: {kind!r}" for paper in PAPERS for line, kind, _ in blocks(paper) if kind not in KINDS]
    assert len(PAPERS) > 10 and not unsaid, f"not one of {sorted(KINDS)}: {unsaid}"


def test_commands_are_for_the_copy_in_coupons_var():
    own = [f"{paper.relative_to(ROOT)}:{line}" for paper in PAPERS for line, kind, text in blocks(paper)
           if kind in ("sh", "console") and re.search(r"(?<![\w$/{-])var/", text)]
    assert not own, f"var/ where ${{COUPONS_VAR:-var}} may be another: {own}"


def test_what_is_run_elsewhere_is_a_script_that_names_what_there_is(tmp_path):
    for paper in PAPERS:
        for line, kind, text in blocks(paper):
            if not kind.startswith("sh"):
                continue
            done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
            assert done.returncode == 0 and not done.stderr, f"{paper}:{line}: {done.stderr}"
            for named in re.findall(r"(?<![\w/.-])(?:scripts|tests)/[\w/-]+", text):
                assert (ROOT / named).exists(), f"{paper}:{line}: there is no {named}"


@pytest.mark.parametrize("paper", ["README.md", "app/http/README.md"])
def test_the_examples_print_what_the_paper_shows(another_stack, tmp_path, paper):
    steps = examples(ROOT / paper)
    stack = another_stack(AS_BY_DEFAULT)
    done = run(stack, "".join(f"{command}\nprintf '\\036'\n" for command, _ in steps), tmp_path)
    printed = done.stdout.split("\036")[:-1]
    # curl ends its answer without a newline
    seen = [(command, shown(text.strip())) for (command, _), text in zip(steps, printed, strict=True)]
    assert len(steps) > 5 and seen == [(command, shown(text.strip())) for command, text in steps], done.stderr


def before_the_restore(stack, directory):
    """Something that only a backup lacks, and files that list what it has."""
    backup = directory / "backup"
    shop = stack.client("storefront")
    known = stack.client("ops").get("/coupons/kept/redemptions").ok()["items"][0]["id"]
    receipt = shop.get(f"/coupons/kept/redemptions/{known}/receipt").ok()["receipt"]
    (backup / "receipts.txt").write_text(receipt + "\n")
    (backup / "events.ndjson").write_text("")
    stack.ctl("archive", "--keep", "--output", backup / "summer-sale.gz", "kept")
    shop.take("kept", "later").ok(201)
    marked = (stack.var / "high_water").stat().st_mtime_ns
    wait_until("the high-water mark", lambda: (stack.var / "high_water").stat().st_mtime_ns > marked)


def test_the_commands_of_the_papers_do_what_they_say(another_stack, tmp_path):
    """All of them in one copy, in the order in which they come."""
    stack = another_stack(AS_BY_DEFAULT)
    stack.coupon(slots=10, id="kept")
    stack.client("storefront").take("kept", "early").ok(201)
    said = {}
    for paper in PAPERS:
        for line, kind, text in blocks(paper):
            if kind != "sh":
                continue
            if "couponctl restored" in text:
                before_the_restore(stack, tmp_path)
            done = run(stack, "set -eo pipefail\n" + text, tmp_path)
            at = f"{paper.relative_to(ROOT)}:{line}"
            assert done.returncode == 0, f"{at}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            said[text] = done.stdout + done.stderr
    answered = "".join(said.values())
    for word in ("Requests/sec:", "kept: ok, ", "restored: epoch 1", "anchors, signed by the public key"):
        assert word in answered, f"{word} is not in\n{answered}"
    assert [item["user"] for item in stack.client("ops").get("/coupons/kept/redemptions").ok()["items"]] == ["early"], "it was restored"
