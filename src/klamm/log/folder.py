"""The data folder of a broker: who may open it, and what was known of its logs when it was last written.

    klamm.json    marker: format version, cluster id, node id
    lock          held while a broker (or a repair) uses the folder
    state.json    start, end, recovery point, high watermark and clean offset of every log
    topics/       a folder for each partition, with Kafka's file names in it

The marker is ours on purpose: a Kafka broker must not open our folder, nor we one of Kafka's. `state.json` replaces
Kafka's checkpoint files and its clean-shutdown file by one that is written as a whole. Its word `clean` lets the next
start trust every log without looking at it, so that word must never be on the disk while a log may be written:
`take_state` withdraws it, durably, before it hands the state out. All calls here block.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from klamm.core.env import Env, Files, Lock, Volume
from klamm.core.ids import ZERO_UUID, uuid_from_text, uuid_text
from klamm.log.results import LogState
from klamm.records.checksum import crc32c

FORMAT: Final = 1
MARKER_NAME: Final = "klamm.json"
LOCK_NAME: Final = "lock"
STATE_NAME: Final = "state.json"
TOPICS_NAME: Final = "topics"
TOPIC_ID_PREFIX: Final = "topic-id."
DELETED_SUFFIX: Final = ".deleted"
STRAY_SUFFIX: Final = ".stray"

_KAFKA_MARKER: Final = "meta.properties"
_BEFORE_MARKER: Final = (LOCK_NAME, MARKER_NAME + ".tmp", "lost+found")
"""What a folder may hold that is still new: what a crash in its making leaves, and what a disk of its own has."""
_STATE_VERSION: Final = 1
_NOT_CLEAN: Final = -1  # in place of the end offset: this log was offline, or not closed


class FolderError(Exception):
    """Why a folder cannot be used: one sentence for the user."""


class SavedLog(NamedTuple):
    """What the state file says of one log. Not `clean`: its end is not known, the rest are lower bounds."""

    topic_id: bytes
    state: LogState
    clean: bool


class SavedState(NamedTuple):
    clean: bool
    logs: dict[str, SavedLog]


_logger = logging.getLogger("klamm.log")

NOTHING_SAVED: Final = SavedState(False, {})


class DataFolder:
    """An open data folder. It stays locked until `close` or until the process ends, however that happens."""

    __slots__ = ("_lock", "cluster_id", "files", "node_id", "path", "volume")

    def __init__(self, files: Files, path: str, lock: Lock, volume: Volume, cluster_id: str, node_id: int) -> None:
        self.files = files
        self.path = path
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.volume = volume  # where the logs are; from the start, so that it knows of every write that fails
        self._lock = lock

    @classmethod
    def open(cls, env: Env, path: str, *, node_id: int = 0, cluster_id: str | None = None) -> DataFolder:
        """Lock the folder and read its marker, or make a new one. FolderError if that cannot or must not be."""
        files = env.files
        path = path.rstrip("/") or "/"
        try:
            _make_durably(files, path)
            _refuse_kafka(files, path)
            _refuse_strangers(files, path)
            lock = take_lock(files, path)
            try:
                marker = _read_marker(files, path)
                if marker is None:
                    marker = _make_marker(files, path, cluster_id or uuid_text(env.uuid()), node_id)
                _check_identity(path, marker, node_id, cluster_id)
                files.make_dirs(f"{path}/{TOPICS_NAME}")
                files.sync_dir(path)
                volume = files.volume(f"{path}/{TOPICS_NAME}")
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise FolderError(f"The data folder {path} cannot be used: {error.strerror or error}.") from error
        return cls(files, path, lock, volume, marker["cluster_id"], marker["node_id"])

    @property
    def topics_path(self) -> str:
        return f"{self.path}/{TOPICS_NAME}"

    def log_path(self, name: str) -> str:
        return f"{self.path}/{TOPICS_NAME}/{name}"

    def take_state(self) -> SavedState:
        """What was saved last; from here on the stop counts as unclean until a clean state is written."""
        saved = read_state(self.files, self.path)
        if saved.clean:
            path = f"{self.path}/{STATE_NAME}"
            _, _, body = self.files.read(path).partition(b"\n")
            self.files.write_atomically(path, _first_line(body, clean=False) + body)
        return saved

    def write_state(self, lines: Iterable[str], *, clean: bool) -> None:
        """`clean` only when every log is closed and flushed."""
        write_state(self.files, self.path, lines, clean=clean)

    def close(self) -> None:
        self.volume.close()
        self._lock.release()


# ---- marker and lock


def _make_durably(files: Files, path: str) -> None:
    """Make the folder and those above it that are missing, so that a power loss does not take the whole away."""
    missing: list[str] = []
    while path not in ("", "/") and not files.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for folder in reversed(missing):
        files.make_dirs(folder)
        files.sync_dir(folder.rpartition("/")[0] or ("/" if folder.startswith("/") else "."))


def take_lock(files: Files, path: str) -> Lock:
    """FolderError if another process has the data folder."""
    lock = files.lock(f"{path}/{LOCK_NAME}")
    if lock is None:
        raise FolderError(f"The data folder {path} is in use by another broker; stop it, or choose another folder.")
    return lock


def _refuse_kafka(files: Files, path: str) -> None:
    if files.exists(f"{path}/{_KAFKA_MARKER}"):
        raise FolderError(f"The folder {path} belongs to a Kafka broker; give Klamm a folder of its own.")


def _refuse_strangers(files: Files, path: str) -> None:
    """A folder that was never ours and holds something: a slip of the pen must not mix a broker's files into it."""
    names = files.list(path)
    strangers = [name for name in names if name not in _BEFORE_MARKER]
    if strangers and not set(names) & {MARKER_NAME, STATE_NAME, TOPICS_NAME}:
        raise FolderError(
            f"The folder {path} is not empty and not a broker's (it has {strangers[0]}); choose a new or empty one."
        )


def _read_marker(files: Files, path: str) -> dict[str, Any] | None:
    try:
        data = files.read(f"{path}/{MARKER_NAME}")
    except FileNotFoundError:
        for name in (STATE_NAME, TOPICS_NAME):  # neither is made before the marker is durable
            if files.exists(f"{path}/{name}"):
                raise FolderError(f"The folder {path} has a {name} but no {MARKER_NAME}; put it back first.") from None
        return None
    try:
        marker = json.loads(data)
        written = marker["format"]
        known = isinstance(marker["cluster_id"], str) and isinstance(marker["node_id"], int)
    except (ValueError, TypeError, KeyError):
        known = False
    if not known or not isinstance(written, int):
        raise FolderError(f"The marker {path}/{MARKER_NAME} is damaged; put it back from a copy, or use a new folder.")
    if written > FORMAT:
        raise FolderError(
            f"The data folder {path} has format {written}, written by a newer Klamm; this one reads format {FORMAT}."
        )
    return dict(marker)


def _make_marker(files: Files, path: str, cluster_id: str, node_id: int) -> dict[str, Any]:
    marker = {"format": FORMAT, "cluster_id": cluster_id, "node_id": node_id}
    files.write_atomically(f"{path}/{MARKER_NAME}", json.dumps(marker).encode() + b"\n")
    return marker


def _check_identity(path: str, marker: Mapping[str, Any], node_id: int, cluster_id: str | None) -> None:
    if marker["node_id"] != node_id:
        raise FolderError(
            f"The data folder {path} belongs to node {marker['node_id']}; this broker is node {node_id};"
            f" set node.id={marker['node_id']}, or choose another folder."
        )
    if cluster_id is not None and marker["cluster_id"] != cluster_id:
        raise FolderError(
            f"The data folder {path} belongs to cluster {marker['cluster_id']}; this broker is of cluster {cluster_id}."
        )


# ---- the state file: JSON, one line for each log, so that it can be put together in slices


def state_line(name: str, log: SavedLog, id_text: str | None = None) -> str:
    """`id_text` is the topic id as text, where there is one at hand: that saves a third of the time."""
    start, end, recovery_point, watermark, clean_offset = log.state
    if not log.clean:
        end = _NOT_CLEAN
    more = f", {clean_offset}" if clean_offset else ""  # only where there is compaction
    return f'"{name}": ["{id_text or uuid_text(log.topic_id)}", {start}, {end}, {recovery_point}, {watermark}{more}]'


def encode_state(lines: Iterable[str], *, clean: bool) -> bytes:
    body = (",\n".join(lines) + "\n}}\n").encode()
    return _first_line(body, clean=clean) + body


def _first_line(body: bytes, *, clean: bool) -> bytes:
    """The checksum covers the word `clean` and all after the first line: 10,000 logs are trusted because of it."""
    crc = crc32c(body, clean)
    return f'{{"version": {_STATE_VERSION}, "clean": {str(clean).lower()}, "crc": {crc}, "logs": {{\n'.encode()


def decode_state(data: bytes) -> SavedState:
    """ValueError if it is damaged."""
    whole = json.loads(data)
    if not isinstance(whole, dict) or whole.get("version") != _STATE_VERSION:
        raise ValueError("not a state file of this version")
    clean = whole.get("clean") is True
    if crc32c(data[data.index(b"\n") + 1 :], clean) != whole.get("crc"):
        raise ValueError("the checksum of the state file is wrong")
    logs: dict[str, SavedLog] = {}
    ids: dict[str, bytes] = {}  # most logs share theirs with others
    for name, (text, start, end, recovery_point, watermark, *more) in whole["logs"].items():
        topic_id = ids.get(text)
        if topic_id is None:
            topic_id = ids[text] = uuid_from_text(text)
        state = LogState(start, end, recovery_point, watermark, *more)
        logs[name] = SavedLog(topic_id, state, clean and end != _NOT_CLEAN)
    return SavedState(clean, logs)


def read_state(files: Files, path: str) -> SavedState:
    """A missing or damaged state file is an unclean stop of which nothing is known: every log is read through."""
    try:
        return decode_state(files.read(f"{path}/{STATE_NAME}"))
    except FileNotFoundError:
        return NOTHING_SAVED
    except (ValueError, LookupError, AttributeError):
        _logger.warning("%s/%s is damaged; all logs are read through instead.", path, STATE_NAME)
        return NOTHING_SAVED


def write_state(files: Files, path: str, lines: Iterable[str], *, clean: bool) -> None:
    files.write_atomically(f"{path}/{STATE_NAME}", encode_state(lines, clean=clean))


# ---- partition folders


def partition_name(topic: str, partition: int) -> str:
    """A topic's name has at most 249 characters, so that this fits into the 255 of a file name."""
    return f"{topic}-{partition}"


def split_name(name: str) -> tuple[str, int] | None:
    """Topic and partition of a partition's folder; None if it is none."""
    topic, dash, number = name.rpartition("-")
    if not topic or not dash or not number.isascii() or not number.isdigit():
        return None
    return topic, int(number)


def topic_id_name(topic_id: bytes) -> str:
    """The name of the empty file that says which topic a partition's folder is for. A name and not a content, so that
    the sync of the folder which makes the first segment durable does the same for the id, at no cost."""
    return TOPIC_ID_PREFIX + uuid_text(topic_id)


def read_topic_id(files: Files, path: str) -> bytes:
    """The topic id that a partition's folder was made for; zeros if it does not (legibly) say."""
    try:
        for name in files.list(path):
            if name.startswith(TOPIC_ID_PREFIX):
                return uuid_from_text(name.removeprefix(TOPIC_ID_PREFIX))
    except (FileNotFoundError, ValueError):
        pass
    return ZERO_UUID
