"""Whether every record of a batch has a key, as a compacted topic asks of it. The only reason to look into a client's
batch that is stored as it is. May run in a thread, and must never change the batch that it is given."""

from __future__ import annotations

from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.records import batch
from klamm.records.batch import BatchError
from klamm.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from klamm.records.kernel import keyless
from klamm.records.recompress import MAX_RECORDS


def records_without_key(data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[int]:
    """Which records of the one batch that `data` is have none, counted from 0. BatchError if a leader must not append
    it, or if it holds more than `max_bytes`."""
    header = batch.read_header(data)
    batch.validate(data, 0, header)
    if header.record_count > MAX_RECORDS:
        what = f"{header.record_count} records in one batch; a compacted topic takes at most {MAX_RECORDS}"
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, what)
    payload = decompress(header.codec, memoryview(data)[batch.header_bytes : header.size], max_bytes)
    return keyless(payload, header.record_count, header.last_offset_delta)
