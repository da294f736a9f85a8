"""What may be set for each kind of resource that has options: one `Schema` each.

A schema knows the names of its resources, its options, and whether all configs of a resource can stand together. It
raises BrokerError with Kafka's code for that kind of resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from klamm.controller.names import problem_with_name
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.options import (
    TOPIC_OPTIONS,
    Option,
    OptionError,
    Options,
    Source,
    Update,
    check_topic_configs,
    find_option,
    unknown_broker_option,
    unknown_name,
)
from klamm.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource, Image

CLIENT_METRICS_RESOURCE = 16  # Kafka's numbers of config resource types
GROUP_RESOURCE = 32


class Schema(NamedTuple):
    """`check_name(name, node_id)`, `find(option)`, `unknown(option)` words a refusal, and
    `check_configs(image, resource, all of its configs, options of this broker)`."""

    check_name: Callable[[str, int], None]
    find: Callable[[str], Option | None]
    unknown: Callable[[str], str]
    check_configs: Callable[[Image, ConfigResource, Mapping[str, str], Options], None]


def _refuse(code: ErrorCode, message: str) -> BrokerError:
    return BrokerError(code, message)


# Topics


def _check_topic_name(name: str, node_id: int) -> None:
    if not name:
        raise _refuse(ErrorCode.INVALID_REQUEST, "options for all topics are those of the broker; name a topic")
    problem = problem_with_name(name)
    if problem is not None:
        raise _refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _check_topic(image: Image, resource: ConfigResource, configs: Mapping[str, str], options: Options) -> None:
    """The configs first, as Kafka does."""
    try:
        check_topic_configs(configs, options)
    except OptionError as error:
        raise _refuse(ErrorCode.INVALID_CONFIG, str(error)) from None
    if resource.name not in image.topics:
        raise _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name}")


# Brokers: "" stands for all of them


def is_broker_id(name: str) -> bool:
    """As ids are written, and no other way: what is set for broker "01" would be found by nobody."""
    return name.isdecimal() and str(int(name)) == name


def _check_broker_name(name: str, node_id: int) -> None:
    if name and not is_broker_id(name):
        raise _refuse(ErrorCode.INVALID_REQUEST, f"{name!r} is no broker's id; give a number, or nothing for all")
    if name and int(name) != node_id:
        raise _refuse(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}; ask broker {name} to change its options")


def _check_broker(image: Image, resource: ConfigResource, configs: Mapping[str, str], options: Options) -> None:
    problems = [problem for name in configs if (problem := _not_now(name, for_all=not resource.name)) is not None]
    if problems:
        raise _refuse(ErrorCode.INVALID_REQUEST, "; ".join(problems))
    for_all = image.broker_configs(None) if resource.name else configs
    for_this = configs if resource.name else image.broker_configs(options.node_id)
    try:
        options.base.overlay(for_all, Source.DYNAMIC_DEFAULT).overlay(for_this, Source.DYNAMIC_BROKER)
    except OptionError as error:
        raise _refuse(ErrorCode.INVALID_REQUEST, str(error)) from None


def _not_now(name: str, *, for_all: bool) -> str | None:
    """Why this option cannot be changed while the broker runs."""
    option = find_option(name)
    if option is None:
        return unknown_broker_option(name)
    if not option.dynamic:
        return f"{name} cannot be changed while the broker runs; set it in its file and restart"
    if name.startswith("ssl."):
        return f"{name} can only be changed for one listener: listener.name.LISTENER.{name}"
    if for_all and option.update is Update.PER_BROKER:
        return f"{name} can only be changed for one broker at a time; name the broker"
    return None


# Groups and client metrics: kept for later, checked now


def _check_group_name(name: str, node_id: int) -> None:
    if not name:
        raise _refuse(ErrorCode.INVALID_REQUEST, "options for all groups are those of the broker; name a group")


def _find_group_option(name: str) -> Option | None:
    from klamm.core.options.groups import GROUP_OPTIONS

    return GROUP_OPTIONS.get(name)


def _unknown_group_option(name: str) -> str:
    from klamm.core.options.groups import GROUP_OPTIONS

    return unknown_name(name, GROUP_OPTIONS, "group option")


def _check_group(image: Image, resource: ConfigResource, configs: Mapping[str, str], options: Options) -> None:
    from klamm.core.options.groups import check_group_configs

    try:
        check_group_configs(configs, options)
    except OptionError as error:
        raise _refuse(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_metrics_name(name: str, node_id: int) -> None:
    if not name:
        raise _refuse(ErrorCode.INVALID_REQUEST, "a subscription of client metrics needs a name")


def _find_metrics_option(name: str) -> Option | None:
    from klamm.core.options.client_metrics import CLIENT_METRICS_OPTIONS

    return CLIENT_METRICS_OPTIONS.get(name)


def _unknown_metrics_option(name: str) -> str:
    from klamm.core.options.client_metrics import CLIENT_METRICS_OPTIONS

    return unknown_name(name, CLIENT_METRICS_OPTIONS, "client metrics option")


def _check_metrics(image: Image, resource: ConfigResource, configs: Mapping[str, str], options: Options) -> None:
    """Kafka has INVALID_CONFIG for the patterns alone."""
    from klamm.core.options.client_metrics import check_client_metrics

    for name, text in configs.items():
        try:
            check_client_metrics(name, text)
        except OptionError as error:
            code = ErrorCode.INVALID_CONFIG if name == "match" else ErrorCode.INVALID_REQUEST
            raise _refuse(code, str(error)) from None


SCHEMAS = {
    TOPIC_RESOURCE: Schema(
        _check_topic_name,
        TOPIC_OPTIONS.get,
        lambda name: unknown_name(name, TOPIC_OPTIONS, "topic option"),
        _check_topic,
    ),
    BROKER_RESOURCE: Schema(_check_broker_name, find_option, unknown_broker_option, _check_broker),
    CLIENT_METRICS_RESOURCE: Schema(_check_metrics_name, _find_metrics_option, _unknown_metrics_option, _check_metrics),
    GROUP_RESOURCE: Schema(_check_group_name, _find_group_option, _unknown_group_option, _check_group),
}
