"""`klamm group list`, `describe` and `offsets`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.cli.connect import with_cluster
from klamm.cli.output import print_fields, print_json, print_table, remark

if TYPE_CHECKING:
    from klamm.cli.group_view import GroupView, Place
    from klamm.client import Cluster
    from klamm.client.admin.group_members import MemberDescription
    from klamm.client.admin.groups import GroupListing


def run_list(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.group_view import select
        from klamm.client.admin.groups import Groups

        listed = await Groups(cluster).list_groups()
        groups = [group for group in select(listed, args.groups) if _is_wanted(group, args)]
        if args.output == "name":
            for group in groups:
                print(group.group_id)
        elif args.output == "json":
            print_json([
                {"group": g.group_id, "type": g.type, "protocol_type": g.protocol_type or None,
                 "state": g.state or None, "coordinator": g.coordinator} for g in groups
            ])  # fmt: skip
        elif not groups:
            remark("There are no such groups." if args.groups or args.state or args.type else "There are no groups.")
        else:
            rows = [(g.group_id, g.type, g.protocol_type, g.state, g.coordinator) for g in groups]
            print_table(("GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR"), rows)
        return 0

    return with_cluster(args, work)


def _is_wanted(group: GroupListing, args: argparse.Namespace) -> bool:
    return (not args.state or group.state.lower() in args.state) and (not args.type or group.type in args.type)


def run_describe(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        found = await _views(cluster, args.groups, times=not args.members)
        if args.output == "json":
            from klamm.cli.group_view import group_json

            print_json([group_json(view) for view in found])
            return 0
        for number, view in enumerate(found):
            if number:
                print()
            _print_group(view)
            if args.members:
                _print_members(view.described.members)
            else:
                _print_rows(view)
        if not found:
            remark("There are no groups.")
        return 0

    return with_cluster(args, work)


async def _views(cluster: Cluster, words: Sequence[str], *, times: bool) -> list[GroupView]:
    from klamm.cli.group_view import described_here, view
    from klamm.client.admin.groups import Groups

    groups, others = described_here(await Groups(cluster).list_groups(), words)
    if others:
        remark(f"Left out, being of another kind: {', '.join(f'{g.group_id} ({g.type})' for g in others)}")
    return [await view(cluster, group, times=times) for group in groups]


def _print_group(view: GroupView) -> None:
    group, described = view.group, view.described
    protocol = f", {described.protocol_type}" if described.protocol_type not in ("", group.type) else ""
    print_fields([
        ("group", group.group_id),
        ("state", described.state),
        ("type", f"{group.type}{protocol}"),
        ("assignor", described.assignor),
        ("coordinator", f"broker {group.coordinator} at {view.coordinator}"),
        ("members", len(described.members) or "none"),
        ("lag", _lag_text(view)),
    ])  # fmt: skip


def _lag_text(view: GroupView) -> str | None:
    from klamm.cli.output import plural
    from klamm.cli.units import show_duration

    if view.lag is None:
        return None
    behind = f", {show_duration(view.lag_ms)} behind" if view.lag_ms else ""
    return f"{plural(view.lag, 'record')}{behind}"


def _print_rows(view: GroupView) -> None:
    rows: list[Sequence[object]] = []
    for row in view.rows:
        member = row.member
        who = (None, None, None) if member is None else (member.member_id, member.client_id, member.host)
        rows.append((*row.place, row.current, row.end, row.lag, _seconds(row.lag_ms), *who))
    idle = [member for member in view.described.members if not member.assignment]
    rows += [(None,) * 6 + (member.member_id, member.client_id, member.host) for member in idle]
    headers = ("TOPIC", "PARTITION", "CURRENT OFFSET", "LOG END", "LAG", "LAG SECONDS", "MEMBER", "CLIENT", "HOST")
    if rows:
        print_table(headers, rows, indent="  ")


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f}"


def _print_members(members: Sequence[MemberDescription]) -> None:
    rows = [
        (m.member_id, m.instance_id, m.client_id, m.host, len(m.assignment), _ranges(m.assignment)) for m in members
    ]
    headers = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", "ASSIGNMENT")
    if rows:
        print_table(headers, rows, indent="  ")


def _ranges(places: Sequence[Place]) -> str:
    """`orders:0,1 payments:4`."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items())


def run_offsets(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        found = await _views(cluster, args.groups, times=False)
        rows = [(view, row) for view in found for row in view.rows if row.current is not None]
        if args.output == "json":
            from klamm.cli.group_view import row_json

            print_json([
                {"group": v.group.group_id}
                | {key: value for key, value in row_json(row).items() if key not in ("lag_seconds",)}
                for v, row in rows
            ])  # fmt: skip
        elif args.output == "csv":
            for view, row in rows:
                print_csv_line(view.group.group_id if len(found) > 1 else None, row.place, row.current)
        elif not rows:
            remark("Nothing was committed.")
        else:
            name = len(found) > 1
            table = [
                (view.group.group_id if name else None, *row.place, row.current, row.start, row.end, row.lag,
                 row.leader_epoch if row.leader_epoch >= 0 else None, row.metadata)
                for view, row in rows
            ]  # fmt: skip
            headers = ("GROUP", "TOPIC", "PARTITION", "OFFSET", "LOG START", "LOG END", "LAG", "EPOCH", "METADATA")
            print_table(headers, table)
        return 0

    return with_cluster(args, work)


def print_csv_line(group_id: str | None, place: Place, offset: int | None) -> None:
    """As kafka-consumer-groups exports it; the group's name only where there are several."""
    import csv
    import sys

    words = [*place, offset] if group_id is None else [group_id, *place, offset]
    csv.writer(sys.stdout, lineterminator="\n").writerow(words)
