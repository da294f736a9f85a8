"""What goes into the calls of `Admin`, and what comes back.

    from klamm.admin import NewTopic, Resource
    from klamm.aio import Admin

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        made = await admin.create_topics([NewTopic("orders", partitions=6), "payments"])
        print(made["orders"].partitions, made.errors)
        await admin.alter_configs({Resource.topic("orders"): {"retention.ms": "86400000"}})

A call that takes several items answers for each of them: `Results` is a mapping of those that worked, and its `errors`
has the others. What fails as a whole raises.
"""

from klamm.client.admin.acls import Acl, AclFilter
from klamm.client.admin.clusters import (
    BrokerDescription,
    ClusterDescription,
    Features,
    FeatureUpdate,
    QuorumDescription,
    QuorumNode,
    QuorumReplica,
    Upgrade,
)
from klamm.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ConfigSynonym,
    Resource,
    ResourceType,
)
from klamm.client.admin.group_members import GroupDescription, MemberDescription
from klamm.client.admin.groups import CommittedOffset, GroupListing, MemberToRemove
from klamm.client.admin.placement import Elected, Election, LogDir, Reassignment, Replica, ReplicaInfo
from klamm.client.admin.results import Results
from klamm.client.admin.topics import (
    TO_THE_END,
    CreatedTopic,
    DeletedRecords,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from klamm.client.admin.transactions import FencedProducer, ProducerState, TransactionDescription, TransactionListing
from klamm.client.admin.users import (
    ANY_NAME,
    QuotaEntity,
    QuotaFilter,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from klamm.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetFound
from klamm.core.acls import AclOperation, AclResource, PatternType, Permission

__all__ = [
    "ANY_NAME",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "TO_THE_END",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclResource",
    "BrokerDescription",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "DeletedRecords",
    "Elected",
    "Election",
    "FeatureUpdate",
    "Features",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "LogDir",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetFound",
    "PartitionDescription",
    "PatternType",
    "Permission",
    "ProducerState",
    "QuorumDescription",
    "QuorumNode",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "Reassignment",
    "Replica",
    "ReplicaInfo",
    "Resource",
    "ResourceType",
    "Results",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "Upgrade",
]
