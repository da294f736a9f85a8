"""Options of Kafka that have no effect: a Kafka file loads, and a start that meets none of them does not load them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from klamm.core.options import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    Kind,
    OptionError,
    Options,
    Update,
    find_option,
    parse_listeners,
    parse_properties,
)
from klamm.core.options.client_metrics import check_client_metrics
from klamm.core.options.groups import GROUP_OPTIONS, check_group_configs
from klamm.core.options.known import KNOWN_OPTIONS

# What a fresh Kafka 4 has in config/server.properties, without its comments.
STOCK_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_kafkas_own_file_loads_with_one_warning_that_names_what_has_no_effect() -> None:
    options = Options.from_mapping(parse_properties(STOCK_FILE), strict=False)
    (warning,) = options.warnings
    assert warning.startswith("known, but without effect in Klamm: process.roles, controller.quorum.bootstrap.servers,")
    assert "num.io.threads" not in warning
    (listener,) = parse_listeners(options)
    assert (listener.name, listener.port) == ("PLAINTEXT", 9092)


def test_a_start_that_meets_none_of_them_does_not_load_them() -> None:
    program = (
        "import sys; from klamm.core.options import Options; import klamm.server.node;"
        "Options.from_mapping({'log.retention.hours': 5, 'log.dirs': '/x', 'listeners': 'PLAINTEXT://:9'});"
        "print([name for name in sys.modules if 'options.known' in name or 'options.groups' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_no_option_is_in_both_lists_and_ours_are_all_honoured() -> None:
    assert not BROKER_OPTIONS.keys() & KNOWN_OPTIONS.keys()
    assert all(option.honoured for option in BROKER_OPTIONS.values())
    assert not any(option.honoured for option in KNOWN_OPTIONS.values())
    assert len(KNOWN_OPTIONS) > 200  # what becomes honoured moves to ours


@pytest.mark.parametrize("table", [BROKER_OPTIONS, KNOWN_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS])
def test_each_has_one_line_of_doc(table: dict[str, object]) -> None:
    for name in table:
        doc = table[name].doc  # type: ignore[attr-defined]
        assert doc[0].isupper() or doc[0].isdigit() or doc.startswith(("log.", "min.", "broker.")), doc
        assert doc.endswith(".") and len(doc) <= 110, doc


@pytest.mark.parametrize(
    ("name", "kind", "update"),
    [
        ("listener.name.internal.ssl.keystore.location", Kind.STRING, Update.PER_BROKER),
        ("listener.name.internal.ssl.keystore.password", Kind.PASSWORD, Update.PER_BROKER),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", Kind.PASSWORD, Update.PER_BROKER),
        ("listener.name.internal.max.connections", Kind.INT, Update.CLUSTER_WIDE),
    ],
)
def test_an_option_may_be_set_for_one_listener(name: str, kind: Kind, update: Update) -> None:
    option = find_option(name)
    assert option is not None
    assert (option.name, option.kind, option.update, option.honoured) == (name, kind, update, False)


@pytest.mark.parametrize(
    "name", ["listener.name.internal.num.partitions", "listener.name.internal", "listener.name.x."]
)
def test_not_every_option_can(name: str) -> None:
    assert find_option(name) is None


def test_a_slip_in_the_name_of_one_without_effect_is_told_too() -> None:
    with pytest.raises(OptionError) as caught:
        Options.from_mapping({"ssl.keystore.locatoin": "/x"})
    assert str(caught.value) == "ssl.keystore.locatoin is not a broker option; did you mean ssl.keystore.location?"


def test_a_password_is_not_shown_with_the_options() -> None:
    options = Options.from_mapping({"ssl.key.password": "secret", "num.partitions": 2})
    assert repr(options) == "Options(num.partitions=2, ssl.key.password=[hidden])"


def test_an_authorizer_that_does_not_authorize_is_told_of_apart() -> None:
    options = Options.from_mapping({"authorizer.class.name": "org.acme.Acls"})
    assert any("everybody may do everything" in warning for warning in options.warnings)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"consumer.session.timeout.ms": "50000"}, None),
        ({"consumer.session.timeout.ms": "44999"}, "below group.consumer.min.session.timeout.ms, which is 45000"),
        ({"share.session.timeout.ms": "60001"}, "above group.share.max.session.timeout.ms, which is 60000"),
        ({"streams.num.standby.replicas": "3"}, "above group.streams.max.standby.replicas, which is 2"),
        ({"share.auto.offset.reset": "by_duration:PT1H"}, None),
        ({"share.auto.offset.reset": "yesterday"}, "is not latest, earliest or by_duration"),
        ({"share.isolation.level": "odd"}, "is not one of read_committed"),
        ({"consumer.session.timeout": "1"}, "did you mean consumer.session.timeout.ms?"),
    ],
)
def test_the_options_of_a_group_are_checked_against_the_brokers_bounds(
    configs: dict[str, str], message: str | None
) -> None:
    options = Options.from_mapping()
    if message is None:
        assert check_group_configs(configs, options)
        return
    with pytest.raises(OptionError) as caught:
        check_group_configs(configs, options)
    assert message in str(caught.value)


def test_a_session_must_outlast_a_heartbeat() -> None:
    options = Options.from_mapping({"group.consumer.min.session.timeout.ms": 1})
    with pytest.raises(OptionError) as caught:
        check_group_configs({"consumer.session.timeout.ms": "5000"}, options)
    assert "must be more than consumer.heartbeat.interval.ms=5000" in str(caught.value)


@pytest.mark.parametrize("pattern", ["client_id", "shoe_size=43", "client_id=("])
def test_a_pattern_for_clients_must_be_one(pattern: str) -> None:
    assert check_client_metrics("match", "client_id=abc.*,client_source_port=9.") is not None
    with pytest.raises(OptionError):
        check_client_metrics("match", pattern)
