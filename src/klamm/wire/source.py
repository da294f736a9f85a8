"""A small writer of Python source, shared by the two code generators."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer
from typing import Any

from klamm.wire import runtime

FEW = range(9)
"""Counts for which arrays of numbers have packers of their own: most are lists of replicas."""


class Source:
    """One function in the making: its lines, and the objects it refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(vars(runtime))
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def block(self, head: str) -> Source:
        """`with source.block("if x:"):` indents what is written inside."""
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """A fresh local name; fresh, because nested structs are inlined into one function."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, name: str, value: Any) -> str:
        """Make an object known to the function under this name; the same object gets the same name."""
        while self.names.setdefault(name, value) is not value:
            name += "_"
        return name

    def pack(self, codes: str) -> str:
        name = f"pack_{codes.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = Packer(">" + codes).pack
        return name

    def unpack(self, codes: str) -> str:
        name = f"unpack_{codes.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = Packer(">" + codes).unpack_from
        return name

    def pack_few(self, prefix: str, code: str) -> str:
        """Packers by the number of values that follow the prefix."""
        name = f"pack_few_{prefix}_{code}".replace("?", "z")
        if name not in self.names:
            self.names[name] = tuple(Packer(f">{prefix}{count}{code}").pack for count in FEW)
        return name

    def unpack_few(self, code: str) -> str:
        """Unpackers by the number of values."""
        name = f"unpack_few_{code}".replace("?", "z")
        if name not in self.names:
            self.names[name] = tuple(Packer(f">{count}{code}").unpack_from for count in FEW)
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str, filename: str) -> Callable[..., Any]:
        exec(compile(self.text(), filename, "exec"), self.names)
        made: Callable[..., Any] = self.names[function]
        return made
