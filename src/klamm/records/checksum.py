"""CRC-32C, loaded without its package's own set-up.

`import crc32c` reads the installed package's version and builds a command line: 38 ms and 3 MB for what is 0.5 ms of
extension module, and a broker is to answer 300 ms after it was spawned. So the extension is loaded by itself, under its
own name (a later `import crc32c` finds it there); where that cannot be done, the package is imported as usual.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

_EXTENSION = "crc32c._crc32c"


def _load() -> ModuleType:
    if _EXTENSION in sys.modules:
        return sys.modules[_EXTENSION]
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_EXTENSION] = module
            return module
    import crc32c

    return crc32c


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = _load().crc32c
