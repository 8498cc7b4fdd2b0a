"""What the soak takes for flat, and what not."""
import random

from soak import SLICE_S, carried, grown, judge


def line(start, per_s, noise, seconds=600, every=2):
    chance = random.Random(1)
    return [(t, start + per_s * t + chance.uniform(-noise, noise)) for t in range(0, seconds, every)]


def test_a_leak_is_found_below_noise_and_a_cache_that_fills_is_none():
    by, may = grown(line(50, 0.05, 5), "rss_mib", 600)
    assert 25 < by < 35 and by > may, (by, may)
    filling = [(t, min(80, 20 + t / 2)) for t, _ in line(0, 0, 0)]
    by, may = grown(filling, "rss_mib", 600)
    assert by < 0.1 < may, (by, may)


def test_a_single_bad_moment_is_no_slope():
    points = line(5, 0, 0.2)
    points[-3:] = [(t, 500) for t, _ in points[-3:]]
    by, may = grown(points, "p99_ms", 600)
    assert abs(by) < 0.1 < may, (by, may)


def test_complaints_name_what_grows():
    slices = [{"t": t, "p50_ms": 5, "p99_ms": 20 + t} for t in range(5, 600, 10)]
    memory = {"worker-0": line(60, 0, 1), "reporter": line(20, 0.1, 1), "mongod": line(200, 1, 1)}
    said, complaints = judge(slices, memory, 600)
    named = [complaint.split(":")[1].strip() for complaint in complaints]
    assert len(said) == 5 and named == ["memory of reporter", "latency, p99"], complaints


def test_who_is_told_busy_was_not_carried():
    assert carried([{"all_accepted": 96 * SLICE_S}, {"all_accepted": 98 * SLICE_S}], 100) == []
    [complaint] = carried([{"all_accepted": 100 * SLICE_S}, {"all_accepted": 80 * SLICE_S}], 100)
    assert f"{180 * SLICE_S} were accepted" in complaint
