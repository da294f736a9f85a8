"""Metadata (key 3), versions 0-13: brokers, topics, and who leads their partitions.

Unusual:
- "All topics" is an empty list in v0 and a null one since v1, where an empty list asks for the brokers alone.
- Topics by id from v12 on; v10 and v11 have the field but Kafka never served it, so it is refused there.
- Asking for a topic that is not there creates it where client and broker both allow that. The answer waits for the
  creation, so the client sees the topic in the first answer instead of after some LEADER_NOT_AVAILABLE. Internal
  topics are not made that way: whoever needs them knows how many partitions and which options they must have.
- A topic that is asked for twice is answered once.
- A partition whose log has failed here has no leader, as with Kafka, where its replica would be offline. The image does
  not know of it: the log may be back at any time.
- Answers that only tell of topics that exist are kept in their encoded form (see metadata_cache).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm import wire
from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.apis.leaders import Address, addresses
from klamm.apis.metadata_cache import MAX_REQUEST_BYTES
from klamm.apis.operations import NOT_ASKED_FOR, cluster_operations, topic_operations
from klamm.controller import NewTopic
from klamm.controller.names import problem_with_name
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.metadata.image import Image, PartitionState, TopicState
from klamm.replica.manager import INTERNAL_TOPICS
from klamm.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_TOPIC_ID_FIELD = 10
_BY_ID = 12
_LISTENER_NOT_FOUND = 6


def handle(ctx: Context, request: MetadataRequest) -> Answer:
    asked = request.topics
    if asked is None or (not asked and ctx.api_version == 0):
        image = ctx.broker.image
        return _respond(ctx, request, image, _every(ctx, image))
    if _TOPIC_ID_FIELD <= ctx.api_version < _BY_ID and any(t.name is None or t.topic_id != ZERO_UUID for t in asked):
        return on_error(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
    asked = list({(t.name, t.topic_id): t for t in asked}.values())
    missing, denied = _to_create(ctx, request, asked)
    if missing:
        return _create_and_answer(ctx, request, asked, missing, denied)
    return _some_topics(ctx, request, asked, denied)


def shortcut(ctx: Context, frame: memoryview, body: int) -> bytes | None:
    """Nothing but topics that are there, of which nothing is hidden from anybody: an answer that can be kept."""
    broker = ctx.broker
    if broker.authorizer is not None or ctx.throttle_time_ms or len(frame) - body > MAX_REQUEST_BYTES:
        return None
    key = (ctx.api_version, ctx.peer.listener, frame[body:].tobytes())
    answer = broker.metadata_cache.get(broker.metadata.image, broker.replicas.offline_version, key)
    if answer is None:
        answer = _fresh(ctx, key[2])
        if answer is not None:
            broker.metadata_cache.put(key, answer)
    return answer


def _fresh(ctx: Context, body: bytes) -> bytes | None:
    try:
        request = wire.decode(MetadataRequest, body, ctx.api_version, allow_trailing=True)
    except wire.ProtocolError:
        return None  # the dispatcher finds it again
    image = ctx.broker.image
    for one in request.topics or ():
        if image.topics.get(one.name or "") is None and image.topic_by_id(one.topic_id) is None:
            return None
    answer = handle(ctx, request)
    return wire.encode(answer, ctx.api_version) if isinstance(answer, MetadataResponse) else None


def _every(ctx: Context, image: Image) -> list[MetadataResponseTopic]:
    describe = _describer(ctx, image)
    return [
        describe(topic)
        for topic in image.topics.values()
        if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]


def _to_create(
    ctx: Context, request: MetadataRequest, asked: Sequence[MetadataRequestTopic]
) -> tuple[list[str], dict[str, ErrorCode]]:
    """The topics that this request creates, and those that the principal may not create, with the error."""
    if not request.allow_auto_topic_creation or not ctx.broker.options.get_bool("auto.create.topics.enable"):
        return [], {}
    topics = ctx.broker.image.topics
    missing = [
        one.name
        for one in asked
        if one.name is not None
        and one.topic_id == ZERO_UUID
        and one.name not in topics
        and problem_with_name(one.name) is None
        and ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, one.name)
    ]
    if not missing or ctx.authorize(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        return missing, {}
    allowed = [name for name in missing if ctx.authorize(Operation.CREATE, ResourceType.TOPIC, name)]
    return allowed, dict.fromkeys(set(missing).difference(allowed), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _create_and_answer(
    ctx: Context,
    request: MetadataRequest,
    asked: Sequence[MetadataRequestTopic],
    missing: Sequence[str],
    denied: dict[str, ErrorCode],
) -> MetadataResponse:
    broker = ctx.broker
    for coordinator in (broker.groups, broker.transactions):
        if coordinator.topic.name in missing:  # it has options of its own
            await coordinator.ensure_topic()
    new = [NewTopic(name) for name in missing if name not in INTERNAL_TOPICS]
    results = await broker.controller.create_topics(new) if new else ()
    # That somebody else created it meanwhile is no failure: the topic is found below.
    failed = {result.name: result.error for result in results if result.error}
    return _some_topics(ctx, request, asked, denied | failed)


def _some_topics(
    ctx: Context, request: MetadataRequest, asked: Sequence[MetadataRequestTopic], failed: dict[str, ErrorCode]
) -> MetadataResponse:
    image = ctx.broker.image
    describe = _describer(ctx, image)
    topics = []
    for one in asked:
        if one.topic_id != ZERO_UUID:
            topics.append(_by_id(ctx, image, one.topic_id, describe))
        elif one.name is not None:
            topics.append(_by_name(ctx, image, one.name, describe, failed))
        else:
            topics.append(MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=None))
    return _respond(ctx, request, image, topics)


def _by_id(
    ctx: Context, image: Image, topic_id: bytes, describe: Callable[[TopicState], MetadataResponseTopic]
) -> MetadataResponseTopic:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):  # and the name stays hidden
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return describe(topic)


def _by_name(
    ctx: Context,
    image: Image,
    name: str,
    describe: Callable[[TopicState], MetadataResponseTopic],
    failed: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = image.topics.get(name)
    if topic is not None:
        return describe(topic)
    code = failed.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if problem_with_name(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _describer(ctx: Context, image: Image) -> Callable[[TopicState], MetadataResponseTopic]:
    """Describes topics of one image for one listener."""
    offline = ctx.broker.replicas.offline  # empty in normal times
    live = {broker.id for broker in image.live_brokers()}
    reachable = {address.node_id for address in addresses(image, ctx.listener, live)}
    no_listener = (
        ErrorCode.LISTENER_NOT_FOUND if ctx.api_version >= _LISTENER_NOT_FOUND else ErrorCode.LEADER_NOT_AVAILABLE
    )

    def partition(index: int, state: PartitionState) -> MetadataResponsePartition:
        leader = state.leader
        error = ErrorCode.NONE
        if leader not in reachable:
            error = no_listener if leader in live else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader if leader in reachable else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=[node for node in state.replicas if node not in live],
        )

    def topic(state: TopicState) -> MetadataResponseTopic:
        described = MetadataResponseTopic(
            name=state.name,
            topic_id=state.id,
            is_internal=state.name in INTERNAL_TOPICS,
            partitions=[partition(index, p) for index, p in enumerate(state.partitions)],
        )
        for index in offline.get(state.name, ()):
            _take_offline(described.partitions[index], ctx.broker.node_id)
        return described

    return topic


def _take_offline(partition: MetadataResponsePartition, node_id: int) -> None:
    """This node cannot use its replica."""
    if node_id in partition.replica_nodes and node_id not in partition.offline_replicas:
        partition.offline_replicas.append(node_id)
    if partition.leader_id == node_id:
        partition.leader_id = -1
        partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _respond(
    ctx: Context, request: MetadataRequest, image: Image, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                topic.topic_authorized_operations = topic_operations(ctx, topic.name)
    return MetadataResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        brokers=[_broker(a) for a in addresses(image, ctx.listener, (broker.id for broker in image.live_brokers()))],
        cluster_id=ctx.broker.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _broker(address: Address) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=address.node_id, host=address.host, port=address.port, rack=address.rack)


def on_error(request: MetadataRequest, version: int, code: ErrorCode) -> MetadataResponse:
    """Every topic gets the error; from v13 on also the whole."""
    topics = [
        MetadataResponseTopic(
            error_code=code, name=one.name if version >= _BY_ID else one.name or "", topic_id=one.topic_id
        )
        for one in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=code)


API = Api(MetadataRequest, handle, key=3, versions=(0, 13), on_error=on_error, shortcut=shortcut)
