"""`klamm topic`: create, list, describe, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm.cli.confirm import confirm
from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.output import add_output, plural, print_json, remark
from klamm.cli.parsing import UsageError, add_verb, assignment, whole_number
from klamm.cli.topic_show import run_describe, run_list

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.results import Results
    from klamm.client.admin.topics import CreatedTopic
    from klamm.client.errors import ClientError
    from klamm.client.metadata import Topic

_CREATE = """
  klamm topic create orders                                  the cluster's default number of partitions
  klamm topic create orders -p 6 -r 3 -c retention.ms=7d -c compression.type=zstd
  klamm topic create orders payments --partitions 3 --if-not-exists
  klamm topic create orders --assign 1,2 --assign 2,3        two partitions, on these brokers
"""
_LIST = """
  klamm topic list
  klamm topic list 'orders-*' --long                         with records and sizes
  klamm topic list -o name | xargs -n1 klamm topic describe
  klamm topic list -o json | jq -r '.[] | select(.partitions > 10) | .name'
"""
_DESCRIBE = """
  klamm topic describe orders
  klamm topic describe 'orders-*' -o json
  klamm topic describe --problems                            partitions without a leader, or with too few replicas
"""
_ALTER = """
  klamm topic alter orders --partitions 12                   add partitions (there is no way to remove any)
  klamm topic alter orders --set retention.ms=3d --set max.message.bytes=2M
  klamm topic alter orders --unset retention.ms              back to the default
  klamm topic alter 'orders-*' --set retention.ms=3d --dry-run
"""
_DELETE = """
  klamm topic delete orders                                  asks first
  klamm topic delete 'test-*' --yes                          for scripts
"""
_UNITS = """\
Values of options that end in .ms and .bytes may have a unit: 7d, 12h, 30s; 512K, 10M, 1GiB (powers of 1024).
`klamm config docs` says what each option does."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    _configure_create(verbs)
    show = add_verb(verbs, "list", "list topics", run_list, examples=_LIST)
    show.add_argument("topics", metavar="TOPIC", nargs="*", help="names or patterns such as 'orders-*' (default: all)")
    show.add_argument("-l", "--long", action="store_true", help="with records (offsets in use; a compacted topic has "
                      "fewer) and size of the leaders' logs")  # fmt: skip
    show.add_argument("-i", "--internal", action="store_true", help="with the topics that Kafka keeps for itself")
    add_output(show, "name", help_more="; name: one name a line")
    add_connection(show)
    look = add_verb(verbs, "describe", "show partitions, offsets, sizes and configs of topics", run_describe,
                    examples=_DESCRIBE)  # fmt: skip
    look.add_argument("topics", metavar="TOPIC", nargs="*", help="names or patterns (default: all)")
    look.add_argument("--problems", action="store_true", help="only partitions without a leader or with replicas out "
                      "of sync; exit code 1 if there are any")  # fmt: skip
    add_output(look)
    add_connection(look)
    _configure_alter(verbs)
    drop = add_verb(verbs, "delete", "delete topics with all their data", run_delete, examples=_DELETE)
    drop.add_argument("topics", metavar="TOPIC", nargs="+", help="names or patterns such as 'test-*'")
    drop.add_argument("-y", "--yes", action="store_true", help="do not ask")
    drop.add_argument("--if-exists", action="store_true", help="a topic that is not there is no error")
    add_connection(drop)


def _configure_create(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    make = add_verb(verbs, "create", "create topics", run_create, about=f"Create topics.\n\n{_UNITS}", examples=_CREATE)
    make.add_argument("topics", metavar="NAME", nargs="+", help="letters, digits, and . _ -")
    make.add_argument("-p", "--partitions", metavar="N", type=whole_number(1),
                      help="number of partitions (default: the cluster's num.partitions)")  # fmt: skip
    make.add_argument("-r", "--replication-factor", metavar="N", type=whole_number(1),
                      help="copies of each partition (default: the cluster's default.replication.factor)")  # fmt: skip
    make.add_argument("-c", "--config", metavar="OPTION=VALUE", action="append", type=assignment, default=[],
                      help="a topic option; repeatable")  # fmt: skip
    make.add_argument("--assign", metavar="BROKER,...", action="append", type=_brokers, default=[],
                      help="brokers of the next partition, the preferred leader first; repeatable")  # fmt: skip
    make.add_argument("--if-not-exists", action="store_true", help="a topic that is there already is no error")
    make.add_argument("-n", "--dry-run", action="store_true", help="let the cluster check it, create nothing")
    add_output(make)
    add_connection(make)


def _configure_alter(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = f"Add partitions to topics, and change their options.\n\n{_UNITS}"
    change = add_verb(verbs, "alter", "add partitions, change options", run_alter, about=about, examples=_ALTER)
    change.add_argument("topics", metavar="TOPIC", nargs="+", help="names or patterns such as 'orders-*'")
    change.add_argument("-p", "--partitions", metavar="N", type=whole_number(1), help="the new number of partitions; "
                        "keys will go to other partitions than before")  # fmt: skip
    change.add_argument("-c", "--set", "--config", metavar="OPTION=VALUE", action="append", type=assignment, default=[],
                        help="set an option; repeatable")  # fmt: skip
    change.add_argument("-u", "--unset", metavar="OPTION", action="append", default=[],
                        help="back to the default; repeatable")  # fmt: skip
    change.add_argument("-n", "--dry-run", action="store_true", help="let the cluster check it, change nothing")
    add_connection(change)


def _brokers(text: str) -> list[int]:
    try:
        return [int(broker) for broker in text.replace(":", ",").split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of broker ids such as 1,2") from None


# create


def run_create(args: argparse.Namespace) -> int:
    if args.assign and (args.partitions or args.replication_factor):
        raise UsageError("--assign says how many partitions and replicas there are; leave the other options out")

    async def work(cluster: Cluster) -> int:
        from klamm.cli.units import plain_value
        from klamm.client.admin.topics import NewTopic, Topics

        configs = {key: plain_value(key, value) for key, value in args.config}
        wanted = [
            NewTopic(name, args.partitions, args.replication_factor, configs, args.assign)
            for name in dict.fromkeys(args.topics)
        ]
        done = await Topics(cluster).create_topics(wanted, validate_only=args.dry_run)
        return await _show_created(cluster, done, args)

    return with_cluster(args, work)


async def _show_created(cluster: Cluster, done: Results[str, CreatedTopic], args: argparse.Namespace) -> int:
    from klamm.core.ids import NO_TOPIC_ID, uuid_text

    documents = []
    for name in dict.fromkeys(args.topics):
        topic = done.get(name)
        error = await _creation_error(cluster, done.errors.get(name), args.if_not_exists)
        documents.append({
            "name": name,
            "id": uuid_text(topic.id) if topic is not None and topic.id != NO_TOPIC_ID else None,
            "partitions": None if topic is None else topic.partitions,
            "replication_factor": None if topic is None else topic.replication_factor,
            "created": topic is not None and not args.dry_run,
            "error": error,
        })  # fmt: skip
    code = int(any(document["error"] for document in documents))
    if args.output == "json":
        print_json(documents)
        return code
    for document in documents:
        name, error = document["name"], document["error"]
        if error:
            remark(f"klamm: {name} was not created: {error}")
        elif not document["created"] and not args.dry_run:
            print(f"{name} is there already.")
        else:
            print(f"{'Would create' if args.dry_run else 'Created'} {name}{_extent(document)}.")
    return code


def _extent(document: Mapping[str, object]) -> str:
    partitions, copies = document["partitions"], document["replication_factor"]
    if not isinstance(partitions, int) or not isinstance(copies, int):
        return ""
    return f": {plural(partitions, 'partition')}, replication factor {copies}"


async def _creation_error(cluster: Cluster, error: ClientError | None, may_exist: bool) -> str | None:
    """The broker's words, and what to do about the commonest mistakes. None if it is none."""
    from klamm.client.errors import BrokerSaid
    from klamm.core.errors import ErrorCode

    if not isinstance(error, BrokerSaid):
        return None if error is None else error.text
    text = error.text.removeprefix(f"{error.about}: ")
    if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return None if may_exist else f"{text}; change it with klamm topic alter, or add --if-not-exists"
    if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        count = len((await cluster.metadata([])).brokers)
        return f"{text}; the cluster has {plural(count, 'broker')}"
    if error.code is ErrorCode.INVALID_CONFIG:
        return f"{text}; see klamm config docs"
    return text


# alter and delete


def run_alter(args: argparse.Namespace) -> int:
    if not args.partitions and not args.set and not args.unset:
        raise UsageError("there is nothing to change; name --partitions, --set or --unset")

    async def work(cluster: Cluster) -> int:
        from klamm.cli.admin import refusal
        from klamm.cli.config_change import alter, changes
        from klamm.cli.topic_view import find
        from klamm.client.admin.configs import Resource
        from klamm.client.admin.topics import Topics

        topics = await find(cluster, args.topics)
        wanted = changes(set_to=args.set, unset=args.unset)
        for topic in topics:  # options first: they can be taken back, partitions cannot
            if wanted:
                for sentence in await alter(cluster, Resource.topic(topic.name), wanted, args.dry_run):
                    print(sentence)
        if args.partitions:
            totals = {topic.name: args.partitions for topic in topics}
            done = await Topics(cluster).create_partitions(totals, validate_only=args.dry_run)
            for name in done:
                print(f"{name} {'would have' if args.dry_run else 'has'} {args.partitions} partitions.")
            if done.errors:
                raise refusal(done.errors, "no partitions were added to")
        return 0

    return with_cluster(args, work)


def run_delete(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.admin import refusal
        from klamm.cli.topic_view import select
        from klamm.client.admin.topics import Topics

        metadata = await cluster.metadata()
        topics = select(metadata, args.topics, missing_ok=args.if_exists)
        if not topics:
            remark("There is nothing to delete.")
            return 0
        if not args.yes:
            _ask_to_delete(topics)
        done = await Topics(cluster).delete_topics([topic.name for topic in topics])
        for topic in topics:
            if topic.name in done:
                print(f"Deleted {topic.name}.")
        if done.errors:
            raise refusal(done.errors, "could not delete")
        return 0

    return with_cluster(args, work)


def _ask_to_delete(topics: Sequence[Topic]) -> None:
    names, count = ", ".join(topic.name for topic in topics), plural(len(topics), "topic")
    confirm(
        f"Delete {count} with all data: {names}",
        f"this would delete {count} with all data ({names})",
        "nothing was deleted.",
    )
