from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.env.real import real_env
from klamm.log.txn_index import ENTRY_BYTES, AbortedTxn, IndexDamaged, TxnIndex, decode_entries, encode_entry

FILES = real_env().files


@pytest.fixture
def index(tmp_path: Path) -> TxnIndex:
    return TxnIndex(FILES, str(tmp_path / "00000000000000000000.txnindex"))


def test_an_entry_has_kafkas_34_bytes() -> None:
    entry = AbortedTxn(1, 2, 3, 4)
    assert encode_entry(entry).hex() == "0000" + "".join(f"{n:016x}" for n in (1, 2, 3, 4))
    assert ENTRY_BYTES == 34
    assert list(decode_entries(encode_entry(entry) * 2)) == [entry, entry]


def test_there_is_no_file_before_the_first_entry(index: TxnIndex) -> None:
    assert index.entries() == []
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(5)
    index.reset()
    index.sync()
    index.check(0)
    index.remove()
    assert not FILES.exists(index.path)


def test_entries_are_there_after_reopening(index: TxnIndex) -> None:
    entries = [AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 3, 9, 10)]
    for entry in entries:
        index.append(entry)
    index.sync()
    again = TxnIndex(FILES, index.path)
    again.check(0)
    assert again.entries() == entries
    again.append(AbortedTxn(1, 12, 13, 14))
    assert len(TxnIndex(FILES, index.path).entries()) == 3


def test_entries_must_not_go_back(index: TxnIndex) -> None:
    index.append(AbortedTxn(1, 0, 5, 6))
    with pytest.raises(AssertionError):
        index.append(AbortedTxn(2, 1, 5, 6))


def test_a_torn_entry_is_written_over(index: TxnIndex) -> None:
    FILES.open(index.path, create=True).append(encode_entry(AbortedTxn(1, 0, 5, 6)) + b"torn")
    with pytest.raises(IndexDamaged):
        TxnIndex(FILES, index.path).check(0)
    index.append(AbortedTxn(2, 6, 8, 9))
    assert TxnIndex(FILES, index.path).entries() == [AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 6, 8, 9)]


@pytest.mark.parametrize(
    "content",
    [encode_entry(AbortedTxn(1, 0, 50, 6)), encode_entry(AbortedTxn(1, 0, 120, 6)) * 2,
     encode_entry(AbortedTxn(1, 130, 120, 6)), b"\0\1" + bytes(32)],
)  # fmt: skip
def test_content_that_cannot_be_right_is_found(index: TxnIndex, content: bytes) -> None:
    FILES.open(index.path, create=True).append(content)
    with pytest.raises(IndexDamaged):
        index.check(100)


def test_the_index_follows_its_file(index: TxnIndex, tmp_path: Path) -> None:
    index.append(AbortedTxn(1, 0, 5, 6))
    moved = str(tmp_path / "moved.txnindex")
    FILES.rename(index.path, moved)
    index.moved_to(moved)
    index.append(AbortedTxn(1, 6, 7, 8))
    assert len(TxnIndex(FILES, moved).entries()) == 2
    index.reset()
    assert TxnIndex(FILES, moved).entries() == []
    index.remove()
    assert not FILES.exists(moved)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=10), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_collecting_finds_what_overlaps_also_after_a_cut(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], cut: int, fetch: int, upper: int
) -> None:
    index = TxnIndex(FILES, str(tmp_path_factory.mktemp("txn") / "a.txnindex"))
    entries: list[AbortedTxn] = []
    offset = 0
    for number, gap in enumerate(gaps):  # transactions that follow each other: each starts after the marker before
        entries.append(AbortedTxn(number, offset, offset + gap, offset + gap + 1))
        index.append(entries[-1])
        offset += gap + 1
    index.truncate_to(cut)
    left = [entry for entry in entries if entry.last_offset < cut]
    assert TxnIndex(FILES, index.path).entries() == left
    found, complete = index.collect(fetch, upper)
    assert found == [e for e in left if e.last_offset >= fetch and e.first_offset < upper]
    assert complete == any(e.last_stable_offset >= upper for e in left)
