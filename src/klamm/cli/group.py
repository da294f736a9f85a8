"""`klamm group`: the consumer groups of any Kafka cluster, how far they have come, and where they go on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.cli.confirm import confirm
from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.consume_start import parse_start
from klamm.cli.group_reset import run_reset, topic_choice
from klamm.cli.group_show import run_describe, run_list, run_offsets
from klamm.cli.output import add_output, plural, remark
from klamm.cli.parsing import add_verb

if TYPE_CHECKING:
    from klamm.client import Cluster

_LIST = """
  klamm group list
  klamm group list 'billing-*' --state stable
  klamm group list --state empty -o name | xargs -n1 klamm group offsets
"""
_DESCRIBE = """
  klamm group describe billing
  klamm group describe billing --members                     who has which partitions
  klamm group describe -o json | jq '.[] | {group, lag, lag_seconds}'
"""
_DESCRIBE_ABOUT = """\
Show the state of groups and, for each partition, how far they have come.

LAG is the number of offsets between what was committed and the end of the log. LAG SECONDS is the age of the first
record that was not committed: the time from its own timestamp to now, by the clock of this machine. For that the record
is read from its partition; where there is nothing to catch up with it is 0, and where the record cannot be read it is
not shown."""
_OFFSETS = """
  klamm group offsets billing
  klamm group offsets billing -o csv > billing.csv           for klamm group reset-offsets --file
"""
_RESET = """
  klamm group reset-offsets billing --to earliest            shows what would change
  klamm group reset-offsets billing --to earliest --execute  and does it
  klamm group reset-offsets billing --to 2026-01-31T12:30 --topic orders
  klamm group reset-offsets billing --to 2h                  the first records of the last two hours
  klamm group reset-offsets billing --to 1500 --topic orders:0
  klamm group reset-offsets billing --shift -100             100 offsets back, in each partition
  klamm group reset-offsets billing --file billing.csv --execute
"""
_RESET_ABOUT = """\
Set the offsets from which a group goes on. Without --execute it is a dry run. The group must have no active members:
they would go on from where they are.

An offset that a partition does not have becomes the nearest that it has. For a time, it is the first record at or after
it, and the end where there is none."""
_DELETE = """
  klamm group delete billing                                 asks first
  klamm group delete 'test-*' --yes                          for scripts
  klamm group delete billing --topic orders                  only its offsets in this topic
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    show = add_verb(verbs, "list", "list groups", run_list, examples=_LIST)
    show.add_argument("groups", metavar="GROUP", nargs="*", help="names or patterns such as 'billing-*' (default: all)")
    show.add_argument("--state", metavar="STATE", action="append", type=str.lower, default=[],
                      help="only those in this state: stable, empty, preparingrebalance, ...; repeatable")  # fmt: skip
    show.add_argument("--type", metavar="TYPE", action="append", type=str.lower, default=[],
                      help="only those of this type: classic, consumer; repeatable")  # fmt: skip
    add_output(show, "name", help_more="; name: one name a line")
    add_connection(show)
    look = add_verb(verbs, "describe", "show state, members and lag of groups", run_describe, about=_DESCRIBE_ABOUT,
                    examples=_DESCRIBE)  # fmt: skip
    look.add_argument("groups", metavar="GROUP", nargs="*", help="names or patterns (default: all)")
    look.add_argument("-m", "--members", action="store_true", help="the members and what is assigned to them")
    add_output(look)
    add_connection(look)
    kept = add_verb(verbs, "offsets", "show what groups have committed", run_offsets, examples=_OFFSETS)
    kept.add_argument("groups", metavar="GROUP", nargs="+", help="names or patterns")
    add_output(kept, "csv", help_more="; csv: topic,partition,offset (with the group before it, if there are several)")
    add_connection(kept)
    _configure_reset(verbs)
    drop = add_verb(verbs, "delete", "delete groups with all they have committed", run_delete, examples=_DELETE)
    drop.add_argument("groups", metavar="GROUP", nargs="+", help="names or patterns such as 'test-*'")
    drop.add_argument("--topic", metavar="TOPIC", action="append", default=[],
                      help="delete only what was committed in this topic; repeatable")  # fmt: skip
    drop.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_connection(drop)


def _configure_reset(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    reset = add_verb(verbs, "reset-offsets", "set the offsets from which a group goes on", run_reset,
                     about=_RESET_ABOUT, examples=_RESET)  # fmt: skip
    reset.add_argument("group", metavar="GROUP", help="its name; a new one if there is none and --topic or --file says "
                       "what it reads")  # fmt: skip
    reset.add_argument("--to", metavar="WHERE", type=parse_start,
                       help="earliest, latest, an offset, -N for N before the end, a time (2026-01-31T12:30, local or "
                       "with Z or +01:00; @1767225600), or 2h for two hours ago")  # fmt: skip
    reset.add_argument("--shift", metavar="N", type=_whole, help="so many offsets on from the current ones, or back "
                       "with -N")  # fmt: skip
    reset.add_argument("--file", metavar="FILE", help="lines of TOPIC,PARTITION,OFFSET, as klamm group offsets -o csv "
                       "prints them; - for standard input")  # fmt: skip
    reset.add_argument("--topic", metavar="TOPIC", action="append", type=topic_choice, default=[],
                       help="only this topic, all its partitions or, as orders:0,2, some; a pattern will do; "
                       "repeatable (default: every partition in which the group has committed)")  # fmt: skip
    reset.add_argument("--execute", action="store_true", help="do it, not only show it")
    add_output(reset, "csv", help_more="; csv: topic,partition,offset of what is new")
    add_connection(reset)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number such as -100") from None


def run_delete(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.group_view import select
        from klamm.client.admin.groups import Groups

        groups = [group.group_id for group in select(await Groups(cluster).list_groups(), args.groups)]
        names, count = ", ".join(groups), plural(len(groups), "group")
        what = f"what {count} committed in {', '.join(args.topic)}" if args.topic else f"{count} with all offsets"
        if not args.yes:
            confirm(f"Delete {what}: {names}", f"this would delete {what} ({names})", "nothing was deleted.")
        if args.topic:
            for group_id in groups:
                await _delete_offsets(cluster, group_id, args.topic)
        else:
            await _delete_groups(cluster, groups)
        return 0

    return with_cluster(args, work)


async def _delete_groups(cluster: Cluster, groups: Sequence[str]) -> None:
    from klamm.cli.admin import refusal
    from klamm.cli.group_view import hint_for
    from klamm.client.admin.groups import Groups

    done = await Groups(cluster).delete_groups(groups)
    for group_id in done:
        print(f"Deleted {group_id}.")
    if done.errors:
        (group_id, error), *_ = done.errors.items()
        raise refusal(done.errors, "could not delete", hint_for(error, group_id))


async def _delete_offsets(cluster: Cluster, group_id: str, topics: Sequence[str]) -> None:
    from klamm.cli.admin import refusal
    from klamm.cli.group_view import hint_for
    from klamm.client.admin.groups import Groups

    groups = Groups(cluster)
    places = [place for place in await groups.list_group_offsets(group_id) if place.topic in topics]
    if not places:
        remark(f"{group_id} has committed nothing there.")
        return
    done = await groups.delete_group_offsets(group_id, places)
    if done.errors:
        hint = hint_for(next(iter(done.errors.values())), group_id)
        raise refusal(done.errors, f"could not delete what {group_id} committed in", hint)
    print(f"Deleted {plural(len(done), 'offset')} of {group_id}.")
