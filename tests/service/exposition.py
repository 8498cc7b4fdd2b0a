"""Prometheus's text format 0.0.4, read strictly: what promtool would complain of fails here, and more."""
import dataclasses
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
VALUE = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


@dataclasses.dataclass
class Family:
    name: str
    help: str
    kind: str = None
    samples: dict = dataclasses.field(default_factory=dict)  # (name, labels as a sorted tuple of pairs) -> value

    @property
    def labels(self):
        return {name for _, labels in self.samples for name, _ in labels}


def labels_of(text, line):
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"labels cannot be read: {line}"
        found.append((match[1], match[2]))
        at = match.end()
        assert match[3] == "" or at < len(text), f"a comma at the end: {line}"
    assert len({name for name, _ in found}) == len(found), f"a label twice: {line}"
    return tuple(sorted(found))


def number(text, line):
    assert VALUE.fullmatch(text), f"no number: {line}"
    return float(text)


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        series.setdefault(rest, []).append((name, dict(labels).get("le"), value))
    for rows in series.values():
        buckets = [(float(le.replace("+Inf", "inf")), value) for name, le, value in rows if name.endswith("_bucket")]
        counts = [value for name, _, value in rows if name.endswith("_count")]
        sums = [value for name, _, value in rows if name.endswith("_sum")]
        assert buckets == sorted(buckets) and len({le for le, _ in buckets}) == len(buckets), f"{family.name}: bounds out of order"
        assert buckets and buckets[-1][0] == float("inf"), f"{family.name}: no +Inf"
        values = [value for _, value in buckets]
        assert values == sorted(values), f"{family.name}: buckets are not cumulative"
        assert counts == [values[-1]] and len(sums) == 1, f"{family.name}: count and sum"


def read(text):
    """{name: Family}; every fault of the text is an AssertionError."""
    assert text.endswith("\n"), "the last line has no end"
    families, current = {}, None
    for line in text[:-1].split("\n"):
        assert line and line == line.strip(), f"an empty line, or blanks around it: {line!r}"
        if line.startswith("# HELP "):
            name, help_ = line[7:].split(" ", 1)
            assert re.fullmatch(NAME, name) and name not in families, f"a second HELP, or no name: {line}"
            current = families[name] = Family(name, help_)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert current and name == current.name and not current.kind and not current.samples, f"TYPE stands wrong: {line}"
            assert kind in SUFFIXES, line
            current.kind = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line}"
            assert current and current.kind, f"a sample before its TYPE: {line}"
            assert match[1] in [current.name + suffix for suffix in SUFFIXES[current.kind]], f"a sample of another family: {line}"
            assert (match[2] is None) == ("{" not in line) and match[2] != "", f"empty braces: {line}"
            key = (match[1], labels_of(match[2] or "", line))
            assert key not in current.samples, f"a series twice: {line}"
            current.samples[key] = number(match[3], line)
    for family in families.values():
        assert family.kind and family.help, f"{family.name} has no TYPE or no HELP"
        assert (family.kind == "counter") == family.name.endswith("_total"), f"{family.name} is a {family.kind}"
        if family.kind == "histogram":
            check_histogram(family)
        if family.kind != "gauge":
            assert all(value >= 0 for value in family.samples.values()), f"{family.name} is negative"
    return families


def total(families, name, **labels):
    """The sum of the samples of that name that have these labels."""
    family = families.get(name) or families[re.sub(r"_(bucket|sum|count)$", "", name)]
    return sum(value for (sample, pairs), value in family.samples.items()
               if sample == name and all((k, str(v)) in pairs for k, v in labels.items()))
