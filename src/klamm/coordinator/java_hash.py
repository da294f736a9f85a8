"""Which partition of an internal topic a group or a transactional id belongs to: Java's `String.hashCode`, as Kafka
does it, so that data written by the one is found by the other."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Over UTF-16 code units; a signed 32-bit number in Java, here without its sign: Kafka takes that away at once."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (value * 31 + unit) & 0xFFFF_FFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


def partition_for(key: str, partitions: int) -> int:
    return java_hash(key) % partitions
