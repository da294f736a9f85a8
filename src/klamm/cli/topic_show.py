"""`klamm topic list` and `klamm topic describe`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from klamm.cli.connect import with_cluster
from klamm.cli.output import joined, print_fields, print_json, print_table, remark

if TYPE_CHECKING:
    from klamm.cli.topic_view import TopicView
    from klamm.client import Cluster
    from klamm.client.admin.configs import Config
    from klamm.client.metadata import Topic


def run_list(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.topic_view import select, views

        topics = select(await cluster.metadata(), args.topics, internal=args.internal or bool(args.topics))
        if args.output == "name":
            for topic in topics:
                print(topic.name)
        elif not args.long:
            _print_list(topics, None, args.output)
        else:
            _print_list(topics, await views(cluster, topics), args.output)
        return 0

    return with_cluster(args, work)


def _print_list(topics: Sequence[Topic], found: Sequence[TopicView] | None, output: str) -> None:
    from klamm.cli.topic_view import notes, replication
    from klamm.cli.units import show_size

    extents = {view.topic.name: (view.records, view.size) for view in found or ()}
    if output == "json":
        print_json([
            {"name": topic.name, "partitions": len(topic.partitions), "replication_factor": replication(topic),
             "internal": topic.internal, "notes": notes(topic) or None}
            | (dict(zip(("records", "size_bytes"), extents[topic.name], strict=True)) if found is not None else {})
            for topic in topics
        ])  # fmt: skip
        return
    if not topics:
        remark("There are no topics yet; make one with: klamm topic create NAME")
        return
    rows = []
    for topic in topics:
        records, size = extents.get(topic.name, (None, None))
        shown = None if size is None else show_size(size)
        rows.append((topic.name, len(topic.partitions), replication(topic), records, shown, notes(topic)))
    print_table(("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE", "NOTES"), rows)


def run_describe(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli.topic_view import find, topic_configs, topic_json, views

        topics = await find(cluster, args.topics)
        if args.problems:
            topics = [sick for topic in topics if (sick := _problems(topic)).partitions or sick.error]
        found = await views(cluster, topics)
        known = await topic_configs(cluster, topics)
        configs = [known.get(topic.name) for topic in topics]
        if args.output == "json":
            print_json([topic_json(view, config) for view, config in zip(found, configs, strict=True)])
        else:
            for number, (view, config) in enumerate(zip(found, configs, strict=True)):
                if number:
                    print()
                _print_topic(view, config)
            if not found:
                remark("No partition has a problem." if args.problems else "There are no topics yet.")
        return 1 if args.problems and found else 0

    return with_cluster(args, work)


def _problems(topic: Topic) -> Topic:
    sick = {i: p for i, p in topic.partitions.items() if p.leader < 0 or len(p.isr) < len(p.replicas)}
    return replace(topic, partitions=sick)


def _print_topic(view: TopicView, configs: Config | None) -> None:
    from klamm.cli.topic_view import notes, own_configs, replication
    from klamm.cli.units import explained, show_size
    from klamm.core.ids import NO_TOPIC_ID, uuid_text

    topic = view.topic
    own = own_configs(configs)
    shown = "; ".join(f"{name}={explained(name, value or '')}" for name, value in own.items())
    print_fields([
        ("topic", topic.name),
        ("id", None if topic.id == NO_TOPIC_ID else uuid_text(topic.id)),
        ("partitions", f"{len(topic.partitions)}, replication factor {replication(topic)}"),
        ("records", None if view.records is None else f"{view.records:,}"),
        ("size", None if view.size is None else show_size(view.size)),
        ("configs", shown or ("all defaults" if configs is not None else None)),
        ("notes", notes(topic)),
    ])  # fmt: skip
    if not topic.partitions:
        return
    rows = [
        (
            p.partition.index,
            p.partition.leader if p.partition.leader >= 0 else "none",
            joined(p.partition.replicas),
            joined(p.partition.isr),
            joined(p.partition.offline),
            p.start,
            p.end,
            None if p.size is None else show_size(p.size),
            p.partition.error.name if p.partition.error else None,
        )
        for p in view.partitions
    ]
    headers = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE", "START", "END", "SIZE", "ERROR")
    print_table(headers, rows, indent="  ")
