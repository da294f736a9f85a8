from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.client.receive import BUFFER_BYTES, BadFrame, FrameReceiver


def feed(receiver: FrameReceiver, data: bytes, steps: list[int]) -> list[bytes]:
    """Give it the data as a socket would: as much as it has room for, in pieces of any size."""
    frames: list[bytes] = []
    while data:
        room = receiver.writable()
        assert len(room)
        count = min(len(room), len(data), steps.pop(0) if steps else len(data))
        room[:count] = data[:count]
        data = data[count:]
        frames += [bytes(frame) for frame in receiver.received(count)]
    return frames


@given(
    st.lists(st.integers(4, 300) | st.sampled_from([BUFFER_BYTES - 4, BUFFER_BYTES, 3 * BUFFER_BYTES + 7]), max_size=8),
    st.lists(st.integers(1, 100_000), max_size=50),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(sizes: list[int], steps: list[int]) -> None:
    sent = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent)
    assert feed(FrameReceiver(), data, steps) == sent


def test_a_large_frame_stays_as_it_is_while_others_follow() -> None:
    receiver = FrameReceiver()
    first = b"a" * (2 * BUFFER_BYTES)
    data = len(first).to_bytes(4, "big") + first
    while data:
        room = receiver.writable()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        frames = receiver.received(count)
    feed(receiver, (5).to_bytes(4, "big") + b"other", [])
    assert bytes(frames[0]) == first


@pytest.mark.parametrize("size", [-1, 0, 3, 1001, 0x48545450])
def test_a_size_that_no_answer_has_is_refused_with_what_came(size: int) -> None:
    with pytest.raises(BadFrame) as caught:
        feed(FrameReceiver(max_frame_bytes=1000), size.to_bytes(4, "big", signed=True) + b"/1.1", [])
    assert caught.value.first_bytes[:4] == size.to_bytes(4, "big", signed=True)
