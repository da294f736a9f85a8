"""What is sent when two brokers are compared: text that LZ4 makes about a third of, as values and as ready batches.

One piece in four is a new word, the others are phrases out of 180. Always the same text: it has a seed.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from klamm.records.compression import Codec
from klamm.records.record import Record, encode_batch

LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
WEIGHTS = [12, 9, 8, 7, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1, 2, 1, 1, 1, 1, 1]
PHRASES, PHRASE_WORDS, PHRASE_SHARE = 180, 3, 0.75
TEXT_BYTES = 4_000_000
RECORD_OVERHEAD = 12  # of a record in a batch, more or less: the varints grow with what they count


def text(size: int) -> bytes:
    rng = random.Random(7)

    def word() -> str:
        return "".join(rng.choices(LETTERS, WEIGHTS, k=rng.randint(2, 9)))

    phrases = [" ".join(word() for _ in range(PHRASE_WORDS)) for _ in range(PHRASES)]
    pieces: list[str] = []
    length = 0
    while length < size:
        pieces.append(rng.choice(phrases) if rng.random() < PHRASE_SHARE else word())
        length += len(pieces[-1]) + 1
    return " ".join(pieces)[:size].encode()


class Payload:
    """Files in a folder: `values-SIZE`, and `batch-SIZE-BYTES-CODEC` with one record batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = text(TEXT_BYTES)

    def values(self, size: int) -> Path:
        """Values of that size, one after another."""
        path = self.folder / f"values-{size}"
        if not path.exists():
            path.write_bytes(self.text[: len(self.text) // size * size])
        return path

    def keyed(self, size: int, keys: int, batch_bytes: int, number: int) -> Path:
        """A batch whose keys are some of `keys`, chosen at random; another choice for each number."""
        path = self.folder / f"keyed-{size}-{keys}-{batch_bytes}-{number}"
        if not path.exists():
            rng = random.Random(number)
            count = batch_bytes // (size + RECORD_OVERHEAD)
            now = int(time.time() * 1000)
            chosen = (b"key-%08d" % rng.randrange(keys) for _ in range(count))
            values = (self.text[i * size : (i + 1) * size] for i in range(count))
            records = [Record(0, now, key, value[len(key) :], ()) for key, value in zip(chosen, values, strict=True)]
            path.write_bytes(encode_batch(records))
        return path

    def batch(self, size: int, batch_bytes: int, codec: str) -> Path:
        """One batch of about `batch_bytes` before compression, as clients count them."""
        path = self.folder / f"batch-{size}-{batch_bytes}-{codec}"
        if not path.exists():
            count = max(1, batch_bytes // (size + RECORD_OVERHEAD))
            now = int(time.time() * 1000)  # retention deletes what is too old
            values = (self.text[i * size : (i + 1) * size] for i in range(count))
            records = [Record(0, now, None, value, ()) for value in values]
            path.write_bytes(encode_batch(records, codec=Codec[codec.upper()]))
        return path
