from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from klamm.server.exposition import Exposition
from klamm.server.histogram import Histogram


def parsed(page: Exposition) -> dict[str, list[tuple[str, dict[str, str], float]]]:
    families = text_string_to_metric_families(page.text())
    return {f.name: [(s.name, s.labels, s.value) for s in f.samples] for f in families}


def test_counters_and_gauges_are_read_as_such() -> None:
    page = Exposition()
    page.counter("klamm_things_total", "Things, with a \\ and\na second line.")
    page.add(3, kind="a")
    page.add(2**60, kind="b")
    page.gauge("klamm_level", "How high.")
    page.add(0.25)
    found = parsed(page)
    assert found["klamm_things"] == [
        ("klamm_things_total", {"kind": "a"}, 3),
        ("klamm_things_total", {"kind": "b"}, 2**60),
    ]
    assert found["klamm_level"] == [("klamm_level", {}, 0.25)]


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
def test_any_text_survives_as_a_label(text: str) -> None:
    page = Exposition()
    page.gauge("klamm_level", "How high.")
    page.add(1, name=text, other="x")
    (sample,) = parsed(page)["klamm_level"]
    assert sample[1] == {"name": text, "other": "x"}


@given(st.lists(st.floats(min_value=0, max_value=1000), max_size=50))
def test_a_histogram_counts_each_duration_below_its_bounds(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    page = Exposition()
    page.histogram("klamm_wait_seconds", "Waiting.")
    page.add_durations(histogram.counts, histogram.total_s, api="Fetch")
    samples = parsed(page)["klamm_wait_seconds"]
    buckets = [(float(labels["le"]), value) for name, labels, value in samples if name.endswith("_bucket")]
    assert [le for le, _ in buckets] == sorted(le for le, _ in buckets)
    for le, value in buckets:
        assert value == sum(int(duration * 1e6) < le * 1e6 for duration in durations), le
    (count,) = (value for name, _, value in samples if name.endswith("_count"))
    (total,) = (value for name, _, value in samples if name.endswith("_sum"))
    assert count == len(durations) == buckets[-1][1]
    assert abs(total - sum(durations)) <= 1e-9 * max(1.0, sum(durations))
