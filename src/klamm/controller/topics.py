"""Creating and deleting topics: requests in, records and one result per topic out. The error codes are Kafka's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random  # noqa: TID251 - the type; the instance comes in
from typing import NamedTuple

from klamm.controller.assignment import check_assignment, new_partitions
from klamm.controller.commands import Decision
from klamm.controller.names import colliding_name, problem_with_name
from klamm.controller.placement import place
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.ids import NO_TOPIC_ID, TopicId
from klamm.core.options import OptionError, Options, check_topic_configs
from klamm.core.slices import Sliced, at_once
from klamm.metadata.image import (
    TOPIC_RESOURCE,
    BrokerState,
    Image,
    TopicState,
    fold_name,
    partition_record,
)
from klamm.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's bound as well: so many partitions are one entry of the metadata log, applied in one go."""

MAX_TOPICS_PER_REQUEST = 10_000

TOPICS_PER_SLICE = 100
"""Topics that are decided on before the loop may have a turn: about 2 ms."""


class NewTopic(NamedTuple):
    """A topic to create. -1 takes the broker's default; with `assignments` (partition, replicas) both must be -1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    """What came of a `NewTopic`. With an error, only the name and the message count."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: TopicId = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}  # what the topic was given; the rest is the broker's


class TopicToDelete(NamedTuple):
    """By name or by id, not both."""

    name: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: TopicId
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def create_topics(
    image: Image,
    topics: Sequence[NewTopic],
    *,
    options: Options,
    rng: Random,
    new_id: Callable[[], bytes],
    validate_only: bool = False,
) -> Decision[list[CreatedTopic]]:
    """A result for each name in the order of the request; a name that is there twice has one result, an error."""
    return at_once(creating_topics(image, topics, options=options, rng=rng, new_id=new_id, validate_only=validate_only))


def creating_topics(
    image: Image,
    topics: Sequence[NewTopic],
    *,
    options: Options,
    rng: Random,
    new_id: Callable[[], bytes],
    validate_only: bool = False,
) -> Sliced[Decision[list[CreatedTopic]]]:
    """The same in slices. Nobody may decide anything else on this image in between."""
    counts = Counter(topic.name for topic in topics)
    too_much = _excess(topics, options)
    records: list[MetadataRecord] = []
    results: list[CreatedTopic] = []
    folded: dict[str, str] = {}  # of the topics created by this request
    for topic in {topic.name: topic for topic in topics}.values():
        if results and len(results) % TOPICS_PER_SLICE == 0:
            yield
        try:
            if too_much is not None:
                raise BrokerError(ErrorCode.POLICY_VIOLATION, too_much)
            if counts[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is in the request more than once")
            _check_name(image, topic.name, folded)
            state, configs = _decide(image, topic, options, rng, new_id)
        except BrokerError as error:
            results.append(CreatedTopic(topic.name, error.code, str(error)))
            continue
        key = fold_name(topic.name)
        if key is not None:
            folded[key] = topic.name
        records.extend(_records_of(state, configs))
        replicas = len(state.partitions[0].replicas)
        results.append(
            CreatedTopic(
                topic.name,
                topic_id=NO_TOPIC_ID if validate_only else state.id,
                num_partitions=len(state.partitions),
                replication_factor=replicas,
                configs=configs,
            )
        )
    return Decision([] if validate_only else records, results)


def _excess(topics: Sequence[NewTopic], options: Options) -> str | None:
    """Why a request is too large to be taken at all."""
    if len(topics) > MAX_TOPICS_PER_REQUEST:
        return f"{len(topics)} topics in one request are too many: the most is {MAX_TOPICS_PER_REQUEST}"
    default = options.get_int("num.partitions")
    partitions = sum(
        len(topic.assignments) if topic.assignments else topic.num_partitions if topic.num_partitions > 0 else default
        for topic in topics
    )
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        return f"{partitions} partitions in one request are too many: the most is {MAX_PARTITIONS_PER_REQUEST}"
    return None


def _check_name(image: Image, name: str, folded: Mapping[str, str]) -> None:
    problem = problem_with_name(name)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
    other = colliding_name(image, name) or folded.get(fold_name(name) or "")
    if other is not None:
        message = f"{name} differs from the topic {other} only in '.' and '_', which metrics cannot tell apart"
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _decide(
    image: Image, topic: NewTopic, options: Options, rng: Random, new_id: Callable[[], bytes]
) -> tuple[TopicState, dict[str, str]]:
    configs = _configs(topic, options)
    if topic.assignments:
        assignment = _manual(image, topic)
    else:
        assignment = _automatic(image, topic, options, rng)
    partitions = tuple(new_partitions(image, assignment))
    return TopicState(topic.name, TopicId(_fresh_id(image, new_id)), partitions), configs


def _configs(topic: NewTopic, options: Options) -> dict[str, str]:
    names = Counter(name for name, _ in topic.configs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{', '.join(twice)} is set more than once")
    try:
        check_topic_configs(dict(topic.configs), options)
    except OptionError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: value for name, value in topic.configs if value is not None}


def _automatic(image: Image, topic: NewTopic, options: Options, rng: Random) -> list[tuple[int, ...]]:
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if partitions == 0 or partitions < -1:
        message = f"{partitions} partitions: give 1 or more, or -1 for the broker's default"
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, message)
    if replicas == 0 or replicas < -1:
        message = f"replication factor {replicas}: give 1 or more, or -1 for the broker's default"
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if partitions == -1:
        partitions = options.get_int("num.partitions")
    if replicas == -1:
        replicas = options.get_int("default.replication.factor")
    brokers: list[BrokerState] = image.live_brokers()
    if replicas > len(brokers):
        message = f"replication factor {replicas} is more than the {len(brokers)} broker(s) that are there"
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return place(brokers, partitions, replicas, rng)


def _manual(image: Image, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        message = "with a manual assignment, the number of partitions and the replication factor must be -1"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    assignments = sorted(topic.assignments, key=lambda assignment: assignment[0])
    if [index for index, _ in assignments] != list(range(len(assignments))):
        message = "the partitions must be numbered from 0 without gaps, each once"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return check_assignment(image, [replicas for _, replicas in assignments], first=0)


def _fresh_id(image: Image, new_id: Callable[[], bytes]) -> bytes:
    """An id that is neither in use nor one of the two that Kafka keeps for itself (all zero, and one)."""
    while True:
        fresh = new_id()
        if int.from_bytes(fresh) > 1 and TopicId(fresh) not in image.topic_ids:
            return fresh


def _records_of(topic: TopicState, configs: Mapping[str, str]) -> list[MetadataRecord]:
    return [
        TopicRecord(name=topic.name, topic_id=topic.id),
        *(partition_record(topic.id, index, partition) for index, partition in enumerate(topic.partitions)),
        *(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ),
    ]


def delete_topics(image: Image, topics: Sequence[TopicToDelete], *, options: Options) -> Decision[list[DeletedTopic]]:
    """A result for each in the order of the request. Asking for one topic twice, even by name and id, is an error."""
    found = [_find(image, topic) for topic in topics]
    counts = Counter(state.id for state in found if isinstance(state, TopicState))
    records: list[MetadataRecord] = []
    results: list[DeletedTopic] = []
    for topic, state in zip(topics, found, strict=True):
        if isinstance(state, BrokerError):
            results.append(DeletedTopic(topic.name, topic.topic_id, state.code, str(state)))
        elif not options.get_bool("delete.topic.enable"):
            code = ErrorCode.TOPIC_DELETION_DISABLED
            results.append(DeletedTopic(state.name, state.id, code, "delete.topic.enable is false on this broker"))
        elif counts[state.id] > 1:
            message = f"topic {state.name} is in the request more than once"
            results.append(DeletedTopic(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message))
        else:
            records.append(RemoveTopicRecord(topic_id=state.id))
            results.append(DeletedTopic(state.name, state.id))
    return Decision(records, results)


def _find(image: Image, topic: TopicToDelete) -> TopicState | BrokerError:
    by_id = topic.topic_id != NO_TOPIC_ID
    if by_id == (topic.name is not None):
        return BrokerError(ErrorCode.INVALID_REQUEST, "give either the name or the id of a topic")
    if topic.name is None:
        return image.topic_ids.get(topic.topic_id) or BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    missing = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
    return image.topics.get(topic.name) or missing
