"""The cluster itself: its brokers, its quorum of controllers, its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from klamm.client.admin.asking import Part, ask_controller, needs, patiently, version_of
from klamm.client.admin.results import Results, failure
from klamm.client.errors import BrokerSaid, UnsupportedVersion
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.wire.messages.k55_describe_quorum import DescribeQuorumResponse, ReplicaState

_FENCED: Final = 2  # DescribeCluster: brokers that are registered and not in service
_UPGRADE_TYPES: Final = 1  # UpdateFeatures: before it, a downgrade was allowed or not, and nothing could be tried
_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A `fenced` one is registered and not in service."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller` is the broker that takes changes; None while there is none."""

    cluster_id: str | None
    controller: int | None
    brokers: Mapping[int, BrokerDescription]


class Upgrade(IntEnum):
    """How far a feature may go: only up, down where nothing is lost, or down at any price. Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level of 0 switches the feature off."""

    level: int
    upgrade: Upgrade = Upgrade.UPGRADE


@dataclass(frozen=True, slots=True)
class Features:
    """`supported` by the broker that was asked: from, to. `finalized` for the whole cluster, as of `epoch`."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int | None


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Times are None where the leader does not know them."""

    id: int
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    directory_id: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A controller's listeners: name, host, port."""

    id: int
    listeners: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: tuple[QuorumNode, ...] = ()


class Clusters(Part):
    async def describe_cluster(self, *, fenced: bool = False) -> ClusterDescription:
        """The brokers that are there; with `fenced`, those too that are registered and not in service."""
        from klamm.wire.messages.k60_describe_cluster import DescribeClusterRequest

        async def ask() -> ClusterDescription:
            try:
                version = await self._cluster.version(DescribeClusterRequest)
            except UnsupportedVersion:
                return await self._from_metadata(fenced)
            needs(version, _FENCED if fenced else 0, "to tell of brokers that are not in service")
            request = DescribeClusterRequest(include_fenced_brokers=fenced)
            answer = await self._cluster.request(request, version=version)
            if (error := failure(answer.error_code, "the cluster", answer.error_message)) is not None:
                raise error
            brokers = {
                one.broker_id: BrokerDescription(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
                for one in sorted(answer.brokers, key=lambda one: one.broker_id)
            }
            return ClusterDescription(
                answer.cluster_id, answer.controller_id if answer.controller_id >= 0 else None, brokers
            )

        return await patiently(self._cluster, ask)

    async def _from_metadata(self, fenced: bool) -> ClusterDescription:
        """Brokers before Kafka 2.8 have no question of its own for it."""
        needs(0, _FENCED if fenced else 0, "to tell of brokers that are not in service")
        found = await self._cluster.metadata([])
        brokers = {
            one.id: BrokerDescription(one.id, one.host, one.port, one.rack)
            for one in sorted(found.brokers.values(), key=lambda one: one.id)
        }
        return ClusterDescription(found.cluster_id, found.controller_id if found.controller_id >= 0 else None, brokers)

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that will not come back."""
        from klamm.wire.messages.k64_unregister_broker import UnregisterBrokerRequest

        answer = await ask_controller(self._cluster, UnregisterBrokerRequest(broker_id=broker_id), _code)
        if (error := failure(answer.error_code, f"broker {broker_id}", answer.error_message)) is not None:
            raise error

    async def describe_features(self) -> Features:
        from klamm.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name="klamm", client_software_version="1")

        async def ask() -> Features:
            answer: ApiVersionsResponse = await self._cluster.request(request)
            if (error := failure(answer.error_code, "features")) is not None:
                raise error
            return Features(
                {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
                {one.name: one.max_version_level for one in answer.finalized_features},
                answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
            )

        return await patiently(self._cluster, ask)

    async def update_features(
        self, updates: Mapping[str, int | FeatureUpdate], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Bring features to other levels. From Kafka 4.0 on all are changed or none: then an error is everybody's."""
        from klamm.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

        if not updates:
            return Results({})
        version = await version_of(self._cluster, UpdateFeaturesRequest)
        needs(version, _UPGRADE_TYPES if validate_only else 0, "to try changes of features")
        keys = []
        for name, given in updates.items():
            update = FeatureUpdate(given) if isinstance(given, int) else given
            key = FeatureUpdateKey(feature=name, max_version_level=update.level)
            if version >= _UPGRADE_TYPES:
                key.upgrade_type = update.upgrade
            else:
                key.allow_downgrade = update.upgrade is not Upgrade.UPGRADE
            keys.append(key)
        request = UpdateFeaturesRequest(
            timeout_ms=self._cluster.config.request_timeout_ms, feature_updates=keys, validate_only=validate_only
        )
        answer = await ask_controller(self._cluster, request, _code, version=version)
        told = {name: failure(answer.error_code, name, answer.error_message) for name in updates}
        for one in answer.results or ():
            told[one.feature] = failure(one.error_code, one.feature, one.error_message)
        return Results.of(updates, told)

    async def describe_quorum(self) -> QuorumDescription:
        """Who keeps the cluster's metadata, and how far each of them is."""
        from klamm.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

        asked = TopicData(topic_name=_METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
        request = DescribeQuorumRequest(topics=[asked])

        async def ask() -> QuorumDescription:
            answer: DescribeQuorumResponse = await self._cluster.request(request)
            if (error := failure(answer.error_code, "the quorum", answer.error_message)) is not None:
                raise error
            if not answer.topics or not answer.topics[0].partitions:
                raise BrokerSaid(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum", "The broker's answer is empty.")
            (told,) = answer.topics[0].partitions
            if (error := failure(told.error_code, "the quorum", told.error_message)) is not None:
                raise error
            return QuorumDescription(
                told.leader_id,
                told.leader_epoch,
                told.high_watermark,
                tuple(map(_replica, told.current_voters)),
                tuple(map(_replica, told.observers)),
                tuple(
                    QuorumNode(node.node_id, tuple((at.name, at.host, at.port) for at in node.listeners))
                    for node in answer.nodes
                ),
            )

        return await patiently(self._cluster, ask)


def _code(answer: Any) -> list[int]:
    return [answer.error_code]


def _replica(told: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        told.replica_id,
        told.log_end_offset,
        told.last_fetch_timestamp if told.last_fetch_timestamp >= 0 else None,
        told.last_caught_up_timestamp if told.last_caught_up_timestamp >= 0 else None,
        bytes(told.replica_directory_id),
    )
