"""The examples of the papers, run as a reader would type them, give what the papers show."""
import re
import subprocess

import pytest

from stack import PATIENCE_S, ROOT

# What differs from run to run.
VARIES = [(r'"request_id":"[0-9a-f]{8}-[0-9]+\.[0-9]{3}-[0-9]+-[0-9]+"', '"request_id":"..."'), (r"\(job [0-9a-z]{16}\)", "(job ...)"),
          (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME")]


def examples(paper):
    """[command, what it printed] for each line that begins with "$ "; a command goes on in lines that are indented."""
    steps = []
    for block in re.findall(r"^```\n(.*?)^```", paper.read_text(), re.S | re.M):
        inside = False
        for line in block.splitlines():
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


@pytest.mark.parametrize("paper", ["README.md", "app/http/README.md"])
def test_the_examples_print_what_the_paper_shows(another_stack, paper):
    steps = examples(ROOT / paper)
    stack = another_stack(settings="[runner]\nstep_slots = 65536\n")  # as it is by default
    shell = "".join(f"{command}\nprintf '\\036'\n" for command, _ in steps)
    shell = shell.replace(":8080", f":{stack.port}").replace("$(cat var/", f"$(cat {stack.var}/")
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, env=stack.environment, text=True, capture_output=True, timeout=PATIENCE_S)
    printed = done.stdout.split("\036")[:-1]
    # curl ends its answer without a newline
    seen = [(command, shown(text.strip())) for (command, _), text in zip(steps, printed, strict=True)]
    assert len(steps) > 5 and seen == [(command, shown(text.strip())) for command, text in steps], done.stderr
