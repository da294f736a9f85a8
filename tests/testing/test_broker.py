from __future__ import annotations

import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

import klamm.testing
from klamm.testing import Broker, BrokerGone, BrokerStartError, ErrorCode, Nursery, StoredRecord
from klamm.testing.embedded.nursery import is_available
from support.brokers import Watched, folders_in

NURSERY = [False, pytest.param(True, marks=pytest.mark.skipif(not is_available(), reason="needs Linux's pidfds"))]


@pytest.fixture(params=NURSERY, ids=["spawned", "forked"])
def nursery(request: pytest.FixtureRequest) -> Nursery | None:
    return request.getfixturevalue("klamm_nursery") if request.param else None


def produce(broker: Broker, topic: str, *values: str, **config: str | int | float | bool) -> None:
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, **config})
    for value in values:
        producer.produce(topic, value, key=b"k", headers={"h": b"1"})
    assert producer.flush(30) == 0


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def can_connect(broker: Broker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_broker_lasts_as_long_as_its_block(tmp: Path, nursery: Nursery | None) -> None:
    with klamm.testing.broker(nursery=nursery) as broker:
        process = Watched(broker.pid)
        assert broker.is_running
        assert folders_in(tmp) == {Path(broker.data).parent.name}
        produce(broker, "t", "a", "b")
        assert values(broker, "t") == [b"a", b"b"]
        assert f"at {broker.bootstrap}" in repr(broker)
    assert process.has_ended()
    assert not broker.is_running
    assert "not running" in repr(broker)
    broker.close()
    process.close()


def test_a_block_that_fails_leaves_nothing_behind_either(tmp: Path, nursery: Nursery | None) -> None:
    with pytest.raises(ZeroDivisionError), klamm.testing.broker(nursery=nursery) as broker:
        process = Watched(broker.pid)
        raise ZeroDivisionError
    assert process.has_ended()
    process.close()


def test_options_have_kafkas_names_with_underscores(nursery: Nursery | None) -> None:
    with klamm.testing.broker(
        nursery=nursery, num_partitions=7, auto_create_topics_enable=True, log_cleanup_policy=["delete"]
    ) as broker:
        produce(broker, "t", "a")
        assert broker.topics() == {"t": 7}


def test_a_topic_is_created_with_its_configs(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t", 3, max_message_bytes=1000)
    assert klamm_broker.topics() == {"t": 3}
    with pytest.raises(ValueError, match="TOPIC_ALREADY_EXISTS"):
        klamm_broker.create_topic("t")
    with pytest.raises(ValueError, match=r"max\.mesage\.bytes"):
        klamm_broker.create_topic("u", max_mesage_bytes=1000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_shown_as_they_are_stored(klamm_session_broker: Broker, codec: str) -> None:
    topic = f"stored-{codec}"
    klamm_session_broker.create_topic(topic, 2)
    producer = Producer(
        {"log_level": 0, "bootstrap.servers": klamm_session_broker.bootstrap, "compression.type": codec}
    )
    for i in range(100):
        producer.produce(topic, f"value {i}", key=f"key {i}", partition=1, timestamp=1000 + i, headers=[("h", None)])
    producer.produce(topic, None, key="gone", partition=0, timestamp=7)
    assert producer.flush(30) == 0
    assert klamm_session_broker.records(topic) == [
        StoredRecord(0, 0, 7, b"gone", None, ()),
        *(StoredRecord(1, i, 1000 + i, b"key %d" % i, b"value %d" % i, (("h", None),)) for i in range(100)),
    ]
    assert len(klamm_session_broker.records(topic, 0)) == 1


def test_an_embedded_broker_compacts(tmp: Path, nursery: Nursery | None) -> None:
    options = {
        "log_cleanup_policy": "compact",
        "log_cleaner_backoff_ms": 20,
        "log_cleaner_min_cleanable_ratio": 0.01,
        "log_segment_bytes": 1000,
    }
    with Broker(nursery=nursery, options=options) as broker:
        producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
        for number in range(200):
            producer.produce("t", b"%d" % number, key=b"k", partition=0)
            producer.flush(30)
        while len(broker.records("t")) > 50:
            pass
        assert broker.records("t")[-1].value == b"199"


def test_records_of_what_is_not_there_are_a_mistake(klamm_broker: Broker) -> None:
    with pytest.raises(ValueError, match="no topic t"):
        klamm_broker.records("t")
    klamm_broker.create_topic("t", 2)
    assert klamm_broker.records("t") == []
    with pytest.raises(ValueError, match="2 partitions"):
        klamm_broker.records("t", 2)


def test_mistakes_in_options_are_told_with_the_nearest_name(tmp: Path, nursery: Nursery | None) -> None:
    with pytest.raises(BrokerStartError, match=r"did you mean num\.partitions\?"):
        klamm.testing.broker(nursery=nursery, num_partition=1).start()
    with pytest.raises(BrokerStartError, match=r"num\.partitions"):
        klamm.testing.broker(nursery=nursery, num_partitions="many").start()


def test_a_broker_that_dies_at_its_start_shows_its_log(tmp: Path, nursery: Nursery | None, tmp_path: Path) -> None:
    data = tmp_path / "file"
    data.write_text("in the way")
    with pytest.raises(BrokerStartError):
        klamm.testing.broker(nursery=nursery, data=data).start()
    with pytest.raises(BrokerStartError, match="no log level"):
        klamm.testing.broker(nursery=nursery, log_level="loud").start()


def test_a_port_in_use_is_told(tmp: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerStartError, match="in use"):
            klamm.testing.broker(port=port).start()


def test_a_chosen_port_is_taken() -> None:
    with klamm.testing.broker() as first:
        port = first.port
    with klamm.testing.broker(port=port) as second:
        assert second.bootstrap == f"127.0.0.1:{port}"


def test_an_acknowledged_record_survives_a_kill_and_the_port_stays(tmp: Path, nursery: Nursery | None) -> None:
    with klamm.testing.broker(nursery=nursery) as broker:
        port = broker.port
        produce(broker, "t", "a", acks="all")
        broker.kill()
        assert not can_connect(broker)
        broker.start()
        assert broker.port == port
        assert values(broker, "t") == [b"a"]
        produce(broker, "t", "b")
        broker.restart()
        assert values(broker, "t") == [b"a", b"b"]
        broker.stop()
        broker.stop()
        assert not can_connect(broker)


def test_a_stopped_broker_says_so(klamm_broker: Broker) -> None:
    klamm_broker.stop()
    with pytest.raises(BrokerGone, match="start it first"):
        klamm_broker.pause()
    klamm_broker.start()
    with pytest.raises(RuntimeError, match="runs already"):
        klamm_broker.start()


def test_a_broker_that_somebody_killed_is_noticed(klamm_broker: Broker) -> None:
    process = Watched(klamm_broker.pid)
    process.kill()
    assert process.has_ended()
    process.close()
    with pytest.raises(BrokerGone):
        klamm_broker.topics()
    assert not klamm_broker.is_running
    klamm_broker.start()
    assert klamm_broker.is_running


def test_before_its_start_a_broker_has_no_address() -> None:
    broker = klamm.testing.broker()
    for missing in ("bootstrap", "port", "data"):
        with pytest.raises(RuntimeError, match="before it is started"):
            getattr(broker, missing)
    assert broker.log == ""
    assert "not started" in repr(broker)
    broker.close()


def test_data_in_a_folder_of_ones_own_stays_and_is_stopped_cleanly(tmp: Path, tmp_path: Path) -> None:
    data = tmp_path / "mine"
    with klamm.testing.broker(data=data) as broker:
        assert broker.data == str(data)
        produce(broker, "t", "a")
    assert json.loads((data / "state.json").read_bytes())["clean"] is True
    with klamm.testing.broker(data=data) as broker:
        assert values(broker, "t") == [b"a"]


def test_the_log_of_the_broker_can_be_read() -> None:
    with klamm.testing.broker(log_level="info") as broker:
        assert f"serves {broker.bootstrap}" in broker.log


def test_many_brokers_run_at_once(tmp: Path, nursery: Nursery | None) -> None:
    with ThreadPoolExecutor(12) as pool:
        brokers = [klamm.testing.broker(nursery=nursery) for _ in range(12)]
        list(pool.map(Broker.start, brokers))
        assert len({broker.port for broker in brokers}) == 12
        list(pool.map(lambda broker: broker.create_topic(f"of-{broker.port}"), brokers))
        assert [broker.topics() for broker in brokers] == [{f"of-{broker.port}": 1} for broker in brokers]
        list(pool.map(Broker.close, brokers))


def test_commands_may_come_from_many_threads(klamm_broker: Broker) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                klamm_broker.create_topic(f"t-{number}-{i}")
                klamm_broker.request_count("Produce")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(klamm_broker.topics()) == 80


def test_a_forked_process_does_not_take_the_broker_along(klamm_broker: Broker) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            klamm_broker.close()
            klamm_broker.topics()
        except RuntimeError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert klamm_broker.is_running


def test_errors_are_named_or_numbered(klamm_broker: Broker) -> None:
    klamm_broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    klamm_broker.fail("produce", "not_leader_or_follower", times=2)
    klamm_broker.fail(0, 6)
    assert klamm_broker.faults_left("Produce") == 4
    klamm_broker.clear_faults()
    assert klamm_broker.faults_left("Produce") == 0
    with pytest.raises(ValueError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        klamm_broker.fail("Produce", "NOT_LEADER")
    with pytest.raises(ValueError, match="did you mean Produce"):
        klamm_broker.fail("Product", 6)


def test_time_goes_forward_only(klamm_broker: Broker) -> None:
    klamm_broker.advance_time(timedelta(days=1))
    with pytest.raises(ValueError, match="forward"):
        klamm_broker.advance_time(-1)


@pytest.mark.skipif(not is_available(), reason="needs Linux's pidfds")
def test_a_nursery_that_was_killed_is_made_again(tmp: Path) -> None:
    with Nursery() as nursery:
        with klamm.testing.broker(nursery=nursery) as first:
            assert nursery._process is not None
            killed = nursery._process
            killed.kill()
            assert killed.wait(30)
            assert first.is_running, "its brokers live on"
            with klamm.testing.broker(nursery=nursery) as second:
                assert second.is_running
        assert nursery._process is not killed


def test_an_interrupted_question_does_not_spoil_the_next(klamm_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = klamm_broker._channel
    assert channel is not None
    with monkeypatch.context() as patched:
        patched.setattr(channel, "_answer", lambda timeout_s: (_ for _ in ()).throw(KeyboardInterrupt).__next__())
        with pytest.raises(KeyboardInterrupt):
            klamm_broker.create_topic("t")
    assert klamm_broker.topics() == {"t": 1}


def test_the_package_shows_its_names() -> None:
    for name in klamm.testing.__all__:
        assert getattr(klamm.testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'brokers'"):
        klamm.testing.brokers  # type: ignore[attr-defined]  # noqa: B018


def test_listeners_of_ones_own_are_where_clients_are_sent() -> None:
    with klamm.testing.broker(listeners="ONE://127.0.0.1:0", listener_security_protocol_map="ONE:PLAINTEXT",
                              inter_broker_listener_name="ONE") as broker:  # fmt: skip
        produce(broker, "t", "a")
        assert values(broker, "t") == [b"a"]


def test_a_folder_is_named_with_data() -> None:
    with pytest.raises(ValueError, match="data="):
        klamm.testing.broker(log_dirs="/somewhere")
