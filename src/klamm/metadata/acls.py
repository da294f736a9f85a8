"""Access control entries as the metadata keeps them, and what finds them again. Enforcing them is the authorizer's.

The numbers are Kafka's, on the wire and in our log. 0 stands for whatever the sender knew and we do not; it is never
stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from klamm.core.slices import Sliced

ACLS_PER_SLICE: Final = 2000
"""Entries that are held against a filter before the loop may have a turn: about 2 ms."""


class AclResource(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a name is meant. ANY and MATCH are for filters: MATCH finds every entry that has to do with a resource of
    that very name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


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
    pattern: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = Permission.ANY

    def problem(self) -> str | None:
        """Why nothing can be found with it."""
        for kind, value in (
            (AclResource, self.resource_type),
            (Pattern, self.pattern),
            (AclOperation, self.operation),
            (Permission, self.permission),
        ):
            if value not in kind._value2member_map_:
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
        if self.pattern == Pattern.MATCH:
            if name is None or name == acl.resource_name:
                return True
            if acl.pattern == Pattern.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name == WILDCARD
        return self.pattern in (Pattern.ANY, acl.pattern) and name in (None, acl.resource_name)


def finding(acls: Iterable[Acl], wanted: AclFilter) -> Sliced[list[Acl]]:
    """The entries that the filter finds, in slices."""
    found: list[Acl] = []
    for count, acl in enumerate(acls, 1):
        if wanted.matches(acl):
            found.append(acl)
        if count % ACLS_PER_SLICE == 0:
            yield
    return found
