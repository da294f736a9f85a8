"""The option table and what is made of it: values, listeners, topic configs, `.properties` files.

options = Options.from_mapping(parse_properties(text), strict=False).overlay({"num.partitions": "3"})
options.get_int("num.partitions")                         # 3
resolve("retention.ms", topic_configs, options).value     # topic, else broker, else default
"""

from klamm.core.options.brokers import BROKER_OPTIONS
from klamm.core.options.listeners import ListenerSpec, listener_warnings, parse_listeners, split_address
from klamm.core.options.option import Kind, Option, OptionError, Synonym, Update, Value, text_of
from klamm.core.options.options import Options, Source, find_option, unknown_broker_option, unknown_name
from klamm.core.options.properties import parse_properties
from klamm.core.options.topics import (
    TOPIC_OPTIONS,
    Resolved,
    check_topic_configs,
    resolve,
    resolve_all,
    topic_option_names,
)

__all__ = [
    "BROKER_OPTIONS",
    "TOPIC_OPTIONS",
    "Kind",
    "ListenerSpec",
    "Option",
    "OptionError",
    "Options",
    "Resolved",
    "Source",
    "Synonym",
    "Update",
    "Value",
    "check_topic_configs",
    "find_option",
    "listener_warnings",
    "parse_listeners",
    "parse_properties",
    "resolve",
    "resolve_all",
    "split_address",
    "text_of",
    "topic_option_names",
    "unknown_broker_option",
    "unknown_name",
]
