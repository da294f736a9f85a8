"""The metrics page of a Klamm broker, as much of it as `klamm top` shows. Other brokers do not have one: then None.

The broker's own config says where the page is (`klamm.metrics.listener`), so nothing has to be configured here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.client.admin.configs import Configs, Resource

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.metadata import Broker

LISTENER_OPTION: Final = "klamm.metrics.listener"
_MAX_PAGE_BYTES: Final = 16 << 20
_TIMEOUT_S: Final = 2.0
_ANY_HOST: Final = ("", "0.0.0.0", "::", "[::]")
_SAMPLE: Final = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')  # fmt: skip
_TOPIC: Final = re.compile(r'(?:^|,)topic="([^"\\]*)"')  # a topic's name needs no escaping


class Page(NamedTuple):
    """Totals since the broker's start, and what is so now."""

    topic_sent: Mapping[str, float]
    connections: float = 0
    requests: float = 0
    received_bytes: float = 0
    sent_bytes: float = 0
    errors: float = 0
    cpu_s: float = 0
    memory_bytes: float = 0


_FIELDS: Final = {
    "klamm_connections": "connections",
    "klamm_requests_total": "requests",
    "klamm_request_bytes_total": "received_bytes",
    "klamm_response_bytes_total": "sent_bytes",
    "klamm_errors_total": "errors",
    "process_cpu_seconds_total": "cpu_s",
    "process_resident_memory_bytes": "memory_bytes",
}


def parse(text: str) -> Page:
    """Sums over all labels; lines that are of no interest, or not understood, are skipped."""
    sums: dict[str, float] = {}
    topics: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(("#", "klamm_log_", "klamm_request_duration")):
            continue
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, number = found.groups()
        try:
            if name in _FIELDS:
                sums[_FIELDS[name]] = sums.get(_FIELDS[name], 0.0) + float(number)
            elif name == "klamm_topic_sent_bytes_total" and (topic := _TOPIC.search(labels or "")):
                topics[topic[1]] = topics.get(topic[1], 0.0) + float(number)
        except ValueError:
            continue
    return Page(topics, **sums)


async def find_page(cluster: Cluster, broker: Broker) -> tuple[str, int] | None:
    """Where this broker's page is; None if it has none, or does not say."""
    found = await Configs(cluster).describe_configs([Resource.broker(broker.id)], [LISTENER_OPTION])
    value = next((config[LISTENER_OPTION].value for config in found.values() if LISTENER_OPTION in config), None)
    host, colon, port = (value or "").rpartition(":")
    if not colon or not port.isdecimal() or port == "0":
        return None
    return (broker.host if host in _ANY_HOST else host.strip("[]")), int(port)


async def read_page(host: str, port: int) -> Page | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
            try:
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
                return parse(await _body(reader))
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return None


async def _body(reader: asyncio.StreamReader) -> str:
    """The body of a plain answer with a length. ValueError if it is anything else."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "-1"))
    if " 200" not in status or not 0 <= length <= _MAX_PAGE_BYTES:
        raise ValueError(f"not a metrics page: {status}")
    return (await reader.readexactly(length)).decode()
