"""ElectLeaders (key 43), versions 0-2: let the preferred replica lead again, or any that is up (KIP-460).

Unusual: on a standalone broker there is nobody else to elect, so the answer is that no election is needed, or that
nobody is there who could be. Null asks for all partitions; those that need no election are left out then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.metadata.image import NO_LEADER, Image
from klamm.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = range(2)
_WHOLE_ERROR = 1


def handle(ctx: Context, request: ElectLeadersRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    unclean = request.election_type == _UNCLEAN
    if not unclean and request.election_type != _PREFERRED:
        return on_error(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
    image = ctx.broker.image

    def outcome(topic: str, index: int) -> ErrorCode:
        return _outcome(image, topic, index, unclean)

    if request.topic_partitions is None:
        results = _results(_all(image), outcome, leave_out=ErrorCode.ELECTION_NOT_NEEDED)
    else:
        results = _results(_asked(request), outcome)
    return ElectLeadersResponse(throttle_time_ms=ctx.throttle_time_ms, replica_election_results=results)


def _outcome(image: Image, topic: str, index: int, unclean: bool) -> ErrorCode:
    state = image.partition(topic, index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if state.leader == state.replicas[0] or (unclean and state.leader != NO_LEADER):
        return ErrorCode.ELECTION_NOT_NEEDED
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def _all(image: Image) -> Iterator[tuple[str, Iterable[int]]]:
    return ((topic.name, range(len(topic.partitions))) for topic in image.topics.values())


def _asked(request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    return ((topic.topic, topic.partitions) for topic in request.topic_partitions or ())


def _results(
    asked: Iterable[tuple[str, Iterable[int]]],
    outcome: Callable[[str, int], ErrorCode],
    leave_out: ErrorCode | None = None,
) -> list[ReplicaElectionResult]:
    results = []
    for topic, indexes in asked:
        codes = ((index, outcome(topic, index)) for index in indexes)
        partitions = [
            PartitionResult(partition_id=index, error_code=code, error_message=error_text(code))
            for index, code in codes
            if code != leave_out
        ]
        if partitions or leave_out is None:
            results.append(ReplicaElectionResult(topic=topic, partition_result=partitions))
    return results


def on_error(request: ElectLeadersRequest, version: int, code: ErrorCode) -> ElectLeadersResponse:
    """In v0 only the partitions can tell it."""
    response = ElectLeadersResponse(replica_election_results=_results(_asked(request), lambda topic, index: code))
    if version >= _WHOLE_ERROR:
        response.error_code = code
    return response


API = Api(ElectLeadersRequest, handle, key=43, versions=(0, 2), on_error=on_error)
