"""The options of consumer groups as they are for one group: its own where it has any, else the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klamm.metadata.image import ConfigResource

if TYPE_CHECKING:
    from klamm.core.options import Options
    from klamm.metadata.image import Image

GROUP_RESOURCE = 32
"""Kafka's number of the config resource type."""


class Settings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    regex_refresh_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    """The first is for groups whose members name none."""


def settings_for(group_id: str, options: Options, image: Image) -> Settings:
    base = options.derived.get(__name__)
    if not isinstance(base, Settings):
        base = options.derived[__name__] = _of_broker(options)
    own = image.configs.get(ConfigResource(GROUP_RESOURCE, group_id))
    if not own:
        return base
    return base._replace(
        session_timeout_ms=int(own.get("consumer.session.timeout.ms", base.session_timeout_ms)),
        heartbeat_interval_ms=int(own.get("consumer.heartbeat.interval.ms", base.heartbeat_interval_ms)),
        assignment_interval_ms=int(own.get("consumer.assignment.interval.ms", base.assignment_interval_ms)),
    )


def _of_broker(options: Options) -> Settings:
    return Settings(
        session_timeout_ms=options.get_int("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=options.get_int("group.consumer.heartbeat.interval.ms"),
        assignment_interval_ms=options.get_int("group.consumer.assignment.interval.ms"),
        regex_refresh_interval_ms=options.get_int("group.consumer.regex.refresh.interval.ms"),
        max_size=options.get_int("group.consumer.max.size"),
        assignors=options.get_list("group.consumer.assignors"),
    )
