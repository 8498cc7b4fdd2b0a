"""Prometheus's text format 0.0.4: families and samples. promtool says whether it is the format (test_metrics.py); here is what it lets pass."""
import dataclasses
import re

SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


@dataclasses.dataclass
class Family:
    name: str
    kind: str
    samples: dict = dataclasses.field(default_factory=dict)  # (name, labels as a sorted tuple of pairs) -> value

    @property
    def labels(self):
        return {name for _, labels in self.samples for name, _ in labels}


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
    """{name: Family}; a fault of the text is an AssertionError."""
    families, current = {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            current = families[name] = Family(name, kind)
        elif not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in [current.name + suffix for suffix in SUFFIXES[current.kind]], f"a sample of another family: {line}"
            key = (name, tuple(sorted(LABEL.findall(labels or ""))))
            assert key not in current.samples, f"a series twice: {line}"
            current.samples[key] = float(value)
    for family in families.values():
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
