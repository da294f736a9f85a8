"""Which APIs there are: every module `k??_*.py` of this package, and nothing else.

A module becomes part of the broker by being there; ApiVersions and the dispatcher are derived from what is found, so
neither can disagree with the code. This module must never name an API: which of them can wait for their first call is
said in `rare`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

import klamm.apis as package
from klamm.apis.api import Answer, Api, Context, Response, Versions
from klamm.apis.rare import RARE
from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.wire.messages import APIS
from klamm.wire.schema import Request


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


class RareApi(Api):
    """Stands for the API of a module that is imported when it is first needed."""

    __slots__ = ("_api", "_module")

    def __init__(self, module: str, versions: tuple[int, int]) -> None:
        self._module = module
        self._api: Api | None = None
        self.key = int(module[1:3])
        self.name = APIS[self.key][1]
        self.versions = self.advertised = Versions(*versions)
        self.handle = self._handle
        self.on_error = self._on_error
        self.shortcut = None
        self.gate = None

    @property
    def request(self) -> type[Request]:
        return self._imported().request

    def _imported(self) -> Api:
        if self._api is None:
            self._api = _import(self._module)
        return self._api

    def _handle(self, ctx: Context, request: Request) -> Answer:
        return self._imported().handle(ctx, request)

    def _on_error(self, request: Request, version: int, code: ErrorCode) -> Response | None:
        on_error = self._imported().on_error
        return None if on_error is None else on_error(request, version, code)


def _import(module: str) -> Api:
    api = importlib.import_module(f"{package.__name__}.{module}").API
    assert isinstance(api, Api)
    return api


def load(options: Options | None = None) -> Registry:
    """Every API module's `API`, as these options want it; of the rare ones something that imports it."""
    return Registry(
        RareApi(name, RARE[name]) if name in RARE else _import(name).with_options(options) for name in module_names()
    )
