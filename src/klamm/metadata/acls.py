"""Access control entries as the metadata keeps them, and what finds them again. Enforcing them is the authorizer's.

The numbers are Kafka's (`core/acls`), on the wire and in our log. One that we do not know is never stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm.core.acls import AclCode, AclOperation, AclResource, PatternType, Permission
from klamm.core.slices import Sliced

ACLS_PER_SLICE: Final = 2000
"""Entries that are held against a filter before the loop may have a turn: about 2 ms."""


WILDCARD: Final = "*"
"""As a literal name: every resource of its type."""


class Acl(NamedTuple):
    """One entry. An entry is what it says: there are no two of the same."""

    resource_type: int
    resource_name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which entries are meant; ANY and None are all."""

    resource_type: int = AclResource.ANY
    resource_name: str | None = None
    pattern: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = Permission.ANY

    def problem(self) -> str | None:
        """Why nothing can be found with it."""
        wanted: tuple[tuple[type[AclCode], int], ...] = (
            (AclResource, self.resource_type),
            (PatternType, self.pattern),
            (AclOperation, self.operation),
            (Permission, self.permission),
        )
        for kind, value in wanted:
            if not kind.knows(value):
                return f"the filter has {kind.__name__} {value}, which this broker does not know"
        return None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResource.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._names(acl)
        )

    def _names(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern == PatternType.MATCH:
            if name is None or name == acl.resource_name:
                return True
            if acl.pattern == PatternType.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name == WILDCARD
        return self.pattern in (PatternType.ANY, acl.pattern) and name in (None, acl.resource_name)


def finding(acls: Iterable[Acl], wanted: AclFilter) -> Sliced[list[Acl]]:
    """The entries that the filter finds, in slices."""
    found: list[Acl] = []
    for count, acl in enumerate(acls, 1):
        if wanted.matches(acl):
            found.append(acl)
        if count % ACLS_PER_SLICE == 0:
            yield
    return found
