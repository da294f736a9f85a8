"""`klamm info`: what is installed here, and which code reads records. Says nothing of any cluster."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import import_module, metadata
from typing import Any, Final

import klamm
from klamm.cli.output import add_output, print_fields, print_json

_EXAMPLES: Final = """examples:
  klamm info
  klamm info -o json | jq -r .records
"""
_PACKAGES: Final = {
    "crc32c": "checksums",
    "cramjam": "snappy, zstd",
    "lz4": "lz4",
    "isal": "gzip",
    "google-re2": "patterns of topics",
    "pyarrow": "consumer.arrow(), optional",
}
"""What Klamm uses if it is there, and what for."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    found = collect()
    if options.output == "json":
        print_json(found)
        return 0
    packages = found.pop("packages")
    reason = found.pop("reason")
    if reason:
        found["records"] += f" ({reason})"
    print_fields([(name.replace("_", " "), value) for name, value in found.items()])
    print()
    print_fields([(name, f"{packages[name] or 'not installed'}  ({use})") for name, use in _PACKAGES.items()])
    return 0


def collect() -> dict[str, Any]:
    import ssl

    from klamm.records.kernel import implementation

    return {
        "klamm": klamm.__version__,
        "records": implementation,
        "reason": None if implementation == "native" else _why_pure(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "openssl": ssl.OPENSSL_VERSION,
        "folder": os.path.dirname(klamm.__file__),
        "executable": sys.executable,
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _why_pure() -> str:
    """Why the native kernel is not in use."""
    if os.environ.get("KLAMM_PURE_PYTHON", "") not in ("", "0"):
        return "KLAMM_PURE_PYTHON is set"
    try:
        import_module("klamm.records._native.kernel")
    except ModuleNotFoundError:
        return "this package was built without the native kernel"
    except ImportError as error:
        return f"the native kernel cannot be loaded: {error}"
    return "the native kernel is of another version"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
