"""What Klamm's clients raise.

All are a `ClientError`. Each says in `text` what happened and, where there is one, in `hint` what to do about it;
`retriable` means that the same call may succeed a little later; `topic` and `partition` say what it is about, where it
is about one. `BrokerSaid.code` is the broker's own, an `ErrorCode`.
"""

from klamm.client.deserializing import BadValue
from klamm.client.errors import (
    AuthenticationFailed,
    BadAnswer,
    BadRecords,
    BrokerSaid,
    ClientError,
    Closed,
    CommitFailed,
    ConfigError,
    ConnectionLost,
    ConsumerMisuse,
    LogTruncated,
    NoPosition,
    NotAssigned,
    NotReachable,
    OffsetOutOfRange,
    ProducerFenced,
    TimedOut,
    TlsFailed,
    TransactionAborted,
    TransactionUnfinished,
    UnsupportedVersion,
)
from klamm.core.errors import ErrorCode

__all__ = [
    "AuthenticationFailed",
    "BadAnswer",
    "BadRecords",
    "BadValue",
    "BrokerSaid",
    "ClientError",
    "Closed",
    "CommitFailed",
    "ConfigError",
    "ConnectionLost",
    "ConsumerMisuse",
    "ErrorCode",
    "LogTruncated",
    "NoPosition",
    "NotAssigned",
    "NotReachable",
    "OffsetOutOfRange",
    "ProducerFenced",
    "TimedOut",
    "TlsFailed",
    "TransactionAborted",
    "TransactionUnfinished",
    "UnsupportedVersion",
]
