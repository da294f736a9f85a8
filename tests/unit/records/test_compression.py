"""The codecs: round trips, both snappy framings, caps that hold while decompressing."""

import gzip
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.errors import ErrorCode
from klamm.records import compression
from klamm.records.batch import BatchError, CorruptBatch
from klamm.records.compression import Codec, compress, decompress

CODECS = [codec for codec in Codec if codec != Codec.NONE]
PAYLOADS = {
    "empty": b"",
    "one": b"x",
    "text": b"the quick brown fox " * 5_000,
    "noise": bytes(i * i * 31 % 251 for i in range(70_000)),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("xerial", [True, False])
def test_data_comes_back_within_a_cap_of_exactly_its_size(codec: Codec, payload: bytes, xerial: bool) -> None:
    data = compress(codec, payload, xerial=xerial)
    assert decompress(codec, data) == payload
    assert decompress(codec, memoryview(data), len(payload)) == payload
    if payload:
        with pytest.raises(BatchError) as caught:
            decompress(codec, data, len(payload) - 1)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_taken(codec: Codec, level: int) -> None:
    payload = PAYLOADS["text"]
    assert decompress(codec, compress(codec, payload, level)) == payload


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(
    "codec, encode, decode",
    [
        (Codec.GZIP, aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
        (Codec.SNAPPY, aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
        (Codec.LZ4, aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
        (Codec.ZSTD, aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
    ],
)
def test_another_client_reads_ours_and_we_read_theirs(codec: Codec, encode, decode, payload: bytes) -> None:  # type: ignore[no-untyped-def]
    assert decompress(codec, bytes(encode(payload))) == payload
    assert bytes(decode(compress(codec, payload))) == payload


def test_snappy_blocks_are_read_with_and_without_the_xerial_stream() -> None:
    payload = PAYLOADS["text"]
    plain = compress(Codec.SNAPPY, payload, xerial=False)
    stream = compress(Codec.SNAPPY, payload)
    assert plain == bytes(cramjam.snappy.compress_raw(payload))
    assert stream.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    little_endian = stream[:8] + struct.pack("<ii", 1, 1) + stream[16:]  # some producers write the versions so
    assert decompress(Codec.SNAPPY, little_endian) == payload


def test_an_lz4_frame_has_what_java_can_read() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, PAYLOADS["text"]))
    assert not info["block_linked"]
    assert info["content_size"] == 0
    linked = lz4.frame.compress(PAYLOADS["text"], block_linked=True, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, linked) == PAYLOADS["text"]


def test_gzip_members_one_after_another_are_one_text() -> None:
    data = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, data) == b"onetwo"
    with pytest.raises(BatchError):
        decompress(Codec.GZIP, data, 5)


def test_gzip_works_without_its_faster_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    assert compression._gzip_library() is zlib
    data = compress(Codec.GZIP, PAYLOADS["text"])
    assert gzip.decompress(data) == PAYLOADS["text"] == decompress(Codec.GZIP, data)
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, data[:-1])
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, b"nonsense")


@pytest.mark.parametrize("size", [0, 1, 5, 30, -1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_stream_is_corrupt(codec: Codec, size: int) -> None:
    data = compress(codec, PAYLOADS["text"], xerial=False)
    with pytest.raises(CorruptBatch):
        decompress(codec, data[:size])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_more_behind_the_end_of_a_stream_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, PAYLOADS["text"]) + b"more")


def test_broken_xerial_streams_are_corrupt() -> None:
    head = compression._XERIAL_HEADER
    block = bytes(cramjam.snappy.compress_raw(b"abc"))
    for tail in (b"\0", b"\0\0\0\0", struct.pack(">i", -1), struct.pack(">i", 99) + block, b"\0\0\0\x02" + block):
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, head + tail)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x3f" + bytes(20))


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(BatchError) as caught:
        decompress(5, b"")
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(CODECS), st.sampled_from(sorted(PAYLOADS)), st.data())
def test_damage_raises_nothing_but_our_errors(codec: Codec, name: str, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, PAYLOADS[name], xerial=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        # most of the structure is at the front
        pos = data.draw(st.one_of(st.integers(0, min(40, len(stream) - 1)), st.integers(0, len(stream) - 1)))
        stream[pos] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, stream, 1 << 20)) <= 1 << 20
    except BatchError:
        pass


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(CODECS), st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_nothing_but_our_errors(codec: Codec, noise: bytes, with_magic: bool) -> None:
    magic = {Codec.GZIP: b"\x1f\x8b\x08", Codec.SNAPPY: compression._XERIAL_HEADER, Codec.LZ4: b"\x04\x22\x4d\x18"}
    head = magic.get(codec, b"\x28\xb5\x2f\xfd") if with_magic else b""
    try:
        assert len(decompress(codec, head + noise, 1 << 20)) <= 1 << 20
    except BatchError:
        pass


MEASURE = """
import resource, sys
from klamm.records.batch import BatchError
from klamm.records.compression import Codec, compress, decompress
codec, cap = Codec(int(sys.argv[1])), int(sys.argv[2])
decompress(codec, compress(codec, b"warm up" * 1000))
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, data, cap)
except BatchError as e:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, int(e.code))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is counted in KiB only on Linux")
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_the_cap(codec: Codec) -> None:
    cap = 4 << 20
    bomb = compress(codec, bytes(128 << 20), xerial=False)
    run = subprocess.run([sys.executable, "-c", MEASURE, str(codec), str(cap)], input=bomb, stdout=-1, check=True)
    grown_kib, code = map(int, run.stdout.split())
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert grown_kib < 3 * cap >> 10, f"{grown_kib} KiB for a cap of {cap >> 10} KiB"


def test_no_codec_library_is_imported_before_it_is_used() -> None:
    script = "import sys, klamm.records.record; print(sorted({'cramjam', 'lz4', 'isal'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], stdout=-1, check=True, text=True)
    assert run.stdout.strip() == "[]"
