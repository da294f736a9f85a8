"""The two coordinators of a broker, put together. What their machines are made of is imported with the first shard: a
broker that nobody joins a group on starts without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.coordinator.counters import GroupCounters, TransactionCounters
from klamm.coordinator.runtime import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Coordinator

if TYPE_CHECKING:
    from klamm.controller import Controller
    from klamm.coordinator.groups.consumer.resolver import RegexResolver
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.transactions.machine import TxnMachine
    from klamm.core.env import Env
    from klamm.core.options import Options
    from klamm.metadata.publisher import Publisher
    from klamm.replica.manager import ReplicaManager
    from klamm.replica.producer_ids import ProducerIds


def group_coordinator(
    env: Env, options: Callable[[], Options], replicas: ReplicaManager, controller: Controller, metadata: Publisher
) -> Coordinator[GroupMachine]:
    """`options()` are the broker's as they are now."""
    counters = GroupCounters()

    def make(partition: int) -> GroupMachine:
        from klamm.coordinator.groups.machine import GroupMachine

        return GroupMachine(options, env.uuid, counters)

    groups = Coordinator(
        OFFSETS_TOPIC,
        make,
        machine_module="klamm.coordinator.groups.machine",
        env=env,
        replicas=replicas,
        controller=controller,
        metadata=metadata,
        counters=counters,
    )
    resolver: RegexResolver | None = None

    def resolve(partition: int, effect: object) -> None:
        nonlocal resolver
        if resolver is None:
            from klamm.coordinator.groups.consumer.resolver import RegexResolver

            resolver = RegexResolver(groups, lambda: metadata.image)
        resolver(partition, effect)

    groups.on_effect = resolve
    return groups


def transaction_coordinator(
    env: Env,
    options: Callable[[], Options],
    replicas: ReplicaManager,
    controller: Controller,
    metadata: Publisher,
    producer_ids: ProducerIds,
) -> Coordinator[TxnMachine]:
    """Whoever has effects carried out sets `on_effect` before the start."""
    counters = TransactionCounters()

    def make(partition: int) -> TxnMachine:
        from klamm.coordinator.transactions.machine import Settings, TxnMachine

        return TxnMachine(Settings.of(options()), producer_ids.take_now, counters)

    return Coordinator(
        TRANSACTIONS_TOPIC,
        make,
        machine_module="klamm.coordinator.transactions.machine",
        env=env,
        replicas=replicas,
        controller=controller,
        metadata=metadata,
        counters=counters,
    )
