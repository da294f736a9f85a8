"""The partitions of this broker, found by topic name or id, as the metadata image has them.

A `Partition` is made when it is first asked for: of ten thousand, most are never touched between two restarts. From
then on it follows the image: `apply` is called with every new one, on the loop, before anybody who waited for the
change goes on. This module must never decide who leads; it does what the image says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.core.options import Options, resolve
from klamm.log.manager import LogManager
from klamm.metadata.cleaner_config import cleaner_settings
from klamm.metadata.image import EMPTY, TOPIC_RESOURCE, Image, PartitionState, TopicState
from klamm.metadata.replay import Delta
from klamm.metadata.topic_config import log_config
from klamm.replica.deletion import DeletedBelow, delete_records
from klamm.replica.partition import Partition
from klamm.replica.recoding import INLINE_BYTES, Recoder

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))


class ReplicaManager:
    __slots__ = ("_by_id", "_by_name", "_image", "_node_id", "_options", "_recoder", "fetch_max_bytes", "logs")

    def __init__(
        self, node_id: int, logs: LogManager, options: Options, *, recode_inline_bytes: int = INLINE_BYTES
    ) -> None:
        self._node_id = node_id
        self.logs = logs
        self._options = options
        logs.cleaning = cleaner_settings(options)
        self._recoder = Recoder(logs.env.executor, recode_inline_bytes)
        self._image = EMPTY
        self._by_name: dict[str, dict[int, Partition]] = {}  # only what was asked for
        self._by_id: dict[bytes, dict[int, Partition]] = {}  # the same inner dicts
        self.fetch_max_bytes = options.get_int("fetch.max.bytes")

    # Finding

    def find(self, topic: str, index: int) -> Partition | None:
        """None if the image does not have it. Whether this broker leads it is the partition's to say."""
        opened = self._by_name.get(topic)
        if opened is not None:
            partition = opened.get(index)
            if partition is not None:
                return partition
        return self._open(self._image.topics.get(topic), index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        opened = self._by_id.get(topic_id)
        if opened is not None:
            partition = opened.get(index)
            if partition is not None:
                return partition
        return self._open(self._image.topic_ids.get(TopicId(topic_id)), index)

    def knows_id(self, topic_id: bytes) -> bool:
        return topic_id in self._image.topic_ids

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topic_ids.get(TopicId(topic_id))
        return None if topic is None else topic.name

    @property
    def offline(self) -> Mapping[str, Collection[int]]:
        """The partitions, by topic, of which this broker has a log that has failed: it can neither lead nor follow them
        until the log is back. Empty in normal times."""
        return self.logs.offline

    @property
    def offline_version(self) -> int:
        """Grows whenever `offline` changes."""
        return self.logs.offline_version

    async def delete_records(self, asked: Sequence[tuple[str, int, int]]) -> list[DeletedBelow]:
        """Delete the records of (topic, partition) below an offset; -1: below the high watermark."""
        found = [self._deletable(topic, index) for topic, index, _ in asked]
        fine = [(one, offset) for one, (_, _, offset) in zip(found, asked, strict=True) if isinstance(one, Partition)]
        done = iter(await delete_records(self.logs, fine) if fine else ())
        return [next(done) if isinstance(one, Partition) else DeletedBelow(error=one) for one in found]

    def _deletable(self, topic: str, index: int) -> Partition | ErrorCode:
        """A partition that a client may delete records of, or why not."""
        partition = self.find(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.internal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        policies = resolve("cleanup.policy", self._image.topic_configs(topic), self._options).value
        assert isinstance(policies, tuple)
        return partition if "delete" in policies else ErrorCode.POLICY_VIOLATION

    def opened(self) -> Iterator[Partition]:
        """The partitions that somebody has asked for since the start."""
        for partitions in self._by_name.values():
            yield from partitions.values()

    def _open(self, topic: TopicState | None, index: int) -> Partition | None:
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        partition = Partition(topic.name, topic.id, index, self._recoder)
        partition.internal = topic.name in INTERNAL_TOPICS
        self._follow(partition, topic.partitions[index])
        opened = self._by_id.get(topic.id)
        if opened is None:
            opened = self._by_id[topic.id] = self._by_name[topic.name] = {}
        opened[index] = partition
        return partition

    def close(self) -> None:
        """The logs are about to close: what still waits to be appended is refused."""
        self._recoder.close()

    # Following the image

    def apply(self, image: Image, delta: Delta) -> None:
        """The image is now this one. Removed topics go first: one of the same name may have been created since."""
        self._image = image
        for topic in delta.removed:
            self._remove(topic)
        for change in delta.changed:
            opened = self._by_id.get(change.new.id, {})
            for index, partition in opened.items():
                state = change.new.partitions[index]
                if state is not change.old.partitions[index]:
                    self._follow(partition, state)
        for resource in delta.configs:
            if resource.type == TOPIC_RESOURCE:
                self._reconfigure(resource.name)

    def reconfigure(self, options: Options) -> None:
        """The broker's options are now these: every topic may have other ones in force."""
        if options is self._options:
            return
        self._options = options
        self.logs.cleaning = cleaner_settings(options)
        for topic in self._image.topics:
            self._reconfigure(topic)

    def _remove(self, topic: TopicState) -> None:
        opened = self._by_id.pop(topic.id, None)
        if opened is not None:
            if self._by_name.get(topic.name) is opened:
                del self._by_name[topic.name]
            for partition in opened.values():
                partition.stop_leading(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for index, state in enumerate(topic.partitions):
            if self._node_id in state.replicas:
                self.logs.delete(topic.name, index)

    def _follow(self, partition: Partition, state: PartitionState) -> None:
        if state.leader != self._node_id:
            partition.stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, state.leader, state.leader_epoch)
            return
        log = self.logs.get_or_create(
            partition.topic,
            partition.index,
            partition.topic_id,
            log_config(self._image, partition.topic, self._options),
        )
        partition.lead(
            log,
            state.leader,
            state.leader_epoch,
            isr_size=len(state.isr),
            min_isr=self._min_isr(partition.topic),
            followers=tuple(node for node in state.replicas if node != self._node_id),
        )

    def _reconfigure(self, topic: str) -> None:
        """Logs too that nobody has asked for yet: those that were recovered, and grow old meanwhile."""
        state = self._image.topics.get(topic)
        if state is None:
            return
        config = log_config(self._image, topic, self._options)
        for index in range(len(state.partitions)):
            log = self.logs.get(topic, index)
            if log is not None:
                log.config = config
        opened = self._by_name.get(topic)
        if opened:
            min_isr = self._min_isr(topic)
            for partition in opened.values():
                partition.min_isr = min_isr

    def _min_isr(self, topic: str) -> int:
        value = resolve("min.insync.replicas", self._image.topic_configs(topic), self._options).value
        assert isinstance(value, int)
        return value
