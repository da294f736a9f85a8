"""What became of each item of a call: some may have worked and others not."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar, overload

from klamm.client.errors import BrokerSaid, ClientError, error_code
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


class Results(Mapping[K, V]):
    """A mapping from the items that worked to what came back; the others are in `errors`.

    done = await admin.create_topics(["a", "b"])
    done["a"]         # what came back, or the error of this item, raised
    done.errors       # {"b": BrokerSaid(...)}
    done.check()      # raises, unless all worked
    """

    __slots__ = ("_worked", "errors")

    def __init__(self, worked: Mapping[K, V], errors: Mapping[K, ClientError] | None = None) -> None:
        self._worked = dict(worked)
        self.errors: dict[K, ClientError] = dict(errors or {})

    @classmethod
    def of(cls, items: Iterable[K], told: Mapping[K, V | ClientError]) -> Results[K, V]:
        """These items with what was told of each. Of which nothing was told, it is an error."""
        worked: dict[K, V] = {}
        errors: dict[K, ClientError] = {}
        for item in items:
            outcome = told[item] if item in told else not_told(item)
            if isinstance(outcome, ClientError):
                errors[item] = outcome
            else:
                worked[item] = outcome
        return cls(worked, errors)

    def __getitem__(self, item: K) -> V:
        error = self.errors.get(item)
        if error is not None:
            raise error
        return self._worked[item]

    @overload
    def get(self, item: K, /) -> V | None: ...

    @overload
    def get(self, item: K, /, default: V | D) -> V | D: ...

    def get(self, item: K, /, default: V | D | None = None) -> V | D | None:
        """Quietly: the default for what did not work, too."""
        return self._worked.get(item, default)

    def __contains__(self, item: object) -> bool:
        return item in self._worked

    def __iter__(self) -> Iterator[K]:
        return iter(self._worked)

    def __len__(self) -> int:
        return len(self._worked)

    def __repr__(self) -> str:
        return f"Results({self._worked!r}, errors={self.errors!r})"

    def check(self) -> Results[K, V]:
        """Itself, if all items worked; else the first error is raised, with a note about the others."""
        if not self.errors:
            return self
        first, *others = self.errors.values()
        for other in others:
            first.add_note(other.text)
        raise first


def failure(number: int, about: object, message: str | None = None, hint: str = "") -> BrokerSaid | None:
    """The error that a broker's code stands for; None for none. An error about a partition names it."""
    if not number:
        return None
    error = BrokerSaid(error_code(number), str(about), message, hint)
    if isinstance(about, TopicPartition):
        error.topic, error.partition = about
    return error


def not_told(about: object) -> BrokerSaid:
    """For an item that was asked for and is not in the answer."""
    return BrokerSaid(ErrorCode.UNKNOWN_SERVER_ERROR, str(about), "The broker's answer says nothing of it.")
