"""The codecs of record batches: gzip, snappy, LZ4 frames, zstd.

Each library is imported when its codec is first used. Decompressing never builds up more than `max_bytes`: the
cap holds while bytes are produced, so that a small batch cannot fill the memory. Snappy is read in both framings that
are around: plain blocks (librdkafka) and the xerial stream (Java). What is malformed raises CorruptBatch, what is too
large a BatchError with MESSAGE_TOO_LARGE; no error of a library gets through.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.records.batch import BatchError, CorruptBatch

MAX_DECOMPRESSED_BYTES = 128 << 20
"""What one batch may grow to unless the caller says otherwise; Kafka's default for a batch as sent is 1 MiB."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Compression(NamedTuple):
    """A codec with a level; None is the codec's own default."""

    codec: Codec
    level: int | None = None


def compress(codec: Codec, data: Buffer, level: int | None = None, *, xerial: bool = True) -> bytes:
    """Compress so that the Java client and librdkafka can read it. `xerial` chooses the snappy framing."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip(data, level)
    if codec == Codec.SNAPPY:
        return _snappy_xerial(data) if xerial else _snappy_block(data)
    if codec == Codec.LZ4:
        return _lz4(data, level)
    return _zstd(data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    assert max_bytes >= 0
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if codec == Codec.GZIP:
        return _gunzip(data, max_bytes)
    if codec == Codec.SNAPPY:
        return _unsnappy(data, max_bytes)
    if codec == Codec.LZ4:
        return _unlz4(data, max_bytes)
    if codec == Codec.ZSTD:
        return _unzstd(data, max_bytes)
    raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is not known")


def _too_large(max_bytes: int) -> BatchError:
    return BatchError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch decompresses to more than {max_bytes} bytes")


def _corrupt(codec: str, reason: object) -> CorruptBatch:
    return CorruptBatch(f"the {codec} data is damaged: {reason}")


# gzip: ISA-L where there is a build of it (3-5 times as fast), else zlib; they have the same interface

_GZIP_WBITS = 31  # 15 bits of window, and a gzip header


def _gzip_library() -> Any:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


def _gzip(data: Buffer, level: int | None) -> bytes:
    if level is None:
        deflater = _gzip_library().compressobj(wbits=_GZIP_WBITS)
    else:  # the levels that users know are zlib's
        deflater = zlib.compressobj(level, wbits=_GZIP_WBITS)
    head: bytes = deflater.compress(data)
    tail: bytes = deflater.flush()
    return head + tail


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    """A gzip file may have several members; Java's reader takes them all, so we do."""
    parts: list[bytes] = []
    left = max_bytes
    library = _gzip_library()
    while True:
        inflater = library.decompressobj(_GZIP_WBITS)
        try:
            part: bytes = inflater.decompress(data, left + 1)
        except library.error as e:
            raise _corrupt("gzip", e) from None
        left -= len(part)
        if left < 0:
            raise _too_large(max_bytes)
        parts.append(part)
        if not inflater.eof:
            raise _corrupt("gzip", "it ends too early")
        data = inflater.unused_data
        if not data:
            return b"".join(parts)


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)  # version, and the oldest one that can read it
_XERIAL_BLOCK_BYTES = 32 << 10  # what Java's writer cuts the stream into
_SNAPPY_MAX_RATIO = 22  # a copy of 64 bytes takes 3
_block_length = Struct(">i")


def _snappy_block(data: Buffer) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _snappy_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, max(len(view), 1), _XERIAL_BLOCK_BYTES):  # a lone header is no stream to some readers
        block = _snappy_block(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _block_length.pack(len(block))
        out += block
    return bytes(out)


def _unsnappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes, max_bytes)
    # The two version numbers are not looked at: there is one version, and some producers write them little-endian.
    pos = len(_XERIAL_HEADER)
    parts: list[bytes] = []
    left = max_bytes
    while pos < len(view):
        if pos + 4 > len(view):
            raise _corrupt("snappy", "it ends in a block length")
        (length,) = _block_length.unpack_from(view, pos)
        pos += 4
        if not 0 < length <= len(view) - pos:
            raise _corrupt("snappy", f"a block of {length} bytes where {len(view) - pos} are left")
        part = _unsnappy_block(view[pos : pos + length], left, max_bytes)
        pos += length
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _unsnappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    """A block begins with its size, so that is known before anything is allocated; the library holds it to it."""
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_MAX_RATIO:
            raise _corrupt("snappy", f"{len(block)} bytes cannot hold {size}")
        if size > left:
            raise _too_large(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as e:
        raise _corrupt("snappy", e) from None


# LZ4 frames

_LZ4_MIN_CHUNK = 64 << 10


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Java reads neither linked blocks nor (before 3.x) a content size; 64 KiB blocks are what it writes itself
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    # The library allocates what it is allowed to produce, so it is allowed a guess at a time.
    chunk = max(_LZ4_MIN_CHUNK, 4 * len(data))
    parts: list[bytes] = []
    left = max_bytes
    feed: Buffer = data
    while not frame.eof:
        try:
            part = frame.decompress(feed, max_length=min(chunk, left + 1))
        except (RuntimeError, ValueError) as e:
            raise _corrupt("lz4", e) from None
        if not part and not frame.eof:
            raise _corrupt("lz4", "it ends too early")
        left -= len(part)
        if left < 0:
            raise _too_large(max_bytes)
        parts.append(part)
        feed = b""
    if frame.unused_data:
        raise _corrupt("lz4", "there is more behind its end")
    return b"".join(parts)


# zstd

_ZSTD_LEVEL = 3  # zstd's own and Kafka's default; the library's would be 11
_ZSTD_MIN_OUTPUT = 64 << 10


def _zstd(data: Buffer, level: int | None) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    """Into a buffer of our own, which the library cannot outgrow; a larger one is tried up to the cap.

    Java's frames do not say how much they hold, so the first size is a guess. All the tries together cost at most a
    third more than the last one. The pages of a buffer that turns out too large are never touched."""
    import cramjam

    size = min(max(_ZSTD_MIN_OUTPUT, 8 * len(data)), max_bytes)
    while True:
        out = bytearray(size + 1)  # one to spare, as an empty buffer is none to the library
        try:
            written: int = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as e:
            # A full buffer has no exception of its own. Only the choice of the error rests on the wording.
            if size < max_bytes:
                size = min(size * 4, max_bytes)
                continue
            if "write whole buffer" in str(e):
                raise _too_large(max_bytes) from None
            raise _corrupt("zstd", e) from None
        if written > max_bytes:
            raise _too_large(max_bytes)
        return bytes(memoryview(out)[:written])
