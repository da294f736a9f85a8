"""`klamm config get` and `klamm config set`: options of topics, brokers and groups, in any Kafka cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.output import add_output, joined, print_json, print_table, remark
from klamm.cli.parsing import Failed, UsageError, add_verb, assignment, nearest
from klamm.cli.units import explained

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.configs import ConfigEntry, Resource

_WHAT: Final = """\
WHAT is one of:
  topic NAME            a topic
  broker ID             one broker
  cluster               the defaults of all brokers
  broker-logger ID      the log levels of one broker
  group NAME            a group
  client-metrics NAME   a subscription to clients' metrics"""
_GET: Final = """
  klamm config get topic orders                       what was set on the topic
  klamm config get topic orders --all                 with the defaults, and where each value comes from
  klamm config get topic orders retention.ms -o value
  klamm config get broker 1 'log.retention.*'
  klamm config get cluster                            what was set for all brokers
"""
_SET: Final = """
  klamm config set topic orders retention.ms=7d max.message.bytes=2M
  klamm config set topic orders --unset retention.ms
  klamm config set topic orders --append cleanup.policy=compact
  klamm config set broker 1 log.retention.ms=1d       this broker alone
  klamm config set cluster log.retention.ms=1d        all brokers
  klamm config set topic orders retention.ms=-1 --dry-run
"""
_UNITS: Final = "Values of options that end in .ms and .bytes may have a unit: 7d, 12h, 30s; 512K, 10M, 1GiB."
_KINDS: Final = ("topic", "broker", "cluster", "broker-logger", "group", "client-metrics")
_SOURCES: Final = {  # where a value comes from, for people
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, dynamic",
    "STATIC_BROKER_CONFIG": "broker, at its start",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "broker logger",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
    "DYNAMIC_GROUP_CONFIG": "group",
}
_TYPES: Final = {1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class",
                 9: "password"}  # fmt: skip
_HIDDEN: Final = "[hidden]"


def add_verbs(verbs: Any) -> None:
    get = add_verb(verbs, "get", "show options and where their values come from", run_get, examples=_GET,
                   about=f"Show options of a topic, a broker or a group.\n\n{_WHAT}")  # fmt: skip
    get.add_argument("kind", metavar="WHAT", choices=_KINDS, help="topic, broker, cluster, ...")
    get.add_argument("words", metavar="NAME", nargs="*", help="its name or id, then options or patterns such as "
                     "'retention.*' (default: those that were set)")  # fmt: skip
    get.add_argument("-a", "--all", action="store_true", help="defaults too")
    get.add_argument("-d", "--docs", action="store_true", help="with what each option does, as the broker says it")
    add_output(get, "value", help_more="; value: the values alone, one a line")
    add_connection(get)
    change = add_verb(verbs, "set", "change options, without a restart", run_set, examples=_SET,
                      about=f"Change options of a topic, a broker or a group.\n\n{_WHAT}\n\n{_UNITS}")  # fmt: skip
    change.add_argument("kind", metavar="WHAT", choices=_KINDS, help="topic, broker, cluster, ...")
    change.add_argument("words", metavar="NAME", nargs="*", help="its name or id, then OPTION=VALUE ...")
    change.add_argument("-u", "--unset", metavar="OPTION", action="append", default=[],
                        help="back to the default; repeatable")  # fmt: skip
    change.add_argument("--append", metavar="OPTION=VALUE", action="append", type=assignment, default=[],
                        help="add to an option that is a list")  # fmt: skip
    change.add_argument("--subtract", metavar="OPTION=VALUE", action="append", type=assignment, default=[],
                        help="take out of an option that is a list")  # fmt: skip
    change.add_argument("-n", "--dry-run", action="store_true", help="let the cluster check it, change nothing")
    add_connection(change)


def split_words(kind: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The resource's name, and the words that come after it."""
    if kind == "cluster":
        return "", list(words)
    if not words:
        what = "its id" if kind.startswith("broker") else "its name"
        raise UsageError(f"which {kind.replace('-', ' ')}? Add {what} after {kind!r}")
    if kind.startswith("broker") and not words[0].isdecimal():
        raise UsageError(f"{words[0]!r} is not a broker's id, which is a number; klamm cluster info lists them")
    return words[0], list(words[1:])


def _resource(kind: str, name: str) -> Resource:
    from klamm.client.admin.configs import Resource, ResourceType

    if kind == "cluster":
        return Resource.broker(None)
    return Resource(ResourceType[kind.upper().replace("-", "_")], name)


# get


def run_get(args: argparse.Namespace) -> int:
    name, patterns = split_words(args.kind, args.words)

    async def work(cluster: Cluster) -> int:
        from klamm.client.admin.configs import Configs

        resource = _resource(args.kind, name)
        await _check_exists(cluster, resource)
        found = await Configs(cluster).describe_configs([resource], synonyms=True, documentation=args.docs)
        chosen = _chosen(list(found[resource].values()), patterns, args.all)
        if args.output == "json":
            print_json([_config_json(config, args.docs) for config in chosen])
        elif args.output == "value":
            for config in chosen:
                print(config.value if config.value is not None else "")
        elif not chosen:
            remark(f"Nothing was set on {resource}; --all shows the defaults.")
        else:
            _print_configs(chosen, args.docs)
        return 0

    return with_cluster(args, work)


async def _check_exists(cluster: Cluster, resource: Resource) -> None:
    """Kafka answers about topics that are not there with an error and about other brokers not at all."""
    from klamm.client.admin.configs import ResourceType

    if resource.type is ResourceType.TOPIC:
        from klamm.cli.topic_view import find

        await find(cluster, [resource.name])
    elif resource.name and resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        brokers = (await cluster.metadata([])).brokers
        if int(resource.name) not in brokers:
            raise Failed(f"there is no broker {resource.name}.", f"The brokers are: {joined(sorted(brokers))}")


def _chosen(found: Sequence[ConfigEntry], patterns: Sequence[str], everything: bool) -> list[ConfigEntry]:
    from fnmatch import fnmatchcase

    if not patterns:
        return [config for config in found if everything or not config.is_default]
    names = {config.name for config in found}
    wanted: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(name, pattern)}
        if not matching:
            close = nearest(pattern, names)
            hint = f"Did you mean {close!r}?" if close else "--all lists the options there are."
            raise Failed(f"there is no option {pattern!r} here.", hint)
        wanted |= matching
    return [config for config in found if config.name in wanted]


def _config_json(config: ConfigEntry, docs: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": config.name,
        "value": config.value,
        "source": config.source.name,
        "type": _TYPES.get(config.type),
        "read_only": config.read_only,
        "sensitive": config.sensitive,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source.name} for one in config.synonyms],
    }
    return document | ({"documentation": config.documentation} if docs else {})


def _print_configs(configs: Sequence[ConfigEntry], docs: bool) -> None:
    rows = []
    for config in configs:
        value = _HIDDEN if config.sensitive else explained(config.name, config.value or "")
        source = _SOURCES.get(config.source.name, "unknown")
        rows.append(
            (
                config.name,
                value or ("-" if config.value is None else '""'),
                source + (", read-only" if config.read_only else ""),
            )
        )
    if not docs:
        print_table(("OPTION", "VALUE", "FROM"), rows)
        return
    from textwrap import fill

    for config, (name, value, source) in zip(configs, rows, strict=True):
        print(f"{name} = {value}  ({source})")
        print(fill(config.documentation or "(not documented)", 100, initial_indent="  ", subsequent_indent="  "))


# set


def run_set(args: argparse.Namespace) -> int:
    name, words = split_words(args.kind, args.words)
    try:
        set_to = [assignment(word) for word in words]
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{error}; write klamm config set {args.kind} {name} retention.ms=7d") from None
    if not (set_to or args.unset or args.append or args.subtract):
        raise UsageError(
            f"what should be set? Write klamm config set {args.kind} {name} OPTION=VALUE".replace("  ", " ")
        )

    async def work(cluster: Cluster) -> int:
        from klamm.cli.config_change import alter, changes

        resource = _resource(args.kind, name)
        await _check_exists(cluster, resource)
        wanted = changes(set_to, args.unset, args.append, args.subtract)
        for sentence in await alter(cluster, resource, wanted, args.dry_run):
            print(sentence)
        return 0

    return with_cluster(args, work)
