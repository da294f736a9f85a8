"""What `klamm top` makes of samples, and how it shows it."""

from __future__ import annotations

from klamm.cli.scrape import Page, parse
from klamm.cli.top_model import Model, Sample
from klamm.cli.top_screen import Look, as_json, as_text, graph, screen
from klamm.client.metadata import Broker, Metadata, Partition, Topic
from klamm.core.errors import ErrorCode

PAGE = """\
# HELP klamm_connections Open connections by listener.
# TYPE klamm_connections gauge
klamm_connections{listener="PLAINTEXT"} 7
klamm_connections{listener="INSIDE"} 2
klamm_requests_total{api="Produce"} 100
klamm_requests_total{api="Fetch"} 50
klamm_request_bytes_total{api="Produce"} 1e6
klamm_topic_sent_bytes_total{topic="orders"} 4096
klamm_log_end_offset{topic="orders",partition="0"} 5
process_cpu_seconds_total 1.5
process_resident_memory_bytes 30000000
nonsense
klamm_requests_total{api="Bad"} many
"""


def topic(name: str, leaders: tuple[int, ...] = (1,), *, internal: bool = False) -> Topic:
    partitions = {i: Partition(i, leader, 0, (1, 2), (1, 2), ()) for i, leader in enumerate(leaders)}
    return Topic(name, bytes(16), internal, ErrorCode.NONE, partitions)


def sample(at: float, ends: dict[tuple[str, int], int], *topics: Topic, pages: dict[int, Page] | None = None) -> Sample:
    brokers = {1: Broker(1, "one", 9092), 2: Broker(2, "two", 9092)}
    metadata = Metadata(brokers, 1, "cluster", {topic.name: topic for topic in topics})
    sizes = {place: end * 100 for place, end in ends.items()}
    return Sample(at, metadata, dict.fromkeys(ends, 0), ends, sizes, pages or {})


def test_rates_are_what_grew_between_two_samples_by_the_second() -> None:
    model = Model()
    model.add(sample(10.0, {("a", 0): 100, ("b", 0): 5, ("b", 1): 5}, topic("a"), topic("b", (1, 1))))
    assert [row.records_s for row in model.topics()] == [None, None]
    model.add(sample(12.0, {("a", 0): 120, ("b", 0): 105, ("b", 1): 105}, topic("a"), topic("b", (1, 1))))
    assert [(row.name, row.records_s, row.written_s) for row in model.topics()] == [
        ("b", 100.0, 10_000.0),
        ("a", 10.0, 1000.0),
    ]
    assert model.totals() == (110.0, 11_000.0, None)
    assert [row.name for row in model.topics("name")] == ["a", "b"]
    assert [row.name for row in model.topics("size")] == ["b", "a"]


def test_a_topic_that_was_made_anew_or_is_new_has_no_negative_rate() -> None:
    model = Model()
    model.add(sample(0.0, {("a", 0): 100}, topic("a")))
    model.add(sample(1.0, {("a", 0): 3, ("new", 0): 9}, topic("a"), topic("new")))
    assert {row.name: row.records_s for row in model.topics()} == {"a": 0.0, "new": None}


def test_the_history_of_a_deleted_topic_goes() -> None:
    model = Model()
    for at in range(100):
        model.add(sample(float(at), {("a", 0): at}, topic("a")))
    assert len(model.history("a")) == 60
    model.add(sample(100.0, {}, topic("b")))
    assert model.history("a") == ()


def test_what_the_metrics_page_counts_is_summed_over_its_labels() -> None:
    page = parse(PAGE)
    assert (page.connections, page.requests, page.received_bytes) == (9, 150, 1e6)
    assert (page.cpu_s, page.memory_bytes, page.topic_sent) == (1.5, 3e7, {"orders": 4096})


def test_brokers_with_a_page_show_connections_and_rates() -> None:
    model = Model()
    before, after = parse(PAGE), parse(PAGE.replace('"Produce"} 100', '"Produce"} 300'))
    after = after._replace(topic_sent={"orders": 8192})
    model.add(sample(0.0, {("orders", 0): 1}, topic("orders"), pages={1: before}))
    model.add(sample(2.0, {("orders", 0): 1}, topic("orders"), pages={1: after}))
    ours, other = model.brokers()
    assert (ours.connections, ours.requests_s, ours.notes) == (9, 100.0, "controller")
    assert (other.connections, other.requests_s) == (None, None)
    assert model.topics()[0].read_s == 2048.0


def test_the_screen_fits_the_terminal() -> None:
    model = Model()
    topics = [topic(f"topic-{i}") for i in range(50)]
    for at in (0.0, 1.0):
        model.add(sample(at, {(one.name, 0): int(at) * 10 for one in topics}, *topics))
    for width, height in ((120, 40), (40, 10), (80, 5), (20, 2)):
        lines = screen(model, Look(), width, height)
        assert len(lines) == height
        plain = [line.replace("\x1b[1m", "").replace("\x1b[7m", "").replace("\x1b[0m", "") for line in lines]
        assert max(map(len, plain)) <= width
    assert "... and " in "\n".join(screen(model, Look(), 120, 20))


def test_trouble_and_problems_are_on_the_screen() -> None:
    model = Model()
    assert "asking" in "\n".join(screen(model, Look(), 80, 10))
    assert "gone" in "\n".join(screen(model, Look(), 80, 10, trouble="gone"))
    model.add(sample(0.0, {}, topic("sick", (-1,))))
    assert "sick: 1 without leader" in "\n".join(screen(model, Look(), 80, 10))
    assert "problem: sick: 1 without leader" in as_text(model, Look())


def test_internal_topics_are_shown_when_asked_for() -> None:
    model = Model()
    model.add(sample(0.0, {}, topic("mine"), topic("__theirs", internal=True)))
    assert [row["name"] for row in as_json(model, Look())["topics"]] == ["mine"]
    assert len(as_json(model, Look(internal=True))["topics"]) == 2
    assert [row["name"] for row in as_json(model, Look(internal=True, pattern="min"))["topics"]] == ["mine"]


def test_a_graph_is_scaled_to_its_highest_value() -> None:
    assert graph([0, 4, 8], 10) == "▁▅█"
    assert graph([0, 0], 10) == "▁▁"
    assert graph([1, 2, 8], 1) == "█"
    assert graph([], 10) == ""
