"""`klamm.aio.Admin`, on Klamm and on Apache Kafka: the same calls, the same answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, Producer

from klamm.admin import (
    ANY_NAME,
    EARLIEST,
    LATEST,
    TO_THE_END,
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    Elected,
    Election,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    PatternType,
    Permission,
    QuotaEntity,
    QuotaFilter,
    Resource,
    ResourceType,
    Results,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from klamm.aio import Admin
from klamm.client.errors import AuthenticationFailed, BrokerSaid, Closed, UnsupportedVersion
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from support.apache_kafka import ApacheKafka
from support.downloads import FETCH_LIMIT_S

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 300)
LIMIT_S = 30
PAUSE_S = 0.01
KLAMM, KAFKA = "klamm", "kafka"
T = TypeVar("T")


@pytest.fixture(params=[KLAMM, KAFKA])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def bootstrap(kind: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("broker" if kind == KLAMM else "apache_kafka").bootstrap
    return found


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap, client_id="jane") as client:
        yield client


async def eventually(ask: Callable[[], Awaitable[T]], fits: Callable[[T], object]) -> T:
    """What comes back as soon as it fits: brokers of Kafka hear of changes a little after their controller."""
    async with asyncio.timeout(LIMIT_S):
        while not fits(found := await ask()):
            await asyncio.sleep(PAUSE_S)
    return found


async def make(admin: Admin, topic: str, partitions: int = 1) -> None:
    (await admin.create_topics([NewTopic(topic, partitions, 1)])).check()
    await eventually(lambda: admin.describe_topics([topic]), lambda found: topic in found)


def code(done: Results[Any, Any], item: object) -> ErrorCode:
    error = done.errors[item]
    assert isinstance(error, BrokerSaid), error
    return error.code


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"log_level": 0, "bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(LIMIT_S) == 0


# ---- topics


async def test_one_name_stands_for_itself_and_numbers_may_be_numbers(admin: Admin, topic: str) -> None:
    assert list(await admin.create_topics(topic)) == [topic]
    await eventually(lambda: admin.describe_topics(topic), lambda found: list(found) == [topic])
    resource = Resource.topic(topic)
    (await admin.alter_configs({resource: {"retention.ms": 1000, "preallocate": True}})).check()

    def is_set(found: Results[Resource, Any]) -> bool:
        return (found[resource]["retention.ms"].value, found[resource]["preallocate"].value) == ("1000", "true")

    await eventually(lambda: admin.describe_configs([resource]), is_set)
    assert list(await admin.delete_topics(topic)) == [topic]
    assert code(await admin.delete_groups(topic), topic) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_topics_are_made_described_grown_and_deleted(admin: Admin, topic: str) -> None:
    named, small = f"{topic}-named", f"{topic}-small"
    wanted = [NewTopic(topic, partitions=2, configs={"retention.ms": "1000"}), named, NewTopic(small, 1, 9), "no name!"]
    tried = await admin.create_topics(wanted, validate_only=True)
    assert list(tried) == [topic, named]
    made = await admin.create_topics(wanted)
    assert list(made) == [topic, named]
    assert (made[topic].partitions, made[topic].replication_factor) == (2, 1)
    assert (made[topic].configs or {})["retention.ms"] == "1000"
    assert code(made, small) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert code(made, "no name!") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(await admin.create_topics([topic]), topic) is ErrorCode.TOPIC_ALREADY_EXISTS

    listed = await eventually(admin.list_topics, lambda found: {topic, named} <= set(found))
    assert listed[topic].id == made[topic].id
    assert small not in listed
    described = await admin.describe_topics([topic, named, "gone"])
    assert described[topic].id == made[topic].id
    assert [p.in_sync for p in described[topic].partitions.values()] == [(1,), (1,)]
    assert code(described, "gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    grown = await admin.create_partitions({topic: 3, named: NewPartitions(2, [[1]]), "gone": 2})
    assert list(grown) == [topic, named]
    assert code(grown, "gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await eventually(lambda: admin.describe_topics([topic]), lambda found: len(found[topic].partitions) == 3)

    gone = await admin.delete_topics([topic, "gone"])
    assert list(gone) == [topic]
    assert code(gone, "gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = await admin.delete_topics([described[named].id, bytes(range(16))])
    assert list(by_id) == [described[named].id]
    assert code(by_id, bytes(range(16))) is ErrorCode.UNKNOWN_TOPIC_ID
    await eventually(lambda: admin.list_topics(internal=True), lambda found: not {topic, named} & set(found))


async def test_records_are_deleted_up_to_an_offset_or_all(admin: Admin, bootstrap: str, topic: str) -> None:
    await make(admin, topic, 2)
    fill(bootstrap, topic, 10)
    place, other, missing = (TopicPartition(topic, index) for index in (0, 1, 7))
    found = await admin.list_offsets({place: LATEST, other: EARLIEST, missing: LATEST})
    assert {at: offset.offset for at, offset in found.items()} == {place: 10, other: 0}
    assert code(found, missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    done = await admin.delete_records({place: 4, other: 99, missing: 1})
    assert {at: deleted.low_watermark for at, deleted in done.items()} == {place: 4}
    assert code(done, other) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await admin.list_offsets({place: EARLIEST}))[place].offset == 4
    assert (await admin.delete_records({place: TO_THE_END}))[place].low_watermark == 10


# ---- options


async def test_options_are_set_extended_and_taken_back(admin: Admin, topic: str) -> None:
    await make(admin, topic)
    resource, missing = Resource.topic(topic), Resource.topic("gone")
    done = await admin.alter_configs({
        resource: {"retention.ms": "5000", "max.message.bytes": "2000"},
        Resource.topic(f"{topic}x"): {"retention.ms": "1"},
    })  # fmt: skip
    assert list(done) == [resource]
    await admin.alter_configs({
        resource: [
            ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND),
            ConfigChange("max.message.bytes", None, ConfigOperation.DELETE),
        ]
    })  # fmt: skip
    tried = await admin.alter_configs({resource: {"retention.ms": "7"}}, validate_only=True)
    assert list(tried) == [resource]
    refused = await admin.alter_configs({resource: {"retention.ms": "soon"}})
    assert code(refused, resource) is ErrorCode.INVALID_CONFIG

    found = await eventually(
        lambda: admin.describe_configs([resource, missing], synonyms=True, documentation=True),
        lambda found: found[resource]["max.message.bytes"].is_default,
    )
    options = found[resource]
    retention = options["retention.ms"]
    assert (retention.value, retention.source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert retention.synonyms[0].value == "5000"
    assert set((options["cleanup.policy"].value or "").split(",")) == {"delete", "compact"}
    assert options["max.message.bytes"].documentation
    assert code(found, missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list((await admin.describe_configs([resource], ["retention.ms"]))[resource]) == ["retention.ms"]


async def test_brokers_and_groups_have_options_too(admin: Admin, topic: str) -> None:
    group, broker = Resource.group(topic), Resource.broker(1)
    await admin.alter_configs({group: {"consumer.session.timeout.ms": "50000"}})
    found = await eventually(
        lambda: admin.describe_configs([group, broker, Resource.broker(None)]),
        lambda found: found[group]["consumer.session.timeout.ms"].value == "50000",
    )
    assert found[broker]["log.retention.hours"].read_only
    listed = await admin.list_config_resources([ResourceType.GROUP])
    assert group in listed
    assert {one.type for one in listed} == {ResourceType.GROUP}
    assert broker in await admin.list_config_resources()


# ---- groups


@contextmanager
def member(bootstrap: str, topic: str, **options: str) -> Iterator[Consumer]:
    """A consumer that has all partitions of the topic, and is there until the block ends."""
    consumer = Consumer(
        {
            "log_level": 0,
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "client.id": "jane",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    assigned, left = threading.Event(), threading.Event()
    consumer.subscribe([topic], on_assign=lambda consumer, partitions: assigned.set() if partitions else None)

    def poll() -> None:
        while not left.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert assigned.wait(LIMIT_S)
        yield consumer
    finally:
        left.set()
        thread.join()
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_described_with_what_its_members_have(
    admin: Admin, bootstrap: str, topic: str, protocol: str
) -> None:
    name = f"{topic}-{protocol}"
    await make(admin, name, 2)
    with member(bootstrap, name, group_protocol=protocol, group_instance_id="one"):
        await eventually(lambda: admin.describe_groups([name]), lambda found: found[name].state == "Stable")
        (listed,) = [group for group in await admin.list_groups(types=[protocol]) if group.group_id == name]
        assert (listed.type, listed.protocol_type, listed.coordinator) == (protocol, "consumer", 1)
        for asked in (name, listed):
            described = (await admin.describe_groups([asked]))[name]
            assert (described.type, described.state, described.coordinator) == (protocol, "Stable", 1)
            (jane,) = described.members
            assert (jane.client_id, jane.instance_id, jane.topics) == ("jane", "one", (name,))
            assert sorted(jane.assignment) == [(name, 0), (name, 1)]
            assert (described.epoch is not None) == (protocol == "consumer")
        assert code(await admin.delete_groups([name]), name) is ErrorCode.NON_EMPTY_GROUP
        refused = await admin.delete_group_offsets(name, [(name, 0)])
        assert code(refused, TopicPartition(name, 0)) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_members_are_put_out_of_their_group(admin: Admin, bootstrap: str, topic: str) -> None:
    await make(admin, topic)
    with member(bootstrap, topic, group_instance_id="one"):
        refused = await admin.remove_group_members(topic, [MemberToRemove("two")])
        assert code(refused, MemberToRemove("two")) is ErrorCode.UNKNOWN_MEMBER_ID
        gone = await admin.remove_group_members(topic, reason="for the test")
        assert list(gone) == [MemberToRemove("one")]


async def test_offsets_of_a_group_are_set_listed_and_deleted(admin: Admin, bootstrap: str, topic: str) -> None:
    await make(admin, topic, 3)
    fill(bootstrap, topic, 10)
    first, second, third, missing = (TopicPartition(topic, index) for index in (0, 1, 2, 9))
    done = await admin.alter_group_offsets(topic, {first: 7, second: CommittedOffset(0, 0, "note"), missing: 1})
    assert list(done) == [first, second]
    assert code(done, missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = await admin.list_group_offsets(topic)
    assert dict(found) == {first: CommittedOffset(7), second: CommittedOffset(0, 0, "note")}
    some = await admin.list_group_offsets(topic, [first, third], require_stable=True)
    assert list(some) == [first]
    (listed,) = [group for group in await admin.list_groups(states=["Empty"]) if group.group_id == topic]
    assert (listed.type, listed.state) == ("classic", "Empty")

    forgotten = await admin.delete_group_offsets(topic, [first])
    assert list(forgotten) == [first]
    assert list(await admin.list_group_offsets(topic)) == [second]
    gone = await admin.delete_groups([topic, "nobody"])
    assert list(gone) == [topic]
    assert code(gone, "nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(await admin.describe_groups([topic]), topic) is ErrorCode.GROUP_ID_NOT_FOUND


# ---- who may do what


async def test_acls_are_made_found_and_deleted(admin: Admin, topic: str) -> None:
    who = f"User:{topic}"
    read = Acl(who, AclOperation.READ, AclResource.TOPIC, topic)
    write = Acl(who, AclOperation.WRITE, AclResource.TOPIC, topic, PatternType.PREFIXED, Permission.DENY, "127.0.0.1")
    nonsense = Acl("nobody", AclOperation.READ, AclResource.TOPIC, topic)
    made = await admin.create_acls([read, write, nonsense])
    assert list(made) == [read, write]
    assert code(made, nonsense) is ErrorCode.INVALID_REQUEST
    await eventually(lambda: admin.describe_acls(AclFilter(principal=who)), lambda found: set(found) == {read, write})
    assert await admin.describe_acls(AclFilter(principal=who, operation=AclOperation.READ)) == [read]
    matching = AclFilter(resource=AclResource.TOPIC, name=f"{topic}-more", pattern=PatternType.MATCH, principal=who)
    assert await admin.describe_acls(matching) == [write]
    gone = await admin.delete_acls([matching, AclFilter(principal=who, permission=Permission.ALLOW)])
    assert [list(found) for found in gone.values()] == [[write], [read]]
    await eventually(lambda: admin.describe_acls(AclFilter(principal=who)), lambda found: not found)


async def test_quotas_are_set_found_and_taken_away(admin: Admin, topic: str) -> None:
    user, both, everybody = (
        QuotaEntity.of(user=topic),
        QuotaEntity.of(user=topic, client_id="reports"),
        QuotaEntity.of(client_id=None),
    )
    wanted: dict[QuotaEntity, dict[str, float | None]] = {
        user: {"producer_byte_rate": 1000.0, "request_percentage": 50.0},
        both: {"consumer_byte_rate": 2000.0},
        QuotaEntity.of(user=f"{topic}-other"): {"nonsense": 1.0},
    }
    done = await admin.alter_quotas(wanted)
    assert list(done) == [user, both]
    assert code(done, QuotaEntity.of(user=f"{topic}-other")) is ErrorCode.INVALID_REQUEST
    tried = await admin.alter_quotas({everybody: {"producer_byte_rate": 1.0}}, validate_only=True)
    assert list(tried) == [everybody]
    found = await eventually(admin.describe_quotas, lambda found: both in found)
    assert found[user] == {"producer_byte_rate": 1000.0, "request_percentage": 50.0}
    assert everybody not in found
    assert set(await admin.describe_quotas(QuotaFilter({"user": topic}))) == {user, both}
    assert set(await admin.describe_quotas(QuotaFilter({"user": topic}, strict=True))) == {user}
    every = await admin.describe_quotas(QuotaFilter({"user": topic, "client_id": ANY_NAME}))
    assert every == {both: {"consumer_byte_rate": 2000.0}}
    await admin.alter_quotas({user: {"producer_byte_rate": None, "request_percentage": None}})
    await eventually(admin.describe_quotas, lambda found: user not in found)


async def test_users_get_passwords_where_the_broker_keeps_them(admin: Admin, kind: str, topic: str) -> None:
    upsert = ScramUpsertion(topic, ScramMechanism.SCRAM_SHA_256, "secret")
    assert "secret" not in repr(upsert)
    if kind == KLAMM:
        with pytest.raises(UnsupportedVersion):
            await admin.alter_scram_users([upsert])
        return
    short = ScramUpsertion(f"{topic}-short", ScramMechanism.SCRAM_SHA_512, "secret", iterations=1)
    done = await admin.alter_scram_users([upsert, short])
    assert list(done) == [topic]
    assert code(done, short.user) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    found = await eventually(lambda: admin.describe_scram_users([topic, "nobody"]), lambda found: topic in found)
    assert dict(found) == {topic: (ScramCredential(ScramMechanism.SCRAM_SHA_256, 8192),)}
    assert code(found, "nobody") is ErrorCode.RESOURCE_NOT_FOUND
    assert topic in await admin.describe_scram_users()
    assert list(await admin.alter_scram_users([ScramDeletion(topic, ScramMechanism.SCRAM_SHA_256)])) == [topic]
    await eventually(admin.describe_scram_users, lambda found: topic not in found)


async def test_a_password_that_was_set_opens_the_door(start_apache_kafka: Callable[..., ApacheKafka]) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    kafka = await asyncio.to_thread(
        start_apache_kafka,
        listeners={"SASL": "SASL_PLAINTEXT"},
        options={
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": module,
            "super.users": "User:ANONYMOUS;User:anna",
        },
    )
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        (await admin.alter_scram_users([ScramUpsertion("anna", ScramMechanism.SCRAM_SHA_512, "pässword")])).check()
        await eventually(admin.describe_scram_users, lambda found: "anna" in found)
    login = {
        "bootstrap.servers": kafka.address("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "anna",
    }
    async with Admin(config={**login, "sasl.password": "pässword"}) as admin:
        assert (await admin.describe_cluster()).brokers
    with pytest.raises(AuthenticationFailed):
        await Admin(config={**login, "sasl.password": "password"}).start()


# ---- where things are


async def test_leaders_are_elected_where_that_is_needed(admin: Admin, topic: str) -> None:
    await make(admin, topic)
    place, missing = TopicPartition(topic, 0), TopicPartition("gone", 0)
    for election in Election:
        done = await admin.elect_leaders([place, missing], election)
        assert dict(done) == {place: Elected(needed=False)}
        assert code(done, missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not (await admin.elect_leaders()).errors


async def test_partitions_are_moved_and_moves_cancelled(admin: Admin, topic: str) -> None:
    await make(admin, topic, 3)
    stays, idle, nowhere = (TopicPartition(topic, index) for index in range(3))
    done = await admin.alter_reassignments({stays: [1], idle: None, nowhere: [77], ("gone", 0): [1]})
    assert list(done) == [stays]
    assert code(done, idle) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert code(done, nowhere) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(done, TopicPartition("gone", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await admin.list_reassignments() == {}
    assert await admin.list_reassignments([stays]) == {}


async def test_folders_are_shown_with_what_is_in_them(admin: Admin, bootstrap: str, topic: str) -> None:
    await make(admin, topic)
    fill(bootstrap, topic, 10)
    place = TopicPartition(topic, 0)
    found = await admin.describe_log_dirs(partitions=[place])
    (folder,) = found[1]
    assert folder.replicas[place].size_bytes > 0
    assert (folder.total_bytes or 0) >= (folder.usable_bytes or 0) > 0
    assert place in (await admin.describe_log_dirs([1]))[1][0].replicas
    moved = await admin.alter_replica_log_dirs({(topic, 0, 1): "/nowhere"})
    assert code(moved, (topic, 0, 1)) is ErrorCode.LOG_DIR_NOT_FOUND
    stays = await admin.alter_replica_log_dirs({(topic, 0, 1): folder.path})
    assert list(stays) == [(topic, 0, 1)]


# ---- transactions


async def test_a_transaction_is_found_described_and_aborted(admin: Admin, bootstrap: str, topic: str) -> None:
    await make(admin, topic)
    producer = Producer({"log_level": 0, "bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(LIMIT_S) == 0
    place = TopicPartition(topic, 0)
    (listed,) = await admin.list_transactions(states=["Ongoing"], pattern=f"{topic}.*", longer_than_ms=0)
    assert (listed.transactional_id, listed.coordinator) == (topic, 1)
    described = await admin.describe_transactions([topic, "nobody"])
    assert (described[topic].state, described[topic].partitions) == ("Ongoing", (place,))
    assert described[topic].start_ms is not None
    assert code(described, "nobody") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    found = await admin.describe_producers([place, (topic, 5)])
    (state,) = found[place]
    assert (state.producer_id, state.txn_start_offset) == (listed.producer_id, 0)
    assert code(found, TopicPartition(topic, 5)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(BrokerSaid, match="there is no state Wrong"):
        await admin.list_transactions(states=["Wrong"])

    fenced = (await admin.fence_producers([topic]))[topic]
    assert fenced.producer_epoch > state.producer_epoch or fenced.producer_id != state.producer_id
    assert all(one.txn_start_offset is None for one in (await admin.describe_producers([place]))[place])
    assert (await admin.describe_transactions([topic]))[topic].start_ms is None


# ---- the cluster


async def test_a_cluster_tells_of_its_brokers_its_quorum_and_its_features(admin: Admin, kind: str) -> None:
    cluster = await admin.describe_cluster(fenced=True)
    assert cluster.cluster_id
    assert (list(cluster.brokers), cluster.controller) == ([1], 1)
    assert not cluster.brokers[1].fenced
    quorum = await admin.describe_quorum()
    assert (quorum.leader, [voter.id for voter in quorum.voters]) == (1, [1])
    assert quorum.high_watermark > 0
    assert quorum.nodes[0].listeners
    features = await admin.describe_features()
    assert features.supported["group.version"][1] >= features.finalized["group.version"] == 1
    assert list(await admin.update_features({"group.version": 1}, validate_only=True)) == ["group.version"]
    refused = await admin.update_features({"imagined.version": 1}, validate_only=True)
    assert list(refused.errors) == ["imagined.version"]
    with pytest.raises(UnsupportedVersion if kind == KLAMM else BrokerSaid):
        await admin.unregister_broker(77)
    assert admin.metrics()["request-total"] > 0


async def test_a_client_that_is_not_open_says_so(bootstrap: str) -> None:
    admin = Admin(bootstrap_servers=bootstrap)
    with pytest.raises(Closed, match="not open"):
        await admin.list_topics()
    async with admin:
        await admin.list_topics()
    with pytest.raises(Closed):
        await admin.list_topics()
