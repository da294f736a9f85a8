"""Which leader epoch wrote which offsets of a log (KIP-101, KIP-279), in Kafka's `leader-epoch-checkpoint` format.

A follower that comes back asks the leader where its last epoch ended and cuts its log there; a consumer finds out in
the same way that its position was lost. Pure: the log reads and writes the file. Epochs and start offsets both grow,
always; this class must never hold a list where one of them does not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = (-1, -1)  # the (epoch, offset) of an answer that cannot be given

_VERSION: Final = 0


class CheckpointError(ValueError):
    """A checkpoint that cannot be read: the epochs have to be rebuilt from the batches."""


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The epoch writes from this offset on. True if that was news, and the checkpoint has to be written.

        What contradicts the new entry goes: an epoch that is not lower or a start that is not lower. In a sound log
        that is at most an epoch which never wrote anything.
        """
        assert epoch >= 0 and start_offset >= 0, (epoch, start_offset)
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to the one asked for, and the offset where it ended.

        An epoch from before the first known one gets itself and the first known start: what it wrote is deleted,
        and a follower goes on from there. A later one than the last known is undefined.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        above = bisect_right(self._epochs, epoch)
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote the offset, or -1 if that is not known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else -1

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log ends here now: epochs that start at or after it are gone. True if there were any."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:]
        del self._starts[keep:]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log starts here now: the epoch that holds this offset starts with it, earlier ones are gone."""
        drop = bisect_right(self._starts, start_offset) - 1
        if drop < 0 or (drop == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:drop]
        del self._starts[:drop]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def dump(self) -> bytes:
        lines = [str(_VERSION), str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def load(cls, data: bytes) -> LeaderEpochs:
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            if int(version) != _VERSION:
                raise CheckpointError(f"the leader epoch checkpoint has version {version}; this broker reads 0")
            pairs = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
            expected = int(count)
        except CheckpointError:
            raise
        except ValueError as error:
            raise CheckpointError("the leader epoch checkpoint is not readable") from error
        if len(pairs) != expected:
            raise CheckpointError(f"the leader epoch checkpoint announces {expected} entries and has {len(pairs)}")
        epochs = cls()
        for epoch, start in pairs:
            if epoch < 0 or start < 0 or (epochs._epochs and (epoch <= epochs.latest or start <= epochs._starts[-1])):
                raise CheckpointError(f"the leader epoch checkpoint is out of order at epoch {epoch}")
            epochs._epochs.append(epoch)
            epochs._starts.append(start)
        return epochs
