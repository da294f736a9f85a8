"""The administrator's client for programs without asyncio: `klamm.client.admin`, call by call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from klamm.blocking.face import Face, does, waits
from klamm.client.admin.admin import Admin as AioAdmin


class Admin(Face[AioAdmin]):
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics(["orders", "payments"]).check()
    """

    what: ClassVar[str] = "admin client"

    def __init__(self, *, config: Mapping[str, object] | None = None, **options: Any) -> None:
        super().__init__(AioAdmin(config=config, **options))
        self.config = self._client.config

    list_topics = waits(AioAdmin.list_topics)
    describe_topics = waits(AioAdmin.describe_topics)
    create_topics = waits(AioAdmin.create_topics)
    delete_topics = waits(AioAdmin.delete_topics)
    create_partitions = waits(AioAdmin.create_partitions)
    list_offsets = waits(AioAdmin.list_offsets)
    delete_records = waits(AioAdmin.delete_records)

    describe_configs = waits(AioAdmin.describe_configs)
    alter_configs = waits(AioAdmin.alter_configs)
    list_config_resources = waits(AioAdmin.list_config_resources)

    list_groups = waits(AioAdmin.list_groups)
    describe_groups = waits(AioAdmin.describe_groups)
    delete_groups = waits(AioAdmin.delete_groups)
    remove_group_members = waits(AioAdmin.remove_group_members)
    list_group_offsets = waits(AioAdmin.list_group_offsets)
    alter_group_offsets = waits(AioAdmin.alter_group_offsets)
    delete_group_offsets = waits(AioAdmin.delete_group_offsets)

    describe_acls = waits(AioAdmin.describe_acls)
    create_acls = waits(AioAdmin.create_acls)
    delete_acls = waits(AioAdmin.delete_acls)
    describe_quotas = waits(AioAdmin.describe_quotas)
    alter_quotas = waits(AioAdmin.alter_quotas)
    describe_scram_users = waits(AioAdmin.describe_scram_users)
    alter_scram_users = waits(AioAdmin.alter_scram_users)

    elect_leaders = waits(AioAdmin.elect_leaders)
    alter_reassignments = waits(AioAdmin.alter_reassignments)
    list_reassignments = waits(AioAdmin.list_reassignments)
    describe_log_dirs = waits(AioAdmin.describe_log_dirs)
    alter_replica_log_dirs = waits(AioAdmin.alter_replica_log_dirs)

    list_transactions = waits(AioAdmin.list_transactions)
    describe_transactions = waits(AioAdmin.describe_transactions)
    end_transactions = waits(AioAdmin.end_transactions)
    fence_producers = waits(AioAdmin.fence_producers)
    describe_producers = waits(AioAdmin.describe_producers)
    abort_transaction = waits(AioAdmin.abort_transaction)

    describe_cluster = waits(AioAdmin.describe_cluster)
    unregister_broker = waits(AioAdmin.unregister_broker)
    describe_features = waits(AioAdmin.describe_features)
    update_features = waits(AioAdmin.update_features)
    describe_quorum = waits(AioAdmin.describe_quorum)

    metrics = does(AioAdmin.metrics)
