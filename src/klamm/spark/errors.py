"""What can go wrong between a topic and a DataFrame. Spark shows the text of these to whoever runs the query."""

from __future__ import annotations

from klamm.client.errors import BrokerSaid, ClientError
from klamm.core.errors import ErrorCode


class SparkError(ClientError):
    """The base of them."""


class BadOption(SparkError):
    """An option of a source or sink cannot be used as it was given."""


class DataLoss(SparkError):
    """Records that a query was to read are no longer there. Raised unless `failOnDataLoss` is false."""

    def __init__(self, text: str) -> None:
        super().__init__(
            text,
            "Set failOnDataLoss=false to go on with what there is, or start anew with another checkpoint.",
        )


class NothingCame(SparkError):
    """A broker has records that it does not give out."""

    retriable = True


def is_gone(error: ClientError) -> bool:
    """Whether a topic or partition is not there (any more)."""
    return isinstance(error, BrokerSaid) and error.code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
