"""The message tables: one module for each API key, imported when the key is first asked for.

`coordinator` has the records of the internal topics, `consumer_protocol` what members of classic groups tell each
other, `headers` the headers of requests and responses.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from klamm.wire.schema import Request, Response

NEVER: Final = 1 << 15  # above every version, which is an int16

APIS: Final[dict[int, tuple[str, str, int]]] = {  # key: module, name, first flexible version
    0: ("k00_produce", "Produce", 9),
    1: ("k01_fetch", "Fetch", 12),
    2: ("k02_list_offsets", "ListOffsets", 6),
    3: ("k03_metadata", "Metadata", 9),
    8: ("k08_offset_commit", "OffsetCommit", 8),
    9: ("k09_offset_fetch", "OffsetFetch", 6),
    10: ("k10_find_coordinator", "FindCoordinator", 3),
    11: ("k11_join_group", "JoinGroup", 6),
    12: ("k12_heartbeat", "Heartbeat", 4),
    13: ("k13_leave_group", "LeaveGroup", 4),
    14: ("k14_sync_group", "SyncGroup", 4),
    15: ("k15_describe_groups", "DescribeGroups", 5),
    16: ("k16_list_groups", "ListGroups", 3),
    17: ("k17_sasl_handshake", "SaslHandshake", NEVER),
    18: ("k18_api_versions", "ApiVersions", 3),
    19: ("k19_create_topics", "CreateTopics", 5),
    20: ("k20_delete_topics", "DeleteTopics", 4),
    21: ("k21_delete_records", "DeleteRecords", 2),
    22: ("k22_init_producer_id", "InitProducerId", 2),
    23: ("k23_offset_for_leader_epoch", "OffsetForLeaderEpoch", 4),
    24: ("k24_add_partitions_to_txn", "AddPartitionsToTxn", 3),
    25: ("k25_add_offsets_to_txn", "AddOffsetsToTxn", 3),
    26: ("k26_end_txn", "EndTxn", 3),
    27: ("k27_write_txn_markers", "WriteTxnMarkers", 1),
    28: ("k28_txn_offset_commit", "TxnOffsetCommit", 3),
    29: ("k29_describe_acls", "DescribeAcls", 2),
    30: ("k30_create_acls", "CreateAcls", 2),
    31: ("k31_delete_acls", "DeleteAcls", 2),
    32: ("k32_describe_configs", "DescribeConfigs", 4),
    33: ("k33_alter_configs", "AlterConfigs", 2),
    34: ("k34_alter_replica_log_dirs", "AlterReplicaLogDirs", 2),
    35: ("k35_describe_log_dirs", "DescribeLogDirs", 2),
    36: ("k36_sasl_authenticate", "SaslAuthenticate", 2),
    37: ("k37_create_partitions", "CreatePartitions", 2),
    38: ("k38_create_delegation_token", "CreateDelegationToken", 2),
    39: ("k39_renew_delegation_token", "RenewDelegationToken", 2),
    40: ("k40_expire_delegation_token", "ExpireDelegationToken", 2),
    41: ("k41_describe_delegation_token", "DescribeDelegationToken", 2),
    42: ("k42_delete_groups", "DeleteGroups", 2),
    43: ("k43_elect_leaders", "ElectLeaders", 2),
    44: ("k44_incremental_alter_configs", "IncrementalAlterConfigs", 1),
    45: ("k45_alter_partition_reassignments", "AlterPartitionReassignments", 0),
    46: ("k46_list_partition_reassignments", "ListPartitionReassignments", 0),
    47: ("k47_offset_delete", "OffsetDelete", NEVER),
    48: ("k48_describe_client_quotas", "DescribeClientQuotas", 1),
    49: ("k49_alter_client_quotas", "AlterClientQuotas", 1),
    50: ("k50_describe_user_scram_credentials", "DescribeUserScramCredentials", 0),
    51: ("k51_alter_user_scram_credentials", "AlterUserScramCredentials", 0),
    55: ("k55_describe_quorum", "DescribeQuorum", 0),
    56: ("k56_alter_partition", "AlterPartition", 0),
    57: ("k57_update_features", "UpdateFeatures", 0),
    60: ("k60_describe_cluster", "DescribeCluster", 0),
    61: ("k61_describe_producers", "DescribeProducers", 0),
    64: ("k64_unregister_broker", "UnregisterBroker", 0),
    65: ("k65_describe_transactions", "DescribeTransactions", 0),
    66: ("k66_list_transactions", "ListTransactions", 0),
    67: ("k67_allocate_producer_ids", "AllocateProducerIds", 0),
    68: ("k68_consumer_group_heartbeat", "ConsumerGroupHeartbeat", 0),
    69: ("k69_consumer_group_describe", "ConsumerGroupDescribe", 0),
    71: ("k71_get_telemetry_subscriptions", "GetTelemetrySubscriptions", 0),
    72: ("k72_push_telemetry", "PushTelemetry", 0),
    74: ("k74_list_config_resources", "ListConfigResources", 0),
    75: ("k75_describe_topic_partitions", "DescribeTopicPartitions", 0),
}


def request_type(key: int) -> type[Request]:
    """The request class of an API key; KeyError if there is no table for it."""
    module, name, _ = APIS[key]
    found: type[Request] = getattr(import_module(f"{__name__}.{module}"), name + "Request")
    return found


def response_type(key: int) -> type[Response]:
    """The response class of an API key; KeyError if there is no table for it."""
    module, name, _ = APIS[key]
    found: type[Response] = getattr(import_module(f"{__name__}.{module}"), name + "Response")
    return found


def first_flexible(key: int) -> int:
    """From which version on requests of this key have a flexible header (v2); NEVER if none or not known."""
    entry = APIS.get(key)
    return entry[2] if entry else NEVER
