"""Which version of an API to speak with one broker, from what its ApiVersions answer says."""

from __future__ import annotations

from collections.abc import Mapping

from klamm import wire
from klamm.client.errors import UnsupportedVersion
from klamm.wire.messages.k18_api_versions import ApiVersionsResponse


class Versions:
    """The APIs of one broker, each with its lowest and highest version."""

    __slots__ = ("_best", "_ranges", "broker", "features")

    def __init__(
        self, ranges: Mapping[int, tuple[int, int]], broker: str, features: Mapping[str, int] | None = None
    ) -> None:
        self._ranges = ranges
        self._best: dict[tuple[type[wire.Request], int | None], int] = {}  # found before
        self.broker = broker
        self.features = features or {}
        """The levels of the cluster's finalized features, such as transaction.version."""

    @classmethod
    def from_answer(cls, answer: ApiVersionsResponse, broker: str) -> Versions:
        ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return cls(ranges, broker, {feature.name: feature.max_version_level for feature in answer.finalized_features})

    def ranges(self) -> dict[int, tuple[int, int]]:
        return dict(self._ranges)

    def has(self, request: type[wire.Request]) -> bool:
        ours, theirs = wire.versions_of(request), self._ranges.get(request.__api_key__)
        return theirs is not None and theirs[0] <= ours[-1] and theirs[1] >= ours[0]

    def best(self, request: type[wire.Request], at_most: int | None = None) -> int:
        """The highest version that both sides have (and not above `at_most`)."""
        found = self._best.get((request, at_most))
        if found is None:
            found = self._best[request, at_most] = self._find_best(request, at_most)
        return found

    def _find_best(self, request: type[wire.Request], at_most: int | None) -> int:
        name = api_name(request)
        theirs = self._ranges.get(request.__api_key__)
        if theirs is None:
            raise UnsupportedVersion(f"The broker at {self.broker} does not have the API {name}.")
        ours = wire.versions_of(request)
        highest = min(ours[-1], theirs[1]) if at_most is None else min(ours[-1], theirs[1], at_most)
        if highest < max(ours[0], theirs[0]):
            raise UnsupportedVersion(
                f"{name} has versions {theirs[0]} to {theirs[1]} at the broker {self.broker}, and here "
                f"{ours[0]} to {ours[-1] if at_most is None else min(ours[-1], at_most)}: none in common."
            )
        return highest


def api_name(request: type[wire.Request]) -> str:
    return request.__name__.removesuffix("Request")
