"""DeleteTopics (key 20), versions 1-6: remove topics by name, from v6 on also by id.

Unusual: the answer comes when the deletion is durable in the metadata log and nobody is served from the topics any
more, so `timeout_ms` has nothing to limit; the files go later. Where deletion is switched off, clients that do not
know TOPIC_DELETION_DISABLED (before v3) get INVALID_REQUEST.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller import DeletedTopic, TopicToDelete
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

_BY_ID = 6
_DELETION_DISABLED = 3


async def _delete(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    allowed, results = [], []
    for topic in _asked(request, ctx.api_version):
        denial = _denial(ctx, topic)
        if denial is None:
            allowed.append(topic)
        else:
            results.append(denial)
    results += [_result(topic, ctx.api_version) for topic in await ctx.broker.controller.delete_topics(allowed)]
    return DeleteTopicsResponse(throttle_time_ms=ctx.throttle_time_ms, responses=results)


def handle(ctx: Context, request: DeleteTopicsRequest) -> Answer:
    return _delete(ctx, request)


def _asked(request: DeleteTopicsRequest, version: int) -> list[TopicToDelete]:
    if version >= _BY_ID:
        return [TopicToDelete(topic.name, TopicId(topic.topic_id)) for topic in request.topics]
    return [TopicToDelete(name) for name in request.topic_names]


def _denial(ctx: Context, topic: TopicToDelete) -> DeletableTopicResult | None:
    """The answer for a topic that the principal may not delete. One that it may not even see is not named, and an id
    that it may not see is not known."""
    if ctx.broker.authorizer is None:
        return None
    known = ctx.broker.image.topic_by_id(topic.topic_id) if topic.name is None else None
    name = topic.name if known is None else known.name
    if name is None or ctx.authorize(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic.name is None and not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
        code = ErrorCode.UNKNOWN_TOPIC_ID
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=code.text)


def _result(topic: DeletedTopic, version: int) -> DeletableTopicResult:
    code = topic.error
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    message = error_text(code, topic.message) if code else None
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)


def on_error(request: DeleteTopicsRequest, version: int, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_result(DeletedTopic(t.name, t.topic_id, code), version) for t in _asked(request, version)]
    )


API = Api(DeleteTopicsRequest, handle, key=20, versions=(1, 6), on_error=on_error)
