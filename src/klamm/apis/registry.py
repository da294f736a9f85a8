"""Which APIs there are: every module `k??_*.py` of this package, and nothing else.

A module becomes part of the broker by being there; ApiVersions and the dispatcher are derived from what is found, so
neither can disagree with the code. This module must never name an API.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

import klamm.apis as package
from klamm.apis.api import Api


class Registry:
    """The APIs by key. Immutable once made."""

    __slots__ = ("_by_key",)

    def __init__(self, apis: Iterable[Api]) -> None:
        self._by_key: dict[int, Api] = {}
        for api in sorted(apis, key=lambda api: api.key):
            assert api.key not in self._by_key, f"two modules for API key {api.key}"
            self._by_key[api.key] = api

    def get(self, key: int) -> Api | None:
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Api]:
        """In the order of their keys."""
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)


def module_names() -> list[str]:
    """Names of the API modules, in the order of their keys."""
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if _is_api(info.name))


def _is_api(name: str) -> bool:
    return name[0] == "k" and name[1:3].isdigit() and name[3:4] == "_"


def load() -> Registry:
    """Import every API module and take its `API`."""
    return Registry(importlib.import_module(f"{package.__name__}.{name}").API for name in module_names())
