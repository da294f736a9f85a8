"""A fuzz target for the native kernel: whatever the bytes, the same answer as its pure twin, or CorruptBatch from both.

    python tests/fuzz/kernel_target.py [CASES] [SEED]   # a seeded run of its own
    python tests/fuzz/kernel_target.py corpus/ -runs=0  # with atheris, if it is installed: libFuzzer's options

The first bytes of a case choose what the batch's header would say, the rest is the payload. The unit tests run a
bounded number of cases through `check`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from struct import Struct
from typing import Any

from klamm.records import batch, columnar, consuming, decoding
from klamm.records import filter as pure
from klamm.records._native import kernel as native
from klamm.records.batch import CorruptBatch
from klamm.records.record import Record, encode_batch

CORRUPT = "corrupt"
_GOOD = encode_batch([Record(0, 1, b"k", b"v"), Record(0, 2, None, None)])
_fields = Struct(">HiqqqBB")  # count, last_delta, base_offset, base_timestamp, shift, room for keys, flags
_numbers = [0, 1, -1, 1000, 1 << 40, (1 << 63) - 1, (1 << 63) - 200, -(1 << 63), -(1 << 40)]


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except CorruptBatch:
        return CORRUPT


def check(case: bytes) -> None:
    """Raises only if the two differ, or if one of them fails with something else than CorruptBatch."""
    fields = _fields.unpack(case[: _fields.size].ljust(_fields.size, b"\0"))
    count, last_delta, base_offset, base_timestamp, shift, room, flags = fields
    payload: bytes | bytearray | memoryview = case[_fields.size :]
    payload = (payload, bytearray(payload), memoryview(b"x" + payload)[1:])[flags & 3 if flags & 3 < 3 else 0]
    check_decoding(payload, count, base_offset, last_delta, base_timestamp, 77 if flags & 4 else None)
    check_compaction(payload, count, base_offset, last_delta, room + 1, bool(flags & 8), shift)
    check_table(
        payload, count, base_offset, last_delta, base_timestamp, 77 if flags & 4 else None, room, bool(flags & 8)
    )
    check_fetched(payload, fields)


def check_decoding(payload: Any, count: int, base_offset: int, last_delta: int, base: int, append: int | None) -> None:
    header = {
        "base_offset": base_offset,
        "last_delta": last_delta,
        "base_timestamp": base,
        "append_time": append,
    }
    found = outcome(native.decode_payload, payload, count, **header)
    assert found == outcome(decoding.decode_payload, payload, count, **header), found
    for start in (0, min(base_offset + 2, (1 << 63) - 1)):
        place = {"topic": "t", "partition": 1, "leader_epoch": 5, "start": start}
        consumed = outcome(native.decode_consumed, payload, count, **header, **place)
        assert consumed == outcome(consuming.decode_consumed, payload, count, **header, **place), consumed
    columns = outcome(native.decode_columns, payload, count, **header)
    assert columns == outcome(decoding.decode_columns, payload, count, **header), columns
    assert found == CORRUPT or columns != CORRUPT
    assert outcome(native.keyless, payload, count, last_delta) == outcome(pure.keyless, payload, count, last_delta)


def check_fetched(payload: Any, fields: tuple[int, ...]) -> None:
    """The payload in a batch whose header says what the case does, with a right checksum, behind a good one; and
    without any header around it."""
    count, last_delta, base_offset, base_timestamp, shift, room, flags = fields
    header = batch.read_header(_GOOD)._replace(
        base_offset=base_offset,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=shift,
        attributes=flags & (0x7F if flags & 3 == 3 else 0x78),
        record_count=count,
    )
    for data in (_GOOD + batch.seal(header, payload), payload):
        extent = outcome(native.measure_fetched, data, shift)
        assert extent == outcome(consuming.measure_fetched, data, shift), extent
        for start, limit in ((0, 100), (base_offset + 1 & (1 << 63) - 1, 100), (0, room)):
            found = native.decode_fetched(data, 0, topic="t", partition=0, start=start, limit=limit)
            pure_one = consuming.decode_fetched(data, 0, topic="t", partition=0, start=start, limit=limit)
            check_fetched_table(data, start, limit)
            assert found == pure_one, (found, pure_one)


def check_fetched_table(data: Any, start: int, limit: int) -> None:
    answers = []
    for twin in (native.Table, columnar.Table):
        table = twin(headers=bool(limit & 1))
        options = {"topic": b"t", "partition": 0, "start": start, "max_rows": limit, "max_bytes": 1 << 20}
        answers.append([outcome(table.add_fetched, data, 0, **options), table.rows, table.size, table.take()])
    assert answers[0] == answers[1], answers


def check_compaction(
    payload: Any, count: int, base_offset: int, last_delta: int, room: int, drop: bool, shift: int
) -> None:
    header = {"base_offset": base_offset, "last_delta": last_delta}
    answers = []
    for twin in (native, pure):
        keys = twin.KeyMap(room * twin.KeyMap.bytes_per_key, bytes(16))
        end = outcome(twin.add_keys, keys, payload, count, **header, start_offset=base_offset & ~3)
        answer = [keys.capacity, end, len(keys), keys.full]
        for end_offset in {base_offset + 3, end} - {CORRUPT}:
            if end_offset < 1 << 63:
                options = {"end_offset": end_offset, "drop_tombstones": drop}
                answer.append(outcome(twin.filter_records, keys, payload, count, **header, **options))
                shifted = {**options, "timestamp_shift": shift}
                answer.append(outcome(twin.filter_records, keys, payload, count, **header, **shifted))
        answers.append(answer)
    assert answers[0] == answers[1], answers


def check_table(
    payload: Any,
    count: int,
    base_offset: int,
    last_delta: int,
    base: int,
    append: int | None,
    room: int,
    with_headers: bool,
) -> None:
    """Twice into the same table: a few rows of it, then all."""
    options = {
        "base_offset": base_offset,
        "last_delta": last_delta,
        "base_timestamp": base,
        "append_time": append,
        "topic": b"topic",
        "partition": 7,
        "start": min(base_offset + (room & 3), (1 << 63) - 1),
    }
    answers = []
    for twin in (native.Table, columnar.Table):
        table = twin(headers=with_headers)
        answer = [outcome(table.add, payload, count, **options, limit=limit) for limit in (room, 1 << 40)]
        answers.append([*answer, table.rows, table.size, table.take()])
    assert answers[0] == answers[1], answers


def make_case(rng: Random) -> bytes:
    """Random bytes, or valid records with some damage and gaps between their offsets."""
    count = rng.randrange(12)
    if rng.random() < 0.1:
        data = bytearray(rng.randbytes(rng.randrange(100)))
    else:
        records = [random_record(rng) for _ in range(count)]
        data = bytearray(encode_batch(records)[batch.header_bytes :] if records else b"")
        for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
            damage(rng, data)
    last_delta = count - 1 + rng.choice((0, 0, 0, 5, -1))
    base_offset = rng.choice(_numbers) if rng.random() < 0.2 else rng.randrange(100)
    times = [rng.choice(_numbers), rng.choice(_numbers)]
    room = rng.choice((0, 1, 3, 20))
    return _fields.pack(count, last_delta, base_offset, *times, room, rng.randrange(16)) + bytes(data)


def random_record(rng: Random) -> Record:
    def blob(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most))

    headers = tuple((chr(rng.randrange(900)), blob(4)) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    timestamp = rng.choice(_numbers) >> rng.choice((1, 1, 8, 40))
    key = blob(3) if rng.random() < 0.9 else blob(300)
    return Record(0, timestamp, key, blob(9) if rng.random() < 0.9 else blob(300), headers)


def damage(rng: Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at : at + 1] = rng.randbytes(1)
        case 2:
            data[at : at + 1] = bytes([(data[at] + rng.choice((-2, -1, 1, 2))) & 0xFF]) if at < len(data) else b""
        case 3:
            data[at:at] = rng.choice([b"\xff\xff\xff\xff\x0f", b"\x80", b"\0", b"\x80\0", b"\xff" * 9 + b"\x01"])
        case 4:
            data[at : at + 1] = rng.choice([b"\x80\0", b"\x81\0", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f"])


def main() -> None:
    try:
        import atheris
    except ImportError:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
        rng = Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
        for _ in range(count):
            check(make_case(rng))
        print(f"{count} cases; atheris is not installed, so they were not guided by coverage")
        return
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
