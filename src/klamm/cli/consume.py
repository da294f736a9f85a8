"""`klamm consume TOPIC`: read topics of any Kafka cluster, without a group."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.consume_format import Show, format_string, json_lines, key_value_lines, value_lines
from klamm.cli.consume_start import BEGINNING, find_start, parse_start
from klamm.cli.output import remark, while_somebody_reads
from klamm.cli.parsing import Failed, UsageError, whole_number
from klamm.cli.topic_view import find

if TYPE_CHECKING:
    from klamm.client import ClientError, Cluster

_REMEMBERED_TROUBLES: Final = 100

_EXAMPLES = r"""examples:
  klamm consume orders                                everything, then what comes; Ctrl-C ends it
  klamm consume orders --from end                     only what comes from now on
  klamm consume orders --from -10 -e                  the last ten records of each partition
  klamm consume orders --from 2h -e -o json           the last two hours, one JSON object a line
  klamm consume orders --from 2026-01-31T12:00 -n 5 -p 3
  klamm consume orders -f '%T %p:%o %k => %s\n'
  klamm consume 'orders-*' -f '%t %s\n'

formats:
  %t topic   %p partition   %o offset   %T time (milliseconds since 1970)   %h headers (name=value,...)
  %k key     %s value       %K %S their sizes (-1 for null)   %R the value's size as four bytes   %% a percent sign
  \n \t \r \xHH"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="names or patterns such as 'orders-*'")
    what = parser.add_argument_group("what is read")
    what.add_argument("-s", "--from", metavar="WHERE", dest="start", type=parse_start, default=BEGINNING,
                      help="beginning (the default), end, an offset, -N (the last N of each partition), or a time: "
                      "2026-01-31T12:30, 2h (ago), @1767225600")  # fmt: skip
    what.add_argument("-p", "--partition", metavar="N", type=whole_number(0), action="append", default=[],
                      help="only this partition; repeatable")  # fmt: skip
    what.add_argument("-n", "--count", metavar="N", type=whole_number(0), help="stop after N records")
    what.add_argument("-e", "--exit-at-end", action="store_true", help="stop at what is the end of each partition now")
    what.add_argument("--read-committed", action="store_true", help="leave out records of transactions that are open "
                      "or were aborted")  # fmt: skip
    how = parser.add_argument_group("how it is shown (default: values, one a line)")
    shown = how.add_mutually_exclusive_group()
    shown.add_argument("-f", "--format", metavar="FORMAT", help="as FORMAT says; see below")
    shown.add_argument("-o", "--output", choices=["value", "json"], default="value", metavar="FORMAT",
                       help="value, or json: one object a line; base64 for what is no text")  # fmt: skip
    shown.add_argument("-K", "--key-separator", metavar="SEP", help="key, SEP and value; \\t is a tab")
    how.add_argument("-q", "--quiet", action="store_true", help="no remarks on standard error")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    show = _show(args)
    if args.read_committed:
        args.client_option.append(("isolation.level", "read_committed"))
    return with_cluster(args, lambda cluster: _consume(cluster, args, show))


def _show(args: argparse.Namespace) -> Show:
    if args.format is not None:
        return format_string(args.format)
    if args.key_separator is not None:
        return key_value_lines(args.key_separator.replace("\\t", "\t").encode(errors="surrogateescape"))
    return json_lines if args.output == "json" else value_lines


async def _consume(cluster: Cluster, args: argparse.Namespace, show: Show) -> int:
    places = await _places(cluster, args)
    committed = cluster.config.isolation_level == "read_committed"
    plan = await find_start(cluster, places, args.start, cluster.env.clock.time_ms(), read_committed=committed)
    say: Callable[[str], None] = (lambda text: None) if args.quiet else remark
    for text in plan.remarks:
        say(text)
    left = args.count
    if left == 0:
        return 0
    out = sys.stdout.buffer
    end = plan.end if args.exit_at_end else None
    with while_somebody_reads(out):
        async with cluster.fetcher(plan.start, end=end, on_trouble=_Trouble(say)) as fetcher:
            async for chunk in fetcher:
                records = chunk.records if left is None else chunk.records[:left]
                _write(out, [show(chunk.topic, chunk.partition, record) for record in records])
                if left is not None:
                    left -= len(records)
                    if not left:
                        break
    return 0


async def _places(cluster: Cluster, args: argparse.Namespace) -> list[tuple[str, int]]:
    from klamm.client.partitioner import partitions_of

    places = []
    for topic in await find(cluster, args.topics):
        if topic.error:
            raise Failed(f"{topic.name}: {topic.error.text}")
        missing = [n for n in args.partition if n not in topic.partitions]
        if missing:
            raise UsageError(f"{topic.name} has no partition {missing[0]}: it has {partitions_of(topic)}")
        places += [(topic.name, number) for number in args.partition or topic.partitions]
    return list(dict.fromkeys(places))


def _write(out: BinaryIO, lines: list[bytes]) -> None:
    left = memoryview(b"".join(lines))
    while left:
        left = left[out.write(left) :]  # with PYTHONUNBUFFERED there is no buffer, and a write may be a partial one
    out.flush()  # whoever watches wants to see it now; a chunk is large when there is much


class _Trouble:
    """Says what goes wrong while it is tried again, but not the same thing again and again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, error: ClientError) -> None:
        if error.text not in self._said:
            if len(self._said) >= _REMEMBERED_TROUBLES:
                self._said.clear()
            self._said.add(error.text)
            self._say(f"{error.text} Trying again.")
