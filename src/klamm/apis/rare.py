"""The APIs that nobody calls every second, with the versions that they serve: their first call imports their modules.

Two thirds of all modules are of this kind, and a broker that starts does not have the 16 ms that they take; what it has
to know of them is what ApiVersions tells. A test holds this list against the modules. A module that is not in it is
imported at the start.
"""

from __future__ import annotations

from typing import Final

RARE: Final = {
    "k08_offset_commit": (2, 10),
    "k09_offset_fetch": (1, 10),
    "k15_describe_groups": (0, 6),
    "k16_list_groups": (0, 5),
    "k11_join_group": (0, 9),
    "k12_heartbeat": (0, 4),
    "k13_leave_group": (0, 5),
    "k14_sync_group": (0, 5),
    "k21_delete_records": (0, 2),
    "k24_add_partitions_to_txn": (0, 5),
    "k25_add_offsets_to_txn": (0, 4),
    "k26_end_txn": (0, 5),
    "k27_write_txn_markers": (1, 2),
    "k28_txn_offset_commit": (0, 5),
    "k29_describe_acls": (1, 3),
    "k30_create_acls": (1, 3),
    "k31_delete_acls": (1, 3),
    "k32_describe_configs": (1, 4),
    "k33_alter_configs": (0, 2),
    "k34_alter_replica_log_dirs": (1, 2),
    "k35_describe_log_dirs": (1, 5),
    "k37_create_partitions": (0, 3),
    "k42_delete_groups": (0, 2),
    "k43_elect_leaders": (0, 2),
    "k44_incremental_alter_configs": (0, 1),
    "k45_alter_partition_reassignments": (0, 1),
    "k46_list_partition_reassignments": (0, 0),
    "k47_offset_delete": (0, 0),
    "k48_describe_client_quotas": (0, 1),
    "k49_alter_client_quotas": (0, 1),
    "k50_describe_user_scram_credentials": (0, 0),
    "k55_describe_quorum": (0, 2),
    "k57_update_features": (0, 2),
    "k60_describe_cluster": (0, 2),
    "k61_describe_producers": (0, 0),
    "k65_describe_transactions": (0, 0),
    "k66_list_transactions": (0, 2),
    "k68_consumer_group_heartbeat": (0, 1),
    "k69_consumer_group_describe": (0, 1),
    "k74_list_config_resources": (0, 1),
    "k75_describe_topic_partitions": (0, 0),
}
