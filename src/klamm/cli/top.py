"""`klamm top`: a live view of a cluster. Rates come from offsets and log sizes, so they are there for any Kafka;
connections, requests and memory from the metrics page of brokers that are ours.

Only asks, never changes anything. A cluster that goes away is shown as such, and asked again, until the user leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from typing import TYPE_CHECKING, Final

from klamm.cli.connect import add_connection, with_cluster
from klamm.cli.parsing import UsageError, seconds, whole_number
from klamm.cli.terminal import draw, terminal

if TYPE_CHECKING:
    from klamm.cli.scrape import Page
    from klamm.cli.top_model import Sample
    from klamm.client import Cluster
    from klamm.client.metadata import Metadata

_ABOUT: Final = """\
Watch a cluster: records and bytes a second for each topic, brokers, problems. For Klamm brokers that serve metrics
(klamm start --set klamm.metrics.listener=127.0.0.1:9644) also connections, requests, CPU and memory.

Keys: q leaves, space pauses, r n c z sort by rate, name, records or size, i shows internal topics."""
_EXAMPLES: Final = """\
examples:
  klamm top
  klamm top --interval 5 --sort size
  klamm top -n 1 -o json | jq .records_per_s       once, for a script
  klamm top > rates.txt                            plain text, one table after the other"""
_STARTS_EVERY: Final = 10
"""Where logs begin changes seldom: it is asked for in one sample of so many."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = _ABOUT
    parser.epilog = _EXAMPLES
    parser.add_argument("-i", "--interval", metavar="SECONDS", type=seconds, default=2.0,
                        help="time between two looks (default: 2)")  # fmt: skip
    parser.add_argument("-n", "--count", metavar="N", type=whole_number(1), help="end after so many (default: never)")
    parser.add_argument("-s", "--sort", choices=["rate", "name", "records", "size"], default="rate", metavar="BY",
                        help="rate, name, records or size (default: rate)")  # fmt: skip
    parser.add_argument("-t", "--topics", metavar="TEXT", default="", help="only topics with this in their name")
    parser.add_argument("--internal", action="store_true", help="with the topics that Kafka keeps for itself")
    parser.add_argument("-o", "--output", choices=["screen", "table", "json"], metavar="FORMAT",
                        help="screen, table (one after the other), json (one object a line); default: screen in a "
                        "terminal, else table")  # fmt: skip
    add_connection(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    there_is_one = sys.stdout.isatty() and sys.stdin.isatty()
    if args.output == "screen" and not there_is_one:
        raise UsageError("there is no terminal to draw on; use -o table or -o json")
    live = there_is_one and args.output in (None, "screen")

    async def work(cluster: Cluster) -> int:
        watch = Watch(cluster, args)
        await (watch.live() if live else watch.printed())
        return 0

    return with_cluster(args, work)


class Watch:
    """One run of `klamm top`."""

    def __init__(self, cluster: Cluster, args: argparse.Namespace) -> None:
        from klamm.cli.top_model import Model
        from klamm.cli.top_screen import Look

        self._cluster = cluster
        self._args = args
        self._model = Model()
        self._look = Look(args.sort, args.internal, pattern=args.topics)
        self._pages: dict[int, tuple[str, int] | None] = {}  # where brokers have their metrics; None: nowhere
        self._starts: dict[tuple[str, int], int] = {}
        self._samples = 0
        self._trouble = ""
        self._woken = asyncio.Event()
        self._over = False

    # Without a terminal.

    async def printed(self) -> None:
        from klamm.cli.top_screen import as_json, as_text

        self._model.add(await self.sample())
        done = 0
        while self._args.count is None or done < self._args.count:
            await asyncio.sleep(self._args.interval)
            self._model.add(await self.sample())
            if self._args.output == "json":
                print(json.dumps(as_json(self._model, self._look)), flush=True)
            else:
                print("\n".join(as_text(self._model, self._look)), flush=True)
            done += 1

    # In a terminal.

    async def live(self) -> None:
        looks = 0
        async with terminal(self._key, self._woken.set):
            while not self._over and (self._args.count is None or looks < self._args.count):
                if not self._look.paused:
                    await self._look_again()
                    looks += 1
                self._draw()
                await self._rest(self._args.interval if self._samples > 1 else min(1.0, self._args.interval))

    async def _look_again(self) -> None:
        """Take a sample, which may take long when brokers are gone: keys count meanwhile."""
        sampling = asyncio.ensure_future(self._try_sample())
        while not sampling.done() and not self._over:
            woken = asyncio.ensure_future(self._woken.wait())
            await asyncio.wait((sampling, woken), return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
            if self._woken.is_set():
                self._woken.clear()
                self._draw()
        sampling.cancel()
        await asyncio.wait((sampling,))
        if not sampling.cancelled():
            sampling.result()

    async def _try_sample(self) -> None:
        from klamm.client.errors import ClientError

        try:
            self._model.add(await self.sample())
            self._trouble = ""
        except ClientError as error:
            self._trouble = error.text

    async def _rest(self, wait_s: float) -> None:
        """Wait for the next look; a key or a new size of the terminal redraws meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not self._over and (left := until - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                return
            self._woken.clear()
            self._draw()

    def _key(self, key: str) -> None:
        sorts = {"r": "rate", "n": "name", "c": "records", "z": "size"}
        if key in ("q", "Q", "\x1b"):
            self._over = True
        elif key == " ":
            self._look = self._look._replace(paused=not self._look.paused)
        elif key == "i":
            self._look = self._look._replace(internal=not self._look.internal)
        elif key in sorts:
            self._look = self._look._replace(sort=sorts[key])
        self._woken.set()

    def _draw(self) -> None:
        from klamm.cli.top_screen import screen

        width, height = shutil.get_terminal_size()
        draw(screen(self._model, self._look, width, height, self._trouble))

    # Asking.

    async def sample(self) -> Sample:
        from klamm.cli.top_model import Sample
        from klamm.cli.topic_view import end_offsets, leader_sizes
        from klamm.client.offsets import EARLIEST

        cluster = self._cluster
        metadata = await cluster.metadata()
        topics = [topic for topic in metadata.topics.values() if self._args.topics in topic.name]
        if self._samples % _STARTS_EVERY == 0:
            self._starts = await end_offsets(cluster, topics, EARLIEST)
        self._samples += 1
        ends = await end_offsets(cluster, topics)
        at = asyncio.get_running_loop().time()
        sizes = await leader_sizes(cluster, topics)
        starts = {place: self._starts.get(place, 0) for place in ends}  # a new partition begins at 0
        return Sample(at, metadata, starts, ends, sizes, await self._read_pages(metadata))

    async def _read_pages(self, metadata: Metadata) -> dict[int, Page]:
        from klamm.cli.scrape import find_page, read_page

        for broker in metadata.brokers.values():
            if broker.id not in self._pages:
                self._pages[broker.id] = await find_page(self._cluster, broker)
        places = {node: place for node in metadata.brokers if (place := self._pages[node]) is not None}
        pages = await asyncio.gather(*(read_page(*place) for place in places.values()))
        return {node: page for node, page in zip(places, pages, strict=True) if page is not None}
