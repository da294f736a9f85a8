"""`klamm txn`: list, describe and abort transactions of any Kafka cluster, and find those that hang."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from klamm.cli.confirm import confirm
from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.output import add_output, print_fields, print_json, print_table, remark
from klamm.cli.parsing import Failed, UsageError, add_verb, seconds, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klamm.cli.txn_open import Open
    from klamm.client import Cluster
    from klamm.client.admin.transactions import TransactionDescription, TransactionListing

_ONGOING = "Ongoing"
_OPEN = (_ONGOING, "PrepareCommit", "PrepareAbort")
_LIST = """
  klamm txn list                                             all transactional ids that the cluster knows
  klamm txn list --state Ongoing --longer-than 5m            what has been open for long
  klamm txn list --pattern 'billing-.*' -o json
"""
_DESCRIBE = """
  klamm txn describe billing-1
  klamm txn describe billing-1 -o json | jq .partitions
"""
_FIND_HANGING = """
  klamm txn find-hanging                                     in all topics
  klamm txn find-hanging orders payments --silent-for 1m
  klamm txn find-hanging --open                              all that is open, whoever knows of it
"""
_ABORT = """
  klamm txn abort billing-1                                  asks first; fences the producer that has it open
  klamm txn abort billing-1 --yes                            for scripts
  klamm txn abort --topic orders --partition 3 --producer 4711      one that hangs: nobody knows its id any more
"""
_ABOUT_ABORT = """\
Abort an open transaction.

By its transactional id: a new producer of that id is registered, which aborts what is open and fences the producer that
it belongs to. That producer gets an error with its next request.

By topic, partition and producer id: writes the marker that ends the transaction into that partition. This is for
transactions that hang, because no coordinator knows of them any more (klamm txn find-hanging), and keep consumers of
committed records from getting on. One that a coordinator does know of is refused: use its id."""
_ABOUT_HANGING = """\
Find transactions that are open in a partition and that no coordinator will ever end. They keep consumers of committed
records from getting on. Exit code 1 if there are any."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    show = add_verb(verbs, "list", "list transactional ids and the state of each", run_list, examples=_LIST)
    show.add_argument("--state", metavar="STATE", action="append", default=[], help="only those in this state, such as "
                      "Ongoing; repeatable")  # fmt: skip
    show.add_argument("--longer-than", metavar="TIME", type=seconds, help="only those open for longer: 500ms, 30s, 5m")
    show.add_argument("--pattern", metavar="REGEX", help="only ids that this regular expression matches as a whole")
    show.add_argument("--producer", metavar="PRODUCER_ID", type=whole_number(0), action="append", default=[],
                      help="only those of this producer id; repeatable")  # fmt: skip
    add_output(show)
    add_connection(show)
    look = add_verb(verbs, "describe", "show the transaction of an id, and where it has written", run_describe,
                    examples=_DESCRIBE)  # fmt: skip
    look.add_argument("ids", metavar="TRANSACTIONAL_ID", nargs="+")
    add_output(look)
    add_connection(look)
    _configure_hanging(verbs)
    _configure_abort(verbs)


def _configure_hanging(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    find = add_verb(verbs, "find-hanging", "find transactions that nobody will end", run_find_hanging,
                    about=_ABOUT_HANGING, examples=_FIND_HANGING)  # fmt: skip
    find.add_argument("topics", metavar="TOPIC", nargs="*", help="names or patterns such as 'orders-*' (default: all)")
    find.add_argument("--silent-for", metavar="TIME", type=seconds, default=900.0, help="only where the producer has "
                      "written nothing for so long (default: 15m, the longest that brokers usually allow)")  # fmt: skip
    find.add_argument("--open", action="store_true", help="show all that is open, with the id it belongs to")
    add_output(find)
    add_connection(find)


def _configure_abort(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    end = add_verb(verbs, "abort", "abort an open transaction", run_abort, about=_ABOUT_ABORT, examples=_ABORT)
    end.add_argument("id", metavar="TRANSACTIONAL_ID", nargs="?")
    end.add_argument("--topic", metavar="TOPIC", help="of a transaction that hangs")
    end.add_argument("--partition", metavar="N", type=whole_number(0), help="of a transaction that hangs")
    end.add_argument("--producer", metavar="PRODUCER_ID", type=whole_number(0), help="whose it is")
    end.add_argument("--start-offset", metavar="OFFSET", type=whole_number(0), help="where it starts; may stand for "
                     "the producer")  # fmt: skip
    end.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_connection(end)


# ---- list


def run_list(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.client.admin.transactions import Transactions

        longer_than_ms = None if args.longer_than is None else round(args.longer_than * 1000)
        found = await Transactions(cluster).list_transactions(
            states=args.state, producer_ids=args.producer, longer_than_ms=longer_than_ms, pattern=args.pattern
        )
        _print_list(found, args.output)
        return 0

    return with_cluster(args, work)


def _print_list(found: Sequence[TransactionListing], output: str) -> None:
    if output == "json":
        print_json([asdict(one) for one in found])
    elif not found:
        remark("There are no such transactions.")
    else:
        rows = [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found]
        print_table(("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"), rows)


# ---- describe


def run_describe(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        now_ms = cluster.env.clock.time_ms()
        found = await _described(cluster, args.ids)
        if args.output == "json":
            documents = [_document(one, now_ms) for one in found]
            print_json(documents[0] if len(documents) == 1 else documents)
            return 0
        for number, one in enumerate(found):
            if number:
                print()
            _print_described(one, now_ms)
        return 0

    return with_cluster(args, work)


async def _described(cluster: Cluster, ids: Sequence[str]) -> list[TransactionDescription]:
    """In this order. Failed if there is no such id."""
    from klamm.client.admin.transactions import Transactions
    from klamm.client.errors import BrokerSaid
    from klamm.core.errors import ErrorCode

    found = await Transactions(cluster).describe_transactions(ids)
    for name, error in found.errors.items():
        if isinstance(error, BrokerSaid) and error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise Failed(f"there is no transactional id {name!r}.", "See those there are with: klamm txn list")
    return list(found.check().values())


def _document(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    document = asdict(one)
    del document["partitions"]  # to come last
    document["duration_ms"] = _open_ms(one, now_ms)
    document["partitions"] = [{"topic": topic, "partition": index} for topic, index in one.partitions]
    return document


def _open_ms(one: TransactionDescription, now_ms: int) -> int | None:
    """Brokers tell of the last transaction when it began, also after it has ended."""
    return None if one.start_ms is None or one.state not in _OPEN else max(0, now_ms - one.start_ms)


def _print_described(one: TransactionDescription, now_ms: int) -> None:
    from klamm.cli.units import show_duration

    open_ms = _open_ms(one, now_ms)
    print_fields([
        ("id", one.transactional_id),
        ("state", one.state),
        ("open for", None if open_ms is None else show_duration(open_ms)),
        ("time limit", show_duration(one.timeout_ms) if one.has_limit else "none (two phases)"),
        ("producer", f"{one.producer_id}, epoch {one.producer_epoch}"),
        ("coordinator", f"broker {one.coordinator}"),
    ])  # fmt: skip
    if one.partitions:
        print()
        print_table(("TOPIC", "PARTITION"), one.partitions)


# ---- find-hanging


def run_find_hanging(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.topic_view import select
        from klamm.cli.txn_open import open_in, owners

        topics = select(await cluster.metadata(), args.topics)
        found = await owners(cluster, await open_in(cluster, topics))
        now_ms = cluster.env.clock.time_ms()
        if not args.open:
            found = {
                one: owner
                for one, owner in found.items()
                if owner is None and now_ms - one.producer.last_timestamp_ms >= args.silent_for * 1000
            }
        _print_open(found, now_ms, args)
        return 1 if found and not args.open else 0

    return with_cluster(args, work)


def _print_open(found: Mapping[Open, str | None], now_ms: int, args: argparse.Namespace) -> None:
    from klamm.cli.units import show_duration

    if args.output == "json":
        print_json([
            {"topic": one.place.topic, "partition": one.place.partition, "producer_id": one.producer.producer_id,
             "producer_epoch": one.producer.producer_epoch, "start_offset": one.producer.txn_start_offset,
             "last_ms": one.producer.last_timestamp_ms, "transactional_id": owner}
            for one, owner in found.items()
        ])  # fmt: skip
    elif not found:
        remark("No transaction is open." if args.open else "No transaction hangs.")
    else:
        rows = [
            (*one.place, one.producer.producer_id, one.producer.producer_epoch, one.producer.txn_start_offset,
             show_duration(max(0, now_ms - one.producer.last_timestamp_ms)), owner)
            for one, owner in found.items()
        ]  # fmt: skip
        headers = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "START", "SILENT FOR", "TRANSACTIONAL ID")
        print_table(headers, rows)


# ---- abort


def run_abort(args: argparse.Namespace) -> int:
    in_partition = args.topic is not None or args.partition is not None
    if args.id is not None and (in_partition or args.producer is not None or args.start_offset is not None):
        raise UsageError("name a transactional id, or --topic, --partition and --producer; not both")
    if args.id is None and not (args.topic and args.partition is not None):
        raise UsageError("name a transactional id, or --topic, --partition and --producer of one that hangs")
    if args.id is None and args.producer is None and args.start_offset is None:
        raise UsageError("name the --producer whose transaction it is, or its --start-offset")

    async def work(cluster: Cluster) -> int:
        await (_abort_by_id if args.id is not None else _abort_in_partition)(cluster, args)
        return 0

    return with_cluster(args, work)


async def _abort_by_id(cluster: Cluster, args: argparse.Namespace) -> None:
    from klamm.client.admin.transactions import Transactions

    (one,) = await _described(cluster, [args.id])
    if one.state != _ONGOING:
        raise Failed(f"{args.id} has no open transaction: its state is {one.state}.")
    if not args.yes:
        _confirm(
            f"abort what {args.id} has open and fence its producer ({one.producer_id}, epoch {one.producer_epoch})"
        )
    (await Transactions(cluster).fence_producers([args.id])).check()
    print(f"Aborted the transaction of {args.id}.")


async def _abort_in_partition(cluster: Cluster, args: argparse.Namespace) -> None:
    from klamm.cli.topic_view import select
    from klamm.cli.txn_open import open_in, owners
    from klamm.client.admin.transactions import Transactions

    (topic,) = select(await cluster.metadata([args.topic]), [args.topic])
    where = f"{topic.name}, partition {args.partition}"
    if args.partition not in topic.partitions:
        raise Failed(f"there is no partition {args.partition} of {topic.name}: it has {len(topic.partitions)}.")
    found = [
        one
        for one in await open_in(cluster, [topic], args.partition)
        if args.producer in (None, one.producer.producer_id)
        and args.start_offset in (None, one.producer.txn_start_offset)
    ]
    if not found:
        raise Failed(f"no such transaction is open in {where}.", "See what is with: klamm txn find-hanging --open")
    ((place, producer), owner), *_ = (await owners(cluster, found)).items()
    if owner is not None:
        raise Failed(f"this transaction does not hang: {owner} has it open.", f"End it with: klamm txn abort {owner}")
    if not args.yes:
        start = producer.txn_start_offset
        _confirm(f"abort the transaction of producer {producer.producer_id} in {where}, from offset {start} on")
    await Transactions(cluster).abort_transaction(place, producer)
    print(f"Aborted the transaction of producer {producer.producer_id} in {where}.")


def _confirm(what: str) -> None:
    confirm(f"This will {what}.", f"this would {what}", "nothing was aborted.")
