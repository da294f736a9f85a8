from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.server.buffer import SMALL_BYTES, START_BYTES, BadFrameSize, FrameBuffer

MIB = 1024 * 1024


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes) -> int:
    """As a socket does: as much as there is room for. Returns how much that was."""
    room = buffer.writable()
    assert len(room) > 0
    count = min(len(room), len(data))
    room[:count] = data[:count]
    buffer.received(count)
    return count


def feed_all(buffer: FrameBuffer, data: bytes, chunk: int = 1 << 30) -> list[bytes]:
    """Frames that come out while `data` goes in, in reads of at most `chunk`."""
    frames = []
    while data:
        data = data[feed(buffer, data[:chunk]) :]
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.one_of(st.integers(0, 60), st.integers(0, 5000), st.integers(0, 40_000)), max_size=12),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=8),
    st.integers(0, 3),
)
def test_the_same_frames_come_out_however_the_bytes_come_in(
    sizes: list[int], chunks: list[int], disturbance: int
) -> None:
    frames = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    data = framed(*frames)
    buffer = FrameBuffer(MIB)
    got: list[bytes] = []
    turn = 0
    while data:
        chunk = chunks[turn % len(chunks)]
        turn += 1
        data = data[feed(buffer, data[:chunk]) :]
        while (frame := buffer.next_frame()) is not None:
            got.append(bytes(frame))
            if disturbance == 1:
                buffer.detach()
        if disturbance == 2:
            buffer.shrink(0)
    assert got == frames
    assert len(buffer) == 0


def test_a_frame_arrives_byte_by_byte() -> None:
    assert feed_all(FrameBuffer(100), framed(b"abc", b"", b"defg"), chunk=1) == [b"abc", b"", b"defg"]


def test_small_frames_of_one_read_come_out_one_after_another_without_a_copy() -> None:
    buffer = FrameBuffer(100)
    feed(buffer, framed(b"one", b"two"))
    first = buffer.next_frame()
    second = buffer.next_frame()
    assert first is not None and second is not None
    assert first.obj is second.obj
    assert (bytes(first), bytes(second)) == (b"one", b"two")
    assert buffer.next_frame() is None


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused_before_anything_is_allocated(size: int) -> None:
    buffer = FrameBuffer(100)
    feed(buffer, size.to_bytes(4, "big", signed=True) + b"junk")
    with pytest.raises(BadFrameSize) as refused:
        buffer.next_frame()
    assert refused.value.size == size
    assert refused.value.first_bytes.endswith(b"junk")
    assert buffer.capacity == START_BYTES


def test_an_announced_frame_costs_only_what_arrives_of_it() -> None:
    buffer = FrameBuffer(100 * MIB)
    data = (100 * MIB).to_bytes(4, "big")
    received = 0
    for chunk in (4, 1000, 3000, 5000, 20_000, 100_000, 2 * MIB):
        data = data or bytes(chunk)
        while data:
            count = feed(buffer, data)
            received += count
            data = data[count:]
            assert buffer.next_frame() is None
            assert buffer.capacity <= max(START_BYTES, 4 * received)
    assert buffer.needed == 100 * MIB + 4


def test_a_large_frame_ends_in_a_buffer_of_its_size_and_the_next_needs_no_move() -> None:
    buffer = FrameBuffer(10 * MIB)
    frame = bytes(range(256)) * 4096
    assert feed_all(buffer, framed(frame, frame)) == [frame, frame]
    assert buffer.capacity == len(frame) + 4
    assert len(buffer.writable()) == buffer.capacity


def test_a_buffer_that_reads_fill_grows_to_take_more_at_once_but_not_far() -> None:
    buffer = FrameBuffer(MIB)
    for _ in range(100):
        feed_all(buffer, framed(*[b"x" * 60] * 1000))
    assert buffer.capacity == SMALL_BYTES


def test_a_view_that_somebody_kept_is_not_pulled_away() -> None:
    buffer = FrameBuffer(MIB)
    feed(buffer, framed(b"kept"))
    kept = buffer.next_frame()
    assert kept is not None
    buffer.detach()
    feed_all(buffer, framed(b"x" * 100_000, b"y" * 10))
    assert bytes(kept) == b"kept"


def test_shrinking_gives_the_memory_back_and_keeps_what_waits() -> None:
    buffer = FrameBuffer(10 * MIB)
    feed_all(buffer, framed(b"x" * MIB))
    assert buffer.capacity == MIB + 4
    feed(buffer, framed(b"abc", b"later")[:-2])
    assert bytes(buffer.next_frame() or b"") == b"abc"
    assert buffer.next_frame() is None
    buffer.shrink(0)
    assert buffer.capacity == START_BYTES
    assert feed_all(buffer, b"er") == [b"later"]


def test_shrinking_does_nothing_while_more_waits_than_would_be_kept() -> None:
    buffer = FrameBuffer(10 * MIB)
    data = framed(b"x" * MIB)
    feed_all(buffer, data[:-1])
    capacity = buffer.capacity
    buffer.shrink(0)
    assert buffer.capacity == capacity
    assert feed_all(buffer, data[-1:]) == [b"x" * MIB]


def test_frames_that_were_not_taken_do_not_stop_the_next_read() -> None:
    buffer = FrameBuffer(MIB)
    data = framed(*[b"%5d" % i for i in range(5000)])
    rest = data
    while rest:
        rest = rest[feed(buffer, rest) :]
    got = []
    while (frame := buffer.next_frame()) is not None:
        got.append(int(bytes(frame)))
    assert got == list(range(5000))


def test_a_cleared_buffer_is_empty_and_small() -> None:
    buffer = FrameBuffer(10 * MIB)
    feed_all(buffer, framed(b"x" * MIB)[:-1])
    buffer.clear()
    assert (len(buffer), buffer.needed, buffer.capacity) == (0, 0, START_BYTES)
    assert buffer.next_frame() is None
