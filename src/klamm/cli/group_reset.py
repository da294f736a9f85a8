"""`klamm group reset-offsets`: where a group is to go on, shown first, and done with --execute.

What the new offsets are is decided by pure functions here (`shifted`, `read_file`, and `consume_start` for what can be
said of a place in a log). A group with members is refused: they would go on from where they are, and commit that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from klamm.cli.connect import with_cluster
from klamm.cli.output import plural, print_json, print_table, remark
from klamm.cli.parsing import Failed, UsageError

if TYPE_CHECKING:
    from klamm.cli.consume_start import Start
    from klamm.client import Cluster

Place: TypeAlias = "tuple[str, int]"
Offsets: TypeAlias = "Mapping[Place, int]"


class Change(NamedTuple):
    place: Place
    current: int | None
    new: int


class TopicChoice(NamedTuple):
    """`orders`, `orders-*` or `orders:0,2`."""

    word: str
    partitions: Sequence[int]


def topic_choice(text: str) -> TopicChoice:
    """An argument type."""
    word, colon, numbers = text.partition(":")
    try:
        partitions = [int(number) for number in numbers.split(",")] if colon else []
    except ValueError:
        partitions = [-1]
    if not word or any(number < 0 for number in partitions):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a topic nor one with partitions, such as orders:0,2")
    return TopicChoice(word, partitions)


def run_reset(args: argparse.Namespace) -> int:
    ways = [args.to is not None, args.shift is not None, args.file is not None]
    if sum(ways) != 1:
        raise UsageError("say where to: one of --to, --shift and --file")
    if args.file is not None and args.topic:
        raise UsageError("the file says which partitions; leave --topic out")

    async def work(cluster: Cluster) -> int:
        current = await _current(cluster, args)
        changes, remarks = await _plan(cluster, args, current)
        for text in remarks:
            remark(text)
        if args.execute and changes:
            await _execute(cluster, args.group, changes)
        _show(args, changes)
        return 0

    return with_cluster(args, work)


async def _current(cluster: Cluster, args: argparse.Namespace) -> dict[Place, int]:
    """What the group has committed; nothing if it is to be made by this. Failed while it has members."""
    from klamm.cli.group_view import other_kind, unknown_group
    from klamm.client.admin.group_members import CLASSIC, CONSUMER
    from klamm.client.admin.groups import Groups

    admin = Groups(cluster)
    groups = await admin.list_groups()
    group = next((group for group in groups if group.group_id == args.group), None)
    if group is None:
        if not args.topic and args.file is None:
            raise unknown_group(args.group, (group.group_id for group in groups))
        remark(f"There is no group {args.group!r} yet: it begins with these offsets.")
        return {}
    if group.type not in (CLASSIC, CONSUMER):
        raise other_kind(group)
    members = (await admin.describe_groups([group]))[args.group].members
    if members:
        clients = ", ".join(sorted({member.client_id for member in members}))
        raise Failed(
            f"group {args.group!r} has {plural(len(members), 'active member')} ({clients}): "
            "its offsets can be reset only while it has none.",
            f"Stop them first; klamm group describe {args.group} --members shows them.",
        )
    return {(*place,): at.offset for place, at in (await admin.list_group_offsets(args.group)).items()}


async def _plan(cluster: Cluster, args: argparse.Namespace, current: Offsets) -> tuple[list[Change], list[str]]:
    wanted = read_file(_lines(args.file), args.group) if args.file is not None else None
    places, remarks = await _places(cluster, args.topic, wanted or current, strict=wanted is not None)
    if not places:
        raise Failed(f"group {args.group!r} has committed nothing that could be reset.", "Name topics with --topic.")
    if args.to is not None:
        new, more = await _located(cluster, places, args.to)
    else:
        first, last = await _ends(cluster, places)
        if wanted is not None:
            new, more = within({place: wanted[place] for place in places}, first, last)
        else:
            new, more = within(shifted(args.group, places, current, args.shift), first, last)
    changes = [Change(place, current.get(place), new[place]) for place in places]
    return changes, remarks + more


async def _places(
    cluster: Cluster, choices: Sequence[TopicChoice], known: Offsets, *, strict: bool
) -> tuple[list[Place], list[str]]:
    """Which partitions: of the topics that were named, or those that are known. What is not there any more is told of,
    and with `strict` it is a failure."""
    from klamm.cli.group_view import existing
    from klamm.cli.topic_view import find

    if choices:
        places = []
        for choice in choices:
            for topic in await find(cluster, [choice.word]):
                lacking = [index for index in choice.partitions if index not in topic.partitions]
                if lacking:
                    raise Failed(f"{topic.name} has no partition {lacking[0]}.")
                places += [(topic.name, index) for index in choice.partitions or topic.partitions]
        return sorted(set(places)), []
    there = {topic.name: topic.partitions for topic in await existing(cluster, {topic for topic, _ in known})}
    gone = [place for place in known if place[1] not in there.get(place[0], ())]
    if gone and strict:
        raise Failed(f"the file names {gone[0][0]}, partition {gone[0][1]}, which does not exist.")
    remarks = [f"{topic}, partition {index}, does not exist any more: left out." for topic, index in gone]
    return sorted(place for place in known if place not in gone), remarks


async def _located(cluster: Cluster, places: Sequence[Place], wanted: Start) -> tuple[dict[Place, int], list[str]]:
    from klamm.cli.consume_start import find_start

    plan = await find_start(cluster, places, wanted, cluster.env.clock.time_ms(), read_committed=False)
    return {(topic, index): offset for (topic, index), offset in plan.start.items()}, plan.remarks


async def _ends(cluster: Cluster, places: Sequence[Place]) -> tuple[Offsets, Offsets]:
    from klamm.client import EARLIEST, LATEST

    first = await cluster.offsets(dict.fromkeys(places, EARLIEST))
    last = await cluster.offsets(dict.fromkeys(places, LATEST))
    return {(*place,): at.offset for place, at in first.items()}, {(*place,): at.offset for place, at in last.items()}


def shifted(group_id: str, places: Iterable[Place], current: Offsets, by: int) -> dict[Place, int]:
    without = [place for place in places if place not in current]
    if without:
        topic, index = without[0]
        raise Failed(
            f"group {group_id!r} has committed nothing in {topic}, partition {index}: there is nothing to shift.",
            "Use --to for it, or leave it out with --topic.",
        )
    return {place: current[place] + by for place in places}


def within(wanted: Offsets, first: Offsets, last: Offsets) -> tuple[dict[Place, int], list[str]]:
    """The same, not before what a partition has and not behind its end; and what a person should know of that."""
    new, remarks = {}, []
    for place, offset in wanted.items():
        new[place] = min(max(offset, first[place]), last[place])
        if new[place] != offset:
            edge = "begins" if new[place] > offset else "ends"
            remarks.append(f"{place[0]}, partition {place[1]}, {edge} at {new[place]}: that is taken, not {offset}.")
    return new, remarks


def _lines(path: str) -> list[str]:
    try:
        if path == "-":
            return sys.stdin.read().splitlines()
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None


def read_file(lines: Iterable[str], group_id: str) -> dict[Place, int]:
    """TOPIC,PARTITION,OFFSET; or GROUP before that, of which only this group's lines count."""
    import csv

    wanted: dict[Place, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        words = [word.strip() for word in row]
        if not any(words):
            continue
        if len(words) == 4:
            owner, *words = words
            if owner != group_id:
                continue
        try:
            topic, partition, offset = words
            wanted[topic, int(partition)] = int(offset)
        except ValueError:
            raise UsageError(f"line {number} of the file is not TOPIC,PARTITION,OFFSET: {','.join(row)}") from None
    if not wanted:
        raise UsageError(f"the file has no offsets for group {group_id!r}")
    return wanted


async def _execute(cluster: Cluster, group_id: str, changes: Sequence[Change]) -> None:
    from klamm.cli.admin import refusal
    from klamm.cli.group_view import hint_for
    from klamm.client.admin.groups import Groups

    done = await Groups(cluster).alter_group_offsets(group_id, {change.place: change.new for change in changes})
    if done.errors:
        raise refusal(done.errors, "could not reset", hint_for(next(iter(done.errors.values())), group_id))


def _show(args: argparse.Namespace, changes: Sequence[Change]) -> None:
    if args.output == "json":
        print_json({
            "group": args.group,
            "executed": args.execute,
            "partitions": [
                {"topic": c.place[0], "partition": c.place[1], "current_offset": c.current, "new_offset": c.new}
                for c in changes
            ],
        })  # fmt: skip
    elif args.output == "csv":
        from klamm.cli.group_show import print_csv_line

        for change in changes:
            print_csv_line(None, change.place, change.new)
    else:
        rows = [(*c.place, c.current, c.new, None if c.current is None else f"{c.new - c.current:+}") for c in changes]
        print_table(("TOPIC", "PARTITION", "CURRENT OFFSET", "NEW OFFSET", "CHANGE"), rows)
    if not args.execute:
        remark("This was a dry run, nothing was changed; add --execute to do it.")
