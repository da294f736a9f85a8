"""`klamm pipeline status`: how the queries of a pipeline are doing, live.

The figures are those that the process which runs it writes beside its checkpoints; lags come from the cluster, by the
groups of the queries. Only reads. What cannot be had is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from klamm.cli.output import table
from klamm.cli.parsing import Failed, UsageError
from klamm.cli.pipeline_load import load_pipeline
from klamm.cli.terminal import draw, terminal
from klamm.cli.units import show_count, show_duration

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.spark.pipelines.model import Pipeline
    from klamm.spark.pipelines.status import QueryStatus, Status

Lags = Mapping[str, int | None]

_HEADERS = ("FLOW", "STATE", "IN/S", "OUT/S", "LAG", "BATCH", "TOOK", "ROWS IN", "ROWS OUT", "REMEMBERS", "WATERMARK")


def run_status(args: argparse.Namespace) -> int:
    pipeline = load_pipeline(args.folder, args.bootstrap, args.checkpoints)
    if pipeline is None:
        return 2
    there_is_one = sys.stdout.isatty() and sys.stdin.isatty()
    if args.output == "screen" and not there_is_one:
        raise UsageError("there is no terminal to draw on; use -o table or -o json")
    watch = Watch(pipeline, args)
    asyncio.run(watch.live() if there_is_one and args.output in (None, "screen") else watch.printed())
    return 0


class Watch:
    def __init__(self, pipeline: Pipeline, args: argparse.Namespace) -> None:
        from klamm.cli.connect import say_nothing_of_your_own
        from klamm.core.env.real import real_env

        say_nothing_of_your_own()
        self._pipeline = pipeline
        self._args = args
        self._env = real_env()
        self._cluster: Cluster | None = None
        self._trouble = ""
        self._woken = asyncio.Event()
        self._over = False

    async def printed(self) -> None:
        done = 0
        try:
            while self._args.count is None or done < self._args.count:
                if done:
                    await asyncio.sleep(self._args.interval)
                status, lags = await self._look()
                if self._args.output == "json":
                    print(json.dumps(as_json(status, lags)), flush=True)
                else:
                    print("\n".join(as_lines(status, lags, self._trouble)), flush=True)
                done += 1
        finally:
            await self._leave()

    async def live(self) -> None:
        looks = 0
        try:
            async with terminal(self._key, self._woken.set):
                while not self._over and (self._args.count is None or looks < self._args.count):
                    status, lags = await self._look()
                    width, height = shutil.get_terminal_size()
                    lines = [*as_lines(status, lags, self._trouble), "", "q leaves"]
                    draw([line[:width] for line in (lines + [""] * height)[:height]])
                    looks += 1
                    await self._rest()
        finally:
            await self._leave()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._args.interval):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _key(self, key: str) -> None:
        self._over = self._over or key in ("q", "Q", "\x1b")
        self._woken.set()

    async def _leave(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
        self._env.executor.close()

    async def _look(self) -> tuple[Status, Lags]:
        from klamm.spark.pipelines.status import read

        status = read(self._env.files, self._pipeline)
        if status is None:
            raise Failed(
                f"{self._pipeline.name} has never run here.",
                f"Start it: klamm pipeline run {shlex.quote(self._args.folder)}",
            )
        now_ms = self._env.clock.time_ms()
        return status.seen(now_ms, os.uname().nodename, _is_there), await self._lags(status)

    async def _lags(self, status: Status) -> Lags:
        from klamm.client import ClientConfig, Cluster
        from klamm.client.errors import ClientError

        try:
            if self._cluster is None:
                config = ClientConfig.from_mapping({**self._pipeline.client, "bootstrap.servers": status.bootstrap})
                self._cluster = await Cluster.connect(config, self._env)
            cluster = self._cluster
            found = {one.group: await lag_of(cluster, one.group) for one in status.queries}
            self._trouble = ""
            return found
        except ClientError as error:
            self._trouble = error.text
            return {}


async def lag_of(cluster: Cluster, group: str) -> int | None:
    """How many offsets a group is behind; None if it has committed nothing."""
    from klamm.cli.group_view import existing
    from klamm.cli.topic_view import end_offsets
    from klamm.client.admin.groups import Groups

    offsets = await Groups(cluster).list_group_offsets(group)
    ends = await end_offsets(cluster, await existing(cluster, {place.topic for place in offsets}))
    behind = [max(0, ends[place] - at.offset) for place, at in offsets.items() if place in ends]
    return sum(behind) if behind else None


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def as_json(status: Status, lags: Lags) -> dict[str, Any]:
    found = asdict(status)
    for one in found["queries"]:
        one["lag"] = lags.get(one["group"])
    return found


def as_lines(status: Status, lags: Lags, trouble: str = "") -> list[str]:
    lines = [f"{status.pipeline}  {status.state}  process {status.pid}  {status.bootstrap}", ""]
    lines += table(_HEADERS, [_row(one, lags.get(one.group)) for one in status.queries])
    errors = [f"{one.name}: {one.error}" for one in status.queries if one.error]
    if trouble:
        errors.append(f"Lags are not known: {trouble}")
    return [*lines, *([""] if errors else []), *errors]


def _row(one: QueryStatus, lag: int | None) -> list[object]:
    running = one.state == "running"
    return [
        f"{one.name} (dead letters)" if one.is_dead_letters else one.name,
        one.state,
        show_count(one.rows_in_per_s) if running else None,
        show_count(one.rows_out_per_s) if running else None,
        None if lag is None else show_count(lag),
        one.batch,
        None if one.batch_ms is None else show_duration(one.batch_ms),
        show_count(one.rows_in),
        show_count(one.rows_out),
        None if one.state_rows is None else show_count(one.state_rows),
        one.watermark,
    ]
