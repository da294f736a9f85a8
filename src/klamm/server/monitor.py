"""The broker as its keepers see it: `/metrics` and `/health`, from the first moment of a start to the end of a stop.

    $ klamm start --set klamm.metrics.listener=127.0.0.1:9644
    $ curl -s 127.0.0.1:9644/health

Health is about serving: 200 says that requests are answered and every log works. While it starts (a recovery can take
long), while it stops, and while a log is offline the answer is 503, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm import __version__
from klamm.core.env import Env, Files
from klamm.core.options import OptionError, Options, split_address
from klamm.core.slices import in_slices
from klamm.log.results import LogState
from klamm.server.exposition import CONTENT_TYPE, Exposition
from klamm.server.http import HttpServer, Reply
from klamm.server.lag import LoopLag
from klamm.server.metrics import add_broker
from klamm.server.process_stats import add_process, read_process

if TYPE_CHECKING:
    from klamm.server.node import Running

OPTION = "klamm.metrics.listener"

_STARTING, _READY, _STOPPING = "starting", "ready", "stopping"
_LOG_SUFFIX = ".log"
_NAMED = 10
"""Offline partitions that a health check names; more are only counted."""


class Monitor:
    __slots__ = ("_each_partition", "_env", "_http", "_lag", "_measured", "_parts", "_phase", "broken", "port")

    def __init__(self, env: Env, options: Options, lag: LoopLag) -> None:
        self._env = env
        self._lag = lag
        self._each_partition = options.get_bool("klamm.metrics.partitions")
        self._http = HttpServer(env, {"/metrics": self.metrics, "/health": self.health})
        self._parts: Running | None = None
        self._phase = _STARTING
        self._measured: dict[str, tuple[LogState, int]] = {}  # sizes of unopened logs, and what they are the sizes of
        self.broken: str | None = None  # what no restart of a single log can mend
        self.port = 0

    async def start(self, address: str) -> None:
        """OptionError if it is no address, OSError if it cannot be had."""
        try:
            host, port = split_address(address)
        except OptionError as error:
            raise OptionError(f"{OPTION}: {error}") from None
        self.port = await self._http.start(host, port)

    def ready(self, parts: Running) -> None:
        """Requests are served from now on."""
        self._parts = parts
        self._phase = _READY

    def stopping(self) -> None:
        self._phase = _STOPPING

    def close(self) -> None:
        self._http.close()

    # ---- health

    async def health(self) -> Reply:
        offline = self._offline()
        reasons = [f"{len(offline)} partitions are offline: {', '.join(offline[:_NAMED])}"] if offline else []
        if self.broken is not None:
            reasons.append(self.broken)
        status = self._phase if self._phase != _READY or not reasons else "degraded"
        content: dict[str, object] = {"status": status, "version": __version__}
        if self._parts is not None:
            content |= {"node_id": self._parts.broker.node_id, "cluster_id": self._parts.broker.cluster_id}
        if reasons:
            content["reasons"] = reasons
        return Reply(200 if status == _READY else 503, json.dumps(content) + "\n", "application/json")

    def _offline(self) -> list[str]:
        if self._parts is None:
            return []
        offline = self._parts.logs.offline
        return [f"{topic}-{index}" for topic in sorted(offline) for index in sorted(offline[topic])]

    # ---- metrics

    async def metrics(self) -> Reply:
        page = Exposition()
        page.gauge("klamm_ready", "1 while requests are served, 0 while the broker starts or stops.")
        page.add(int(self._phase == _READY))
        if self._parts is not None:
            sizes = await self._sizes(self._parts)
            await in_slices(add_broker(page, self._parts, self._lag, sizes, self._each_partition))
        add_process(page, await self._env.executor.submit(read_process, self._env.files))
        return Reply(200, page.text(), CONTENT_TYPE)

    async def _sizes(self, parts: Running) -> dict[str, int]:
        """Of the logs that nobody has opened since a clean start: their files are looked at once, in a thread."""
        unopened = {name: state for name, state, log in parts.logs.survey() if log is None or not log.touched}
        measured = {name: entry for name, entry in self._measured.items() if unopened.get(name) == entry[0]}
        missing = [name for name in unopened if name not in measured]
        if missing:
            paths = [parts.logs.folder.log_path(name) for name in missing]
            found = await self._env.executor.submit(_stored_bytes, self._env.files, paths)
            measured.update((name, (unopened[name], size)) for name, size in zip(missing, found, strict=True))
        self._measured = measured
        return {name: size for name, (_, size) in measured.items()}


def _stored_bytes(files: Files, folders: Sequence[str]) -> list[int]:
    """Blocks. What the segments of some logs take; a log that nothing was written to has no folder."""

    def of(folder: str) -> int:
        try:
            return sum(files.size(f"{folder}/{name}") for name in files.list(folder) if name.endswith(_LOG_SUFFIX))
        except FileNotFoundError:
            return 0

    return [of(folder) for folder in folders]
