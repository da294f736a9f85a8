"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, through the wire. What is expected is
what a Kafka 4.3 answers, where nothing else is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages import k33_alter_configs as k33
from klamm.wire.messages import k44_incremental_alter_configs as k44
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.k74_list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INT, LONG, LIST, PASSWORD = 3, 5, 7, 9
OF_TOPIC, OF_BROKER, OF_ALL, STATIC, DEFAULT, OF_LOGGER, OF_METRICS, OF_GROUP = range(1, 9)


async def describe(
    node: Any, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True, docs: bool = False
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=docs and version >= 3
    )
    (result,) = (await node.call(request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def entry(node: Any, kind: int, name: str, key: str, **kwargs: Any) -> Any:
    result = await describe(node, kind, name, key, **kwargs)
    (found,) = result.configs
    assert found.name == key
    return found


def synonyms_of(found: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]


async def change(
    node: Any,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [k44.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes]
    resource = k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await node.call(request, version)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


async def replace(node: Any, kind: int, name: str, version: int = 2, **configs: str) -> int:
    given = [k33.AlterableConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()]
    resource = k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    (result,) = (await node.call(k33.AlterConfigsRequest(resources=[resource]), version)).responses
    return int(result.error_code)


# ---- topics


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_options_at_every_version(start: Any, version: int) -> None:
    node = await start(log_segment_bytes="5000")
    await node.create("t", retention_ms="7")
    found = await entry(node, TOPIC, "t", "retention.ms", version=version, docs=True)
    assert (found.value, found.config_source, found.read_only, found.is_sensitive) == ("7", OF_TOPIC, False, False)
    assert synonyms_of(found) == [("retention.ms", "7", OF_TOPIC), ("log.retention.hours", "168", DEFAULT)]
    if version >= 3:
        assert found.config_type == LONG
        assert found.documentation.startswith("Segments older than this")
    found = await entry(node, TOPIC, "t", "segment.bytes", version=version)
    assert (found.value, found.config_source) == ("5000", STATIC)
    assert synonyms_of(found) == [("log.segment.bytes", "5000", STATIC), ("log.segment.bytes", "1073741824", DEFAULT)]


async def test_without_names_all_options_of_a_topic_are_shown_as_when_it_was_created(node: Any) -> None:
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    created = (await node.call(CreateTopicsRequest(topics=[new]), 7)).topics[0]
    result = await describe(node, TOPIC, "t")
    shown = [(c.name, c.value, c.config_source, c.read_only) for c in result.configs]
    assert shown == [(c.name, c.value, c.config_source, c.read_only) for c in created.configs]
    assert len(shown) == 33


async def test_synonyms_and_documentation_come_only_when_they_are_asked_for(node: Any) -> None:
    await node.create("t")
    found = await entry(node, TOPIC, "t", "segment.bytes", synonyms=False)
    assert found.synonyms == [] and found.documentation is None


async def test_documentation_says_that_an_option_has_no_effect(node: Any) -> None:
    await node.create("t")
    found = await entry(node, TOPIC, "t", "preallocate", docs=True)
    assert "without effect" in found.documentation


async def test_an_internal_option_is_shown_where_it_is_set(node: Any) -> None:
    await node.create("t", internal_segment_bytes="500")
    assert (await entry(node, TOPIC, "t", "internal.segment.bytes")).value == "500"
    assert node.partition().log.config.segment_bytes == 500
    assert await change(node, TOPIC, "t", ("internal.segment.bytes", DELETE, None)) == (0, None)
    assert (await describe(node, TOPIC, "t", "internal.segment.bytes")).configs == []


async def test_an_option_that_nobody_knows_is_left_out(node: Any) -> None:
    await node.create("t")
    result = await describe(node, TOPIC, "t", "nope", "flush.ms")
    assert [config.name for config in result.configs] == ["flush.ms"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (5, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_there_cannot_be_described(node: Any, kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(node, kind, name)
    assert result.error_code == code and result.error_message and result.configs == []


@pytest.mark.parametrize("version", [0, 1])
async def test_a_change_is_in_force_and_shown_when_the_answer_comes(node: Any, version: int) -> None:
    await node.create("t")
    node.append(b"x")
    assert await change(node, TOPIC, "t", ("retention.ms", SET, "9"), version=version) == (0, None)
    assert node.partition().log.config.retention_ms == 9
    assert (await entry(node, TOPIC, "t", "retention.ms")).value == "9"
    assert await change(node, TOPIC, "t", ("retention.ms", DELETE, None), version=version) == (0, None)
    assert node.partition().log.config.retention_ms == 168 * 3_600_000


async def test_lists_grow_and_shrink(node: Any) -> None:
    await node.create("t")
    for operation, value, after in [(APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")]:
        assert await change(node, TOPIC, "t", ("cleanup.policy", operation, value)) == (0, None)
        assert (await entry(node, TOPIC, "t", "cleanup.policy")).value == after


async def test_validate_only_changes_nothing(node: Any) -> None:
    await node.create("t")
    assert await change(node, TOPIC, "t", ("retention.ms", SET, "9"), validate_only=True) == (0, None)
    assert (await entry(node, TOPIC, "t", "retention.ms")).config_source == DEFAULT


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_takes_back_what_is_not_named(node: Any, version: int) -> None:
    await node.create("t", retention_ms="7", segment_ms="8")
    assert await replace(node, TOPIC, "t", version, retention_ms="9") == 0
    assert node.publisher.image.topic_configs("t") == {"retention.ms": "9"}
    assert await replace(node, TOPIC, "t", version) == 0
    assert node.publisher.image.topic_configs("t") == {}


async def test_alter_configs_is_not_for_loggers(node: Any) -> None:
    assert await replace(node, LOGGER, "1", root="INFO") == ErrorCode.INVALID_REQUEST


async def test_results_come_in_the_order_of_the_request(node: Any, tools: Any) -> None:
    for name in ("a", "b", "c"):
        await node.create(name)
    node.broker.authorizer = tools.deny((Operation.ALTER_CONFIGS, ResourceType.TOPIC, "b"))
    asked = [(TOPIC, "c"), (TOPIC, "b"), (TOPIC, "nope"), (LOGGER, "1"), (BROKER, ""), (TOPIC, "a"), (7, "x")]
    resources = [k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[]) for kind, name in asked]
    response = await node.call(k44.IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == asked
    assert [r.error_code for r in response.responses] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


# ---- brokers


async def test_a_broker_shows_every_option_there_is_with_where_it_comes_from(start: Any) -> None:
    node = await start(node_id="1", num_partitions="3")
    result = await describe(node, BROKER, "1", docs=True)
    found = {config.name: config for config in result.configs}
    assert len(found) > 340 and list(found) == sorted(found)
    shown = found["num.partitions"]
    assert (shown.value, shown.config_source, shown.read_only, shown.config_type) == ("3", STATIC, True, INT)
    assert synonyms_of(shown) == [("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT)]
    assert (found["broker.id"].value, found["node.id"].value) == ("1", "1")
    shown = found["log.retention.ms"]
    assert (shown.value, shown.config_source, shown.read_only, synonyms_of(shown)) == (None, DEFAULT, False, [])
    shown = found["ssl.key.password"]
    assert (shown.value, shown.is_sensitive, shown.config_type) == (None, True, PASSWORD)
    assert all(config.documentation for config in found.values())
    assert "producer.id.expiration.check.interval.ms" not in found, "internal, and nobody has set it"


async def test_a_password_never_leaves_the_broker(start: Any) -> None:
    node = await start(ssl_key_password="secret")
    found = await entry(node, BROKER, "1", "ssl.key.password")
    assert (found.value, found.is_sensitive, found.config_source) == (None, True, STATIC)
    assert synonyms_of(found) == [("ssl.key.password", None, STATIC)]


async def test_options_change_for_one_broker_and_for_all(node: Any) -> None:
    await node.create("t")
    node.append(b"x")
    assert await change(node, BROKER, "", ("message.max.bytes", SET, "2000"), ("log.roll.ms", SET, "10")) == (0, None)
    assert await change(node, BROKER, "1", ("message.max.bytes", SET, "3000")) == (0, None)
    found = await entry(node, BROKER, "1", "message.max.bytes")
    assert (found.value, found.config_source, found.read_only) == ("3000", OF_BROKER, False)
    expected = [("message.max.bytes", "3000", OF_BROKER), ("message.max.bytes", "2000", OF_ALL)]
    assert synonyms_of(found) == [*expected, ("message.max.bytes", "1048588", DEFAULT)]
    found = await entry(node, TOPIC, "t", "max.message.bytes")
    assert (found.value, found.config_source) == ("3000", OF_BROKER)
    assert synonyms_of(found)[:2] == expected
    for_all = await describe(node, BROKER, "")
    assert [(c.name, c.value, c.config_source) for c in for_all.configs] == [
        ("log.roll.ms", "10", OF_ALL),
        ("message.max.bytes", "2000", OF_ALL),
    ]
    assert synonyms_of(for_all.configs[1]) == [("message.max.bytes", "2000", OF_ALL)]
    config = node.partition().log.config
    assert (config.max_message_bytes, config.segment_ms) == (3000, 10)
    assert await change(node, BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
    assert node.partition().log.config.max_message_bytes == 2000


async def test_a_topics_own_option_stays_when_the_brokers_changes(node: Any) -> None:
    await node.create("own", retention_ms="5")
    await node.create("t")
    for topic in ("own", "t"):
        node.append(b"x", topic=topic)
    assert await change(node, BROKER, "", ("log.retention.ms", SET, "6"), ("log.segment.bytes", SET, "700")) == (
        0,
        None,
    )
    own, other = node.partition("own").log.config, node.partition("t").log.config
    assert (own.retention_ms, own.segment_bytes) == (5, 700)
    assert (other.retention_ms, other.segment_bytes) == (6, 700)


async def test_what_needs_a_restart_or_does_not_exist_is_refused(node: Any) -> None:
    for name, words in [("num.partitions", "restart"), ("listeners", "restart"), ("num.partition", "num.partitions?")]:
        code, message = await change(node, BROKER, "1", (name, SET, "4"))
        assert code == ErrorCode.INVALID_REQUEST and message is not None and words in message


# ---- loggers


@pytest.fixture
def levels() -> Iterator[None]:
    ours = logging.getLogger("klamm.log")
    before = logging.getLogger().level, ours.level
    yield
    logging.getLogger().setLevel(before[0])
    ours.setLevel(before[1])


async def test_levels_of_loggers_are_shown_and_changed(node: Any, levels: None) -> None:
    result = await describe(node, LOGGER, "1")
    shown = {config.name: (config.value, config.config_source, config.synonyms) for config in result.configs}
    assert shown["root"][1:] == (OF_LOGGER, []) and "klamm.log" in shown
    assert await change(node, LOGGER, "1", ("klamm.log", SET, "TRACE"), validate_only=True) == (0, None)
    assert logging.getLogger("klamm.log").level == logging.NOTSET
    assert await change(node, LOGGER, "1", ("klamm.log", SET, "DEBUG")) == (0, None)
    assert (await entry(node, LOGGER, "1", "klamm.log")).value == "DEBUG"
    assert await change(node, LOGGER, "1", ("root", SET, "ERROR"), ("klamm.log", DELETE, None)) == (0, None)
    assert (await entry(node, LOGGER, "1", "klamm.log")).value == "ERROR"


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("root", SET, "LOUD", ErrorCode.INVALID_CONFIG),
        ("no.such", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("root", APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ("root", 9, "INFO", ErrorCode.INVALID_REQUEST),
        ("root", SET, None, ErrorCode.INVALID_REQUEST),
        ("klamm.log", DELETE, None, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_level_that_cannot_be_set(
    node: Any, levels: None, name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    before = logging.getLogger().level
    assert (await change(node, LOGGER, "1", ("klamm.log", SET, "INFO"), (name, operation, value)))[0] == code
    assert logging.getLogger().level == before and logging.getLogger("klamm.log").level == logging.NOTSET


# ---- groups, client metrics, lists of all


async def test_groups_and_client_metrics_have_defaults_and_keep_what_is_set(node: Any) -> None:
    found = await entry(node, GROUP, "g", "consumer.session.timeout.ms")
    assert (found.value, found.config_source) == ("45000", DEFAULT)
    assert synonyms_of(found) == [("group.consumer.session.timeout.ms", "45000", DEFAULT)]
    assert len((await describe(node, GROUP, "g")).configs) == 17
    shown = [(c.name, c.value, c.config_source, c.synonyms) for c in (await describe(node, METRICS, "m")).configs]
    assert shown == [("interval.ms", "300000", DEFAULT, []), ("match", "", DEFAULT, []), ("metrics", "", DEFAULT, [])]
    assert await change(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    assert await change(node, METRICS, "m", ("interval.ms", SET, "1000")) == (0, None)
    found = await entry(node, GROUP, "g", "consumer.session.timeout.ms")
    assert (found.value, found.config_source) == ("50000", OF_GROUP)
    assert synonyms_of(found)[0] == ("consumer.session.timeout.ms", "50000", OF_GROUP)
    found = await entry(node, METRICS, "m", "interval.ms")
    assert (found.value, found.config_source) == ("1000", OF_METRICS)
    assert synonyms_of(found) == [("interval.ms", "1000", OF_METRICS)]


async def listed(node: Any, *kinds: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    response = await node.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    return response.error_code, sorted((r.resource_type, r.resource_name) for r in response.config_resources)


async def test_resources_are_listed_by_kind(node: Any) -> None:
    await node.create("t")
    await change(node, GROUP, "g", ("share.isolation.level", SET, "read_committed"))
    await change(node, METRICS, "m", ("interval.ms", SET, "1000"))
    everything = [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    assert await listed(node) == (0, everything)
    for resource in everything:
        assert await listed(node, resource[0]) == (0, [resource])
    assert await listed(node, version=0) == (0, [(METRICS, "m")])
    assert await listed(node, TOPIC, 5) == (ErrorCode.UNSUPPORTED_VERSION, [])


# ---- who may


async def test_who_may_not_see_options(node: Any, tools: Any) -> None:
    for name in ("a", "b"):
        await node.create(name)
    node.broker.authorizer = tools.deny(
        (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a"),
        (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME),
        (Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g"),
    )
    asked = [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in asked
    ]
    response = await node.call(DescribeConfigsRequest(resources=resources), 4)
    assert [(r.resource_name, r.error_code) for r in response.results] == [
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("m", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]
    assert await listed(node) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_who_may_not_change_options(node: Any, tools: Any) -> None:
    await node.create("a")
    node.broker.authorizer = tools.deny(
        (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "a"),
        (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME),
        (Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"),
    )
    expected = {
        (TOPIC, "a"): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        (BROKER, ""): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (BROKER, "1"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (LOGGER, "1"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (METRICS, "m"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (GROUP, "g"): ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    for (kind, name), code in expected.items():
        assert (await change(node, kind, name))[0] == code
        if kind != LOGGER:
            assert await replace(node, kind, name) == code


async def test_a_handler_that_fails_says_so_for_every_resource(node: Any) -> None:
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in ("a", "b")]
    request = DescribeConfigsRequest(resources=resources)
    response = node.api(request).on_error(request, 4, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [r.error_code for r in response.results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
