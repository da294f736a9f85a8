"""`klamm cluster info` and `klamm cluster apis`: who is in a cluster, is it well, and what can it do."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.output import add_output, plural, print_fields, print_json, print_table
from klamm.cli.parsing import Failed, add_verb

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.placement import LogDir
    from klamm.client.metadata import Broker, Metadata
    from klamm.wire.messages.k18_api_versions import ApiVersionsResponse

_INFO: Final = """
  klamm cluster info
  klamm cluster info --bootstrap kafka-1:9092,kafka-2:9092 --long       with all log folders
  klamm cluster info -o json | jq .problems
  klamm cluster info --check                            exit code 1 if partitions have problems
"""
_APIS: Final = """
  klamm cluster apis                                    versions of all APIs, of one broker
  klamm cluster apis --broker 2 -o json
"""
# What tells Kafka's releases apart: an API key and the version of it that came with the release. Newest first.
_RELEASES: Final = (
    ("4.3", 35, 5), ("4.2", 2, 11), ("4.1", 1, 18), ("4.0", 3, 13), ("3.9", 2, 9), ("3.8", 22, 5), ("3.7", 0, 10),
    ("3.5", 2, 8), ("3.3", 35, 4), ("3.2", 13, 5), ("3.1", 3, 12), ("3.0", 10, 4), ("2.8", 19, 7), ("2.7", 19, 6),
    ("2.6", 32, 3), ("2.5", 22, 3), ("2.4", 19, 5), ("2.3", 44, 0), ("2.2", 43, 0), ("2.1", 3, 7), ("2.0", 3, 6),
    ("1.1", 42, 0), ("1.0", 37, 0), ("0.11", 22, 0),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    info = add_verb(verbs, "info", "show brokers, topics, disk space and problems", run_info, examples=_INFO)
    info.add_argument("-l", "--long", action="store_true", help="with the log folders and the features")
    info.add_argument("--check", action="store_true", help="exit code 1 if a partition has no leader or too few "
                      "replicas in sync")  # fmt: skip
    add_output(info)
    add_connection(info)
    apis = add_verb(verbs, "apis", "list the versions of Kafka's APIs that a broker has", run_apis, examples=_APIS)
    apis.add_argument("--broker", metavar="ID", type=int, help="this one (default: any)")
    add_output(apis)
    add_connection(apis)


class Info(NamedTuple):
    metadata: Metadata
    folders: Sequence[LogDir] | None
    versions: ApiVersionsResponse


# info


def run_info(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.cli import admin
        from klamm.wire.messages.k18_api_versions import ApiVersionsRequest

        metadata = await cluster.metadata()
        folders = await admin.log_dirs(cluster, sorted(metadata.brokers))
        versions = await cluster.request(ApiVersionsRequest(client_software_name="klamm", client_software_version="1"))
        info = Info(metadata, folders, versions)
        if args.output == "json":
            print_json(info_json(info))
        else:
            _print_info(info, args.long)
        return 1 if args.check and problems(metadata) else 0

    return with_cluster(args, work)


def problems(metadata: Metadata) -> list[str]:
    """What is wrong with partitions, a sentence for each topic."""
    from klamm.cli.topic_view import notes

    found = []
    for topic in sorted(metadata.topics.values(), key=lambda topic: topic.name):
        remarks = notes(topic).removeprefix("internal").removeprefix(", ")
        if remarks:
            found.append(f"{topic.name}: {remarks}")
    return found


def info_json(info: Info) -> dict[str, Any]:
    metadata = info.metadata
    counts = led_by(metadata)
    return {
        "cluster_id": metadata.cluster_id,
        "controller": metadata.controller_id if metadata.controller_id >= 0 else None,
        "protocol": release(info.versions),
        "topics": len(metadata.topics),
        "partitions": sum(len(topic.partitions) for topic in metadata.topics.values()),
        "problems": problems(metadata),
        "features": {feature.name: feature.max_version_level for feature in info.versions.finalized_features},
        "brokers": [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "leads": counts.get(broker.id, (0, 0))[0],
                "replicas": counts.get(broker.id, (0, 0))[1],
                "log_dirs": None
                if info.folders is None
                else [_folder_json(folder) for folder in info.folders if folder.broker == broker.id],
            }
            for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id)
        ],
    }


def _folder_json(folder: LogDir) -> dict[str, Any]:
    return {
        "path": folder.path,
        "error": _folder_error(folder),
        "partitions": len(folder.replicas),
        "size_bytes": _data_size(folder),
        "total_bytes": folder.total_bytes,
        "usable_bytes": folder.usable_bytes,
    }


def led_by(metadata: Metadata) -> dict[int, tuple[int, int]]:
    """Of each broker: how many partitions it leads, and how many it has."""
    counts: dict[int, tuple[int, int]] = {}
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            for broker in partition.replicas:
                leads, has = counts.get(broker, (0, 0))
                counts[broker] = leads + (partition.leader == broker), has + 1
    return counts


def release(versions: ApiVersionsResponse) -> str | None:
    """The release of Kafka whose protocol this is, as far as its API versions tell."""
    highest = {api.api_key: api.max_version for api in versions.api_keys}
    return next((name for name, key, version in _RELEASES if highest.get(key, -1) >= version), None)


def _print_info(info: Info, long: bool) -> None:
    metadata = info.metadata
    wrong = problems(metadata)
    partitions = sum(len(topic.partitions) for topic in metadata.topics.values())
    features = ", ".join(f"{one.name}={one.max_version_level}" for one in info.versions.finalized_features)
    speaks = release(info.versions)
    print_fields([
        ("cluster", metadata.cluster_id),
        ("protocol", speaks and f"as Kafka {speaks}"),
        ("topics", f"{plural(len(metadata.topics), 'topic')}, {plural(partitions, 'partition')}"),
        ("features", features if long else None),
        ("problems", "; ".join(wrong) or "none"),
    ])  # fmt: skip
    print()
    print_table(("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "DATA", "FREE", "NOTES"), _broker_rows(info))
    if long and info.folders:
        print()
        rows = [(f.broker, f.path, len(f.replicas), _size(_data_size(f)), _size(f.usable_bytes),
                 _size(f.total_bytes), _folder_error(f)) for f in info.folders]  # fmt: skip
        print_table(("BROKER", "FOLDER", "REPLICAS", "DATA", "FREE", "DISK", "ERROR"), rows)


def _broker_rows(info: Info) -> list[tuple[object, ...]]:
    counts = led_by(info.metadata)
    gone = set(counts) - set(info.metadata.brokers)
    rows: list[tuple[object, ...]] = []
    for broker in sorted(info.metadata.brokers.values(), key=lambda broker: broker.id):
        leads, has = counts.get(broker.id, (0, 0))
        controller = "controller" if broker.id == info.metadata.controller_id else None
        rows.append((broker.id, str(broker), broker.rack, leads, has, *_disk(broker, info.folders), controller))
    rows += [(broker, None, None, *counts[broker], None, None, "not there") for broker in sorted(gone)]
    return rows


def _disk(broker: Broker, folders: Sequence[LogDir] | None) -> tuple[str | None, str | None]:
    own = [folder for folder in folders or () if folder.broker == broker.id]
    if not own:
        return None, None
    free = [folder.usable_bytes for folder in own if folder.usable_bytes is not None]
    return _size(sum(map(_data_size, own))), _size(sum(free)) if free else None


def _data_size(folder: LogDir) -> int:
    return sum(replica.size_bytes for replica in folder.replicas.values())


def _folder_error(folder: LogDir) -> str | None:
    return None if folder.error is None else folder.error.code.name


def _size(size: int | None) -> str | None:
    from klamm.cli.units import show_size

    return None if size is None else show_size(size)


# apis


def run_apis(args: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from klamm.wire.messages.k18_api_versions import ApiVersionsRequest

        brokers = (await cluster.metadata([])).brokers
        if args.broker is not None and args.broker not in brokers:
            raise Failed(
                f"there is no broker {args.broker}.", f"The brokers are: {', '.join(map(str, sorted(brokers)))}"
            )
        request = ApiVersionsRequest(client_software_name="klamm", client_software_version="1")
        answer = await cluster.request(request, node=args.broker)
        _show_apis({api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}, args.output)
        return 0

    return with_cluster(args, work)


def _show_apis(ranges: Mapping[int, tuple[int, int]], output: str) -> None:
    from klamm import wire
    from klamm.wire.messages import APIS

    rows = []
    for key, (lowest, highest) in sorted(ranges.items()):
        name = APIS[key][1] if key in APIS else None
        ours = wire.versions_of(wire.request_type(key)) if key in APIS else ()
        used = min(highest, ours[-1]) if ours and min(highest, ours[-1]) >= max(lowest, ours[0]) else None
        rows.append((key, name, lowest, highest, used))
    if output == "json":
        keys = ("key", "name", "lowest", "highest", "used_here")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("KEY", "API", "LOWEST", "HIGHEST", "USED HERE"), rows)
