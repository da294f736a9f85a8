"""A fuzz target for the wire codec: whatever the bytes, a message or ProtocolError.

    python tests/fuzz/wire_target.py [CASES]          # a seeded run of its own
    python tests/fuzz/wire_target.py corpus/ -runs=0  # with atheris, if it is installed: libFuzzer's options

The first two bytes of a case choose the message and its version, the rest is the data. The unit tests run a bounded
number of cases through `check`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "wire"))

from wire_messages import all_versions, random_message

from klamm.wire import ProtocolError, decode, encode
from klamm.wire.frames import decode_request_header

TARGETS = all_versions()


def check(case: bytes) -> None:
    """Raises only if the codec is wrong."""
    message, version = TARGETS[int.from_bytes(case[:2], "big") % len(TARGETS)]
    data = case[2:]
    try:
        decode_request_header(data)
    except ProtocolError:
        pass
    try:
        found = decode(message, data, version)
    except ProtocolError:
        return
    again = encode(found, version)  # not always the same bytes: unknown tagged fields are dropped
    assert encode(decode(message, again, version), version) == again


def make_case(rng: Random) -> bytes:
    """Random bytes, or a valid message with some damage."""
    target = rng.randrange(len(TARGETS))
    if rng.random() < 0.2:
        data = bytearray(rng.randbytes(rng.randrange(200)))
    else:
        data = bytearray(encode(random_message(rng, *TARGETS[target]), TARGETS[target][1]))
        for _ in range(rng.randrange(4)):
            damage(rng, data)
    return target.to_bytes(2, "big") + bytes(data)


def damage(rng: Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at : at + 1] = rng.randbytes(1)
        case 2:
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\x0f\x42\x40"])
        case 3:
            data[at:at] = rng.choice([b"\xff\xff\xff\xff\x07", b"\x80", b"\0", b"\x01\x00\x01\x00"])
        case 4:
            data[at:at] = data[: rng.randrange(20)]


def main() -> None:
    try:
        import atheris
    except ImportError:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
        rng = Random(0)
        for _ in range(count):
            check(make_case(rng))
        print(f"{count} cases; atheris is not installed, so they were not guided by coverage")
        return
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
