"""`klamm produce TOPIC`: write lines, files or JSON to a topic of any Kafka cluster."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from klamm.cli.connect import add_connection, client_properties, with_cluster
from klamm.cli.output import plural, remark
from klamm.cli.parsing import Failed, UsageError, assignment, whole_number
from klamm.cli.produce_input import Item, Shape, lines
from klamm.cli.progress import Progress
from klamm.cli.topic_view import unknown_topic

if TYPE_CHECKING:
    from klamm.client import ClientError, Cluster
    from klamm.client.batches import Batch, BatchResult
    from klamm.client.sender import Sender

_EXAMPLES = r"""examples:
  echo hello | klamm produce greetings
  klamm produce orders -K : < orders.txt              lines as KEY:VALUE
  klamm produce orders -k 42 -H source=shell          type lines, end with Ctrl-D
  klamm produce photos -k cat --file cat.jpg          a whole file as one record
  klamm produce orders -k 42 --tombstone              a record without a value
  klamm consume orders -e -o json | klamm produce copy --json

A topic that does not exist is created, if the brokers are set to do that. --json takes one object a line, with any of
key, value, headers, partition, timestamp (milliseconds); {"base64": "..."} stands for bytes that are no text."""
_BATCH_BYTES: Final = 128 * 1024  # large batches compress better and cost less; linger.ms keeps a terminal lively
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", default=[], help="read lines from these; - is standard input (default)"
    )
    what = parser.add_argument_group("what is in the input")
    what.add_argument("-K", "--key-separator", metavar="SEP", help="a line is KEY SEP VALUE; \\t is a tab")
    what.add_argument("--json", action="store_true", help="a line is a JSON object with key, value, headers, ...")
    what.add_argument("--file", metavar="FILE", action="append", default=[], dest="whole",
                      help="the whole file is one value; repeatable")  # fmt: skip
    what.add_argument("--tombstone", action="store_true", help="read nothing: one record with --key and no value")
    what.add_argument("-Z", "--null", action="store_true", help="an empty key or value is null")
    where = parser.add_argument_group("how it is written")
    where.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    where.add_argument("-H", "--header", metavar="NAME=VALUE", action="append", type=assignment, default=[],
                       help="a header of every record; repeatable")  # fmt: skip
    where.add_argument("-p", "--partition", metavar="N", type=whole_number(0), help="write to this partition (default: "
                       "by the key, as the Java client does; without one any)")  # fmt: skip
    where.add_argument("-z", "--codec", choices=_CODECS, metavar="CODEC", help=f"compress with {', '.join(_CODECS)}")
    where.add_argument("--acks", choices=("all", "1", "0"), metavar="ACKS", help="who must have a record: all in-sync "
                       "replicas, the leader (1), or nobody (0) (default: all)")  # fmt: skip
    where.add_argument("--no-create", action="store_true", help="a topic that does not exist is an error")
    where.add_argument("-v", "--verbose", action="store_true", help="say where every batch was written")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given = client_properties(args)
    if args.codec:
        args.client_option.append(("compression.type", args.codec))
    if args.acks:
        args.client_option.append(("acks", args.acks))
    if "batch.size" not in given:
        args.client_option.append(("batch.size", str(_BATCH_BYTES)))
    if args.whole and "max.request.size" not in given:  # the broker has the last word on what is too large
        args.client_option.append(("max.request.size", str(0x7FFFFFFF)))
    if args.tombstone and (args.key is None or args.files or args.whole or args.json):
        raise UsageError("--tombstone writes one record: give it a --key and no input")
    if args.whole and (args.files or args.json or args.key_separator is not None):
        raise UsageError("--file takes whole files: it does not go with lines, --json or --key-separator")
    if args.json and args.key_separator is not None:
        raise UsageError("--json and --key-separator exclude each other")
    shape = _shape(args)
    for path in (*args.files, *args.whole):
        if path != "-" and not os.access(path, os.R_OK):
            raise UsageError(f"cannot read {path}: {'permission denied' if os.path.exists(path) else 'no such file'}")
    return with_cluster(args, lambda cluster: _Production(cluster, args, shape).run())


def _shape(args: argparse.Namespace) -> Shape:
    separator = None
    if args.key_separator is not None:
        separator = args.key_separator.replace("\\t", "\t").replace("\\n", "\n").encode()
        if not separator:
            raise UsageError("--key-separator must not be empty")
    return Shape(
        key_separator=separator,
        json_lines=args.json,
        empty_is_null=args.null,
        key=None if args.key is None else args.key.encode(errors="surrogateescape"),
        headers=tuple((name, value.encode(errors="surrogateescape")) for name, value in args.header),
        partition=args.partition,
    )


class _Production:
    """One run: reads, sends, counts, and stops at the first thing that goes wrong."""

    def __init__(self, cluster: Cluster, args: argparse.Namespace, shape: Shape) -> None:
        self._cluster = cluster
        self._args = args
        self._shape = shape
        self._written = 0
        self._error: ClientError | None = None
        self._progress = Progress(_total_bytes(args))

    async def run(self) -> int:
        from klamm.client import BrokerSaid
        from klamm.core.errors import ErrorCode

        topic = self._args.topic
        try:
            created = await self._look_at_topic()
            try:
                async with self._cluster.sender(on_batch=self._on_batch) as sender:
                    try:
                        await self._send_all(sender)
                    except UsageError:
                        await sender.flush()  # what came before the mistake is written
                        raise
            finally:
                self._progress.clear()
        except BrokerSaid as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic not in self._cluster.known.topics:
                raise unknown_topic(topic, (await self._cluster.metadata()).topics) from None
            raise
        if self._error is not None:
            written = f"{plural(self._written, 'record')} {'was' if self._written == 1 else 'were'} written before."
            raise Failed(self._error.text, f"{written} {self._error.hint}".strip())
        if created:
            remark(f"The topic {topic} did not exist; the broker created it.")
        if sys.stderr.isatty():
            remark(f"{plural(self._written, 'record')} written to {topic}.")
        return 0

    async def _look_at_topic(self) -> bool:
        """Whether it has to be created. What is wrong with it otherwise is better said before anything is read."""
        from klamm.client import BrokerSaid
        from klamm.core.errors import ErrorCode

        try:
            await self._cluster.topic(self._args.topic)
        except BrokerSaid as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._args.no_create:
                raise
            return True
        return False

    async def _send_all(self, sender: Sender) -> None:
        topic, progress = self._args.topic, self._progress
        read_bytes = count = 0
        async for item in self._items():
            if self._error is not None:
                break
            await sender.put(
                topic,
                item.value,
                key=item.key,
                headers=item.headers,
                partition=item.partition,
                timestamp_ms=item.timestamp_ms,
            )
            read_bytes += len(item.value or b"") + len(item.key or b"") + 1
            count += 1
            if not count & 0xFF:
                progress.show(read_bytes, count)

    async def _items(self) -> AsyncIterator[Item]:
        args, shape = self._args, self._shape
        if args.tombstone:
            yield shape.whole(b"")._replace(value=None)
            return
        for path in args.whole:
            yield shape.whole(_content(path))
        if args.whole:
            return
        for path in args.files or ["-"]:
            name = "standard input" if path == "-" else path
            fd = 0 if path == "-" else os.open(path, os.O_RDONLY)
            try:
                number = 0
                async for line in lines(fd, name):
                    number += 1
                    yield shape.item(line, f"line {number} of {name}")
            finally:
                if fd:
                    os.close(fd)

    def _on_batch(self, batch: Batch, result: BatchResult | ClientError) -> None:
        if isinstance(result, Exception):
            self._error = self._error or result
            return
        self._written += result.size
        if self._args.verbose:
            last = result.base_offset + result.size - 1
            at = "unknown offsets" if result.base_offset < 0 else f"offsets {result.base_offset} to {last}"
            remark(f"{result.topic}, partition {result.partition}: {at}")


def _content(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _total_bytes(args: argparse.Namespace) -> int:
    """The size of the input, where that can be known."""
    total = 0
    for path in [] if args.tombstone else args.whole or args.files or ["-"]:
        try:
            found = os.fstat(0) if path == "-" else os.stat(path)
        except OSError:
            return 0
        if not stat.S_ISREG(found.st_mode):
            return 0
        total += found.st_size
    return total
