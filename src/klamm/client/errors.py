"""What can go wrong for a user of a cluster. Each error says what happened, and in `hint` what to do about it.

`retriable` means that the same call may succeed a little later without anybody changing anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.core.errors import ErrorCode


class ClientError(Exception):
    """The base of all of them. `text` is one sentence; `hint`, where there is one, is another."""

    retriable = False
    topic: str | None = None
    """What it is about, where it is about one topic, or one partition of it."""
    partition: int | None = None

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(f"{text} {hint}" if hint else text)
        self.text = text
        self.hint = hint


class ConfigError(ClientError):
    """A client option cannot be used as it was given."""


class NotReachable(ClientError):
    """None of the addresses answered. `attempts` has each with the reason."""

    retriable = True

    def __init__(self, attempts: Sequence[tuple[str, str]], hint: str = "") -> None:
        tried = "; ".join(f"{address}: {reason}" for address, reason in attempts)
        super().__init__(f"No broker could be reached ({tried or 'no address was given'}).", hint)
        self.attempts = tuple(attempts)


class ConnectionLost(ClientError):
    """The connection ended before the answer came: what was asked for may have happened or not."""

    retriable = True


class TimedOut(ClientError):
    """No answer within the time limit: what was asked for may have happened or not."""

    retriable = True


class AuthenticationFailed(ClientError):
    """The broker does not let us in, or we do not believe that it is the broker: wrong password, wrong token. Only what
    is `retriable` (no token was to be had) is tried again."""

    def __init__(self, text: str, hint: str = "", *, retriable: bool = False) -> None:
        super().__init__(text, hint)
        self.retriable = retriable


class TlsFailed(ClientError):
    """The two sides could not agree on a protected connection: a certificate, a host name, a protocol."""


class UnsupportedVersion(ClientError):
    """The broker does not have this API, or only in versions that we do not speak."""


class BadAnswer(ClientError):
    """The peer sent something that is not Kafka's protocol."""


class BadRecords(ClientError):
    """Records that a broker served cannot be read: they are damaged, or in a format that is not supported."""


class Closed(ClientError):
    """The cluster was closed while, or before, this was asked for."""


class OffsetOutOfRange(ClientError):
    """The offset to read from is not, or no longer, in the log."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f"Offset {offset} of {topic}, partition {partition}, is outside of what the broker keeps.",
            "Start from the beginning or the end, or look up the offsets there are.",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


class ConsumerMisuse(ClientError):
    """A call that does not fit what the consumer is doing."""


class NotAssigned(ConsumerMisuse):
    """The partition is not one of the consumer's."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"{topic}, partition {partition}, is not assigned to this consumer.",
            "Assign it; in a group, partitions come while records are waited for, and `on_assigned` is told.",
        )
        self.topic = topic
        self.partition = partition


class NoPosition(ClientError):
    """A partition has no committed offset, and auto.offset.reset=none forbids to choose another one."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"There is no offset to begin with in {topic}, partition {partition}.",
            "Seek to one, commit one, or set auto.offset.reset to earliest or latest.",
        )
        self.topic = topic
        self.partition = partition


class LogTruncated(ClientError):
    """Records that were read are no longer in the log: a leader without them was elected (KIP-320). The log that was
    read and the one there is now part at `diverged_at`, where the record before is of `leader_epoch`; None and -1 where
    the broker could not tell."""

    def __init__(
        self, topic: str, partition: int, offset: int, diverged_at: int | None, leader_epoch: int = -1
    ) -> None:
        where = "somewhere before" if diverged_at is None else f"at {diverged_at}"
        super().__init__(
            f"{topic}, partition {partition}, was cut {where}, and was read up to {offset} already.",
            "Seek to where it is right to go on.",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverged_at = diverged_at
        self.leader_epoch = leader_epoch


class BrokerSaid(ClientError):
    """The broker answered with an error. `about` names what it is about: a topic, a partition."""

    def __init__(self, code: ErrorCode, about: str = "", message: str | None = None, hint: str = "") -> None:
        text = message or code.text or code.name
        super().__init__(f"{about}: {text} ({code.name})" if about else f"{text} ({code.name})", hint)
        self.code = code
        self.about = about
        self.retriable = code.retriable


class ProducerFenced(ClientError):
    """Another producer has taken over the transactional id. This one is of no more use; its transaction was aborted."""


class TransactionAborted(ClientError):
    """The transaction cannot be committed, or was aborted. Begin a new one and do all of it again."""


class TransactionUnfinished(TimedOut):
    """Nobody knows yet whether the transaction is committed: asking took too long. `commit` (or `abort`) may be called
    again, and goes on where it was."""


class CommitFailed(BrokerSaid):
    """Offsets were not committed, because the group has gone on without this member, or is just rebalancing. The
    partitions may belong to another member by now, which begins at the last commit."""

    def __init__(self, code: ErrorCode, group_id: str) -> None:
        super().__init__(
            code,
            f"committing offsets of group {group_id}",
            hint="Ask for records again: what is still assigned comes from its last commit on. "
            "If this happens often, take fewer records at a time, or raise max.poll.interval.ms.",
        )


def error_code(number: int) -> ErrorCode:
    """The code of this number; UNKNOWN_SERVER_ERROR for one that is newer than we are."""
    try:
        return ErrorCode(number)  # type: ignore[call-arg]  # the lookup by value, which mypy takes for the constructor
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
