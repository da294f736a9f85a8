"""A batch with the same records under another codec: what `compression.type` of a topic asks for.

Everything but the codec, the bytes behind the header, their length and the checksum stays as the producer made it:
timestamps, deltas, producer id, epoch and sequence. Records are not decoded; but as the broker vouches for the new
checksum itself, it first makes sure that the old one was right and that the payload is the number of records it says.
All of it may run in a thread. This module must never change the batch that it is given.
"""

from __future__ import annotations

from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.records import batch
from klamm.records.batch import CODEC_MASK, BatchError, BatchHeader, CorruptBatch
from klamm.records.compression import MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from klamm.records.varint import read_varint

MAX_RECORDS = 1_000_000
"""In one batch that is compressed anew. Some kilobytes can count twenty million, and to walk over them takes seconds in
which nobody else in this interpreter gets far."""
_MIN_BODY_BYTES = batch.min_record_bytes - 1  # a record without its own length


def recompress(data: Buffer, wanted: Compression, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
    """The one batch that `data` is, compressed as wanted. BatchError if a leader must not append it, or if it holds
    more than `max_bytes`."""
    header = batch.read_header(data)
    batch.validate(data, 0, header)
    if header.size != len(data):
        raise BatchError(ErrorCode.INVALID_RECORD, "a client sends one batch for each partition, not several")
    if header.record_count > MAX_RECORDS:
        what = f"{header.record_count} records in one batch; this topic's compression.type takes at most {MAX_RECORDS}"
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, what)
    body = decompress(header.codec, memoryview(data)[batch.header_bytes : header.size], max_bytes)
    _check_frames(body, header)
    attributes = header.attributes & ~CODEC_MASK | wanted.codec
    return batch.seal_writable(header._replace(attributes=attributes), compress(wanted.codec, body, wanted.level))


def _check_frames(body: bytes, header: BatchHeader) -> None:
    """As many records as the header counts, each as long as it says, and nothing else: 0.2 us for each."""
    pos, end = 0, len(body)
    count = header.record_count
    if count * batch.min_record_bytes > end:
        raise CorruptBatch(f"{end} bytes cannot hold {count} records")
    try:
        for _ in range(count):
            length, pos = read_varint(body, pos)
            if length < _MIN_BODY_BYTES:
                raise CorruptBatch(f"a record of {length} bytes")
            pos += length
    except IndexError:
        raise CorruptBatch("a record ends too early") from None
    except ValueError as error:
        raise CorruptBatch(f"a record is malformed: {error}") from None
    if pos != end:
        raise CorruptBatch(f"{count} records take {pos} bytes where there are {end}")
