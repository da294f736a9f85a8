"""Where the leaders of partitions can be reached, for answers that say "not me" (KIP-951).

A client that learns the new leader from the error itself saves a round of metadata. Addresses are those of the
listener that the request came in by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klamm.metadata.image import Image


class Address(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def addresses(image: Image, listener: str, node_ids: Iterable[int]) -> Iterator[Address]:
    """The addresses of these brokers, as far as they are known, in the order of their ids."""
    for node_id in sorted(set(node_ids)):
        broker = image.brokers.get(node_id)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            yield Address(node_id, endpoint.host, endpoint.port, broker.rack)
