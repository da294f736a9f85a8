"""Kafka's error codes, each with whether a client may simply try again."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An expected failure is a value of this kind, in an answer, for one topic or partition; not an exception."""

    retriable: bool
    text: str

    def __new__(cls, code: int, text: str, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in a way it did not expect; its log has the details."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside what the broker keeps for this partition."
    CORRUPT_MESSAGE = 2, "The batch is damaged: its checksum, size or count is wrong.", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not have that topic or partition.", True
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", True
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead (or follow) the partition; refresh metadata.", True
    REQUEST_TIMED_OUT = 7, "The request took longer than its time limit.", True
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available.", True
    MESSAGE_TOO_LARGE = 10, "The batch is larger than max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading.", True
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", True
    NOT_COORDINATOR = 16, "This broker does not coordinate that group or transaction.", True
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid."
    RECORD_LIST_TOO_LARGE = 18, "The request holds a batch larger than a segment may be."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas asks for.", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer in-sync replicas than asked for.", True
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "No protocol is shared by all members of the group."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committed offset is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for this topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "The timestamp is further from the broker's clock than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not have this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not have this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic with this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", True
    INVALID_REQUEST = 42, "The request makes no sense as it stands."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The partition's message format does not support this."
    POLICY_VIOLATION = 44, "The request breaks a policy of the broker."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The batch's sequence does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch was written before."
    INVALID_PRODUCER_EPOCH = 47, "A newer producer with this id has taken over."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above max.transaction.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "The previous transaction is still being completed.", True
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for this transactional id."
    SECURITY_DISABLED = 54, "Security is not switched on."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The broker cannot read or write this partition's files.", True
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log folder."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of this partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not switched on."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be asked for on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal's type is not supported."
    NON_EMPTY_GROUP = 68, "The group has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is gone; start a new one.", True
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch does not follow.", True
    LISTENER_NOT_FOUND = 72, "The leader has no listener that matches this one.", True
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the broker's.", True
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch of the request is newer than the broker's.", True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression codec is not supported."
    STALE_BROKER_EPOCH = 77, "The broker epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, "A new leader does not know its high watermark yet.", True
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", True
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available.", True
    ELECTION_NOT_NEEDED = 84, "The partition has that leader already.", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic; its offsets cannot be deleted."
    INVALID_RECORD = 87, "The broker refused the record."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction are pending.", True
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is used up; wait.", True
    PRODUCER_FENCED = 90, "A newer producer with this transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "There is nothing with that name."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, "The voter sets do not agree."
    INVALID_UPDATE_VERSION = 95, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "A forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker does not have a topic with that id.", True
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker with this id is registered."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id is not the one in the log.", True
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic ids and names.", True
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change elected a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is not the coordinator's; join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The coordinator does not have this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is older than the coordinator's."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The broker's registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction has to be aborted; then go on."
    INVALID_RECORD_STATE = 121, "The record's state does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session is gone.", True
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch does not follow.", True
    FENCED_STATE_EPOCH = 124, "The share coordinator's state epoch is newer."
    INVALID_VOTER_KEY = 125, "The voter key is not the receiver's."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old; bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are too many share sessions.", True


class BrokerError(Exception):
    """An expected failure on its way to the place that puts it into an answer as a value."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code
