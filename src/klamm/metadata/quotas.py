"""Whom a client quota is for. Quotas are stored here and enforced elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of the types. A name that is None stands for all that have no quota of their own."""


def entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Types must not be there twice."""
    return tuple(sorted(parts, key=lambda part: part[0]))
