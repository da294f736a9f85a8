"""What a topic's partition looks like on disk, read without any code of the broker's."""

from __future__ import annotations

import struct
from pathlib import Path

CODEC_NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]


def stored_codecs(data: Path, topic: str, partition: int = 0) -> set[str]:
    """The codecs of all batches of a partition, from their attributes in the segment files."""
    codecs = set()
    for segment in sorted((data / "topics" / f"{topic}-{partition}").glob("*.log")):
        raw = segment.read_bytes()
        at = 0
        while at < len(raw):
            (length,) = struct.unpack_from(">i", raw, at + 8)
            (attributes,) = struct.unpack_from(">h", raw, at + 21)
            codecs.add(CODEC_NAMES[attributes & 7])
            at += 12 + length
        assert at == len(raw), "a segment ends in the middle of a batch"
    return codecs
