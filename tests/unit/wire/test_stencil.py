from __future__ import annotations

import pytest

from klamm import wire
from klamm.wire.frames import encode_request
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.stencil import Stencil

VERSIONS = wire.versions_of(ProduceRequest)


def request(records: bytes, transactional_id: str | None) -> ProduceRequest:
    data = PartitionProduceData(index=7, records=records)
    topic = TopicProduceData(name="topic", topic_id=bytes(range(16)), partition_data=[data])
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic])


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
@pytest.mark.parametrize("version", range(VERSIONS[0], VERSIONS[-1] + 1))
def test_a_stencil_gives_what_encoding_each_request_gives(version: int, client_id: str | None) -> None:
    for transactional_id in (None, "tx"):
        stencil = Stencil(request(b"r" * 300, transactional_id), version, client_id)
        for size in (1, 126, 127, 128, 16_382, 16_383, 16_384, 100_000):
            whole = encode_request(request(b"x" * size, transactional_id), version, size, client_id)
            assert stencil.frame(size, bytearray(b"x" * size)) == b"".join(whole)  # type: ignore[arg-type]
