"""The administrator's questions to a cluster, each as one function: what to ask whom, and what a refusal means.

Functions that change something return the answer for each item; the verbs decide how to show it. What is nice to have
but not every cluster tells (sizes, configs) comes back as None instead of failing the whole view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.cli.parsing import Failed
from klamm.client import CONTROLLER
from klamm.client.errors import BrokerSaid, ClientError, UnsupportedVersion, error_code
from klamm.core.errors import ErrorCode
from klamm.wire import ProtocolError

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicResult
    from klamm.wire.messages.k32_describe_configs import DescribeConfigsResourceResult
    from klamm.wire.messages.k44_incremental_alter_configs import AlterableConfig

TIMEOUT_MS: Final = 30_000
_DELETE_BY_NAME: Final = 5  # later versions of DeleteTopics name topics in another field
_MAX_RESOURCES: Final = 500  # in one DescribeConfigs: an answer has some 40 options for each


class ResourceType(IntEnum):
    """What can have configs; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """A broker's name is its id; "" stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class Outcome(NamedTuple):
    """What became of one item of a change."""

    name: str
    code: ErrorCode
    message: str | None = None

    @property
    def text(self) -> str:
        return self.message or self.code.text or self.code.name


async def create_topics(
    cluster: Cluster, topics: Sequence[CreatableTopic], *, validate_only: bool
) -> list[CreatableTopicResult]:
    from klamm.wire.messages.k19_create_topics import CreateTopicsRequest

    request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    answer = await cluster.request(request, node=CONTROLLER)
    order = {topic.name: i for i, topic in enumerate(topics)}
    return sorted(answer.topics, key=lambda topic: order.get(topic.name, len(order)))


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[Outcome]:
    from klamm.wire.messages.k20_delete_topics import DeleteTopicsRequest

    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    answer = await cluster.request(request, node=CONTROLLER, version=_DELETE_BY_NAME)
    return [Outcome(done.name or "", error_code(done.error_code), done.error_message) for done in answer.responses]


async def create_partitions(cluster: Cluster, counts: Mapping[str, int], *, validate_only: bool) -> list[Outcome]:
    from klamm.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    answer = await cluster.request(request, node=CONTROLLER)
    return [Outcome(done.name, error_code(done.error_code), done.error_message) for done in answer.results]


async def describe_configs(
    cluster: Cluster, resource: Resource, names: Sequence[str] | None = None, *, docs: bool = False
) -> list[DescribeConfigsResourceResult]:
    """The configs of one resource, by name; BrokerSaid if there is no such thing."""
    from klamm.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    wanted = DescribeConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configuration_keys=list(names) if names else None
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=docs)
    try:
        answer = await cluster.request(request, node=_home(resource))
    except ProtocolError:
        if not docs:
            raise
        return await describe_configs(cluster, resource, names)  # brokers before Kafka 2.6 have no documentation
    (result,) = answer.results
    if result.error_code:
        raise BrokerSaid(error_code(result.error_code), str(resource), result.error_message)
    return sorted(result.configs, key=lambda config: config.name)


async def alter_configs(
    cluster: Cluster, resource: Resource, changes: Sequence[AlterableConfig], *, validate_only: bool
) -> Outcome:
    from klamm.wire.messages.k44_incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest

    altered = AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=list(changes))
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    home = _home(resource)
    answer = await cluster.request(request, node=CONTROLLER if home is None else home)
    (done,) = answer.responses
    return Outcome(str(resource), error_code(done.error_code), done.error_message)


def _home(resource: Resource) -> int | None:
    """The broker that alone can answer about a resource; None: any."""
    own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
    return int(resource.name) if own else None


class LogDir(NamedTuple):
    broker: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[tuple[str, int], int]
    error: ErrorCode


async def log_dirs(
    cluster: Cluster, brokers: Iterable[int], partitions: Mapping[str, Sequence[int]] | None = None
) -> list[LogDir] | None:
    """What is in the log folders of these brokers; None where the cluster cannot or will not tell."""
    from klamm.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=list(some)) for name, some in partitions.items()]
    request = DescribeLogDirsRequest(topics=topics)
    ids = list(brokers)
    try:
        answers = await asyncio.gather(*(cluster.request(request, node=broker) for broker in ids))
    except ClientError:
        return None
    found = []
    for broker, answer in zip(ids, answers, strict=True):
        if answer.error_code:
            return None
        for folder in answer.results:
            sizes = {(t.name, p.partition_index): p.partition_size for t in folder.topics for p in t.partitions}
            total, usable = (n if n >= 0 else None for n in (folder.total_bytes, folder.usable_bytes))
            found.append(LogDir(broker, folder.log_dir, total, usable, sizes, error_code(folder.error_code)))
    return found


async def topic_configs(
    cluster: Cluster, names: Sequence[str]
) -> dict[str, list[DescribeConfigsResourceResult]] | None:
    """The configs of many topics in few requests; of those that may be read. None where the cluster cannot tell."""
    from klamm.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    found = {}
    for first in range(0, len(names), _MAX_RESOURCES):
        wanted = [
            DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None)
            for name in names[first : first + _MAX_RESOURCES]
        ]
        try:
            answer = await cluster.request(DescribeConfigsRequest(resources=wanted))
        except UnsupportedVersion:
            return None
        for result in answer.results:
            if not result.error_code:
                found[result.resource_name] = sorted(result.configs, key=lambda config: config.name)
    return found


def refusal(outcomes: Sequence[Outcome], what: str) -> Failed:
    """One failure for all items that were refused."""
    return Failed("; ".join(f"{what} {one.name}: {one.text} ({one.code.name})" for one in outcomes))
