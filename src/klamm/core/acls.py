"""Kafka's numbers for access control, on the wire and in our metadata log; operations are also bits of the fields that
tell a client what it may do.

Broker and client share them. ANY is for filters, and is asked for, never stored. UNKNOWN stands for whatever the other
side knows and we do not: a number that is not here becomes it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

E = TypeVar("E", bound="AclCode")

CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER, by the name that ACLs give it."""


class AclCode(IntEnum):
    @classmethod
    def _missing_(cls: type[E], value: object) -> E:
        return cls["UNKNOWN"]

    @classmethod
    def knows(cls, code: int) -> bool:
        """Whether this is a number with a meaning."""
        return code != 0 and code in cls._value2member_map_


class AclResource(AclCode):
    """What something is allowed on. These are not the numbers of resources with options."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclCode):
    """How a name is meant. MATCH, for filters, finds every entry that has to do with a resource of that very name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(AclCode):
    """What a principal wants to do."""

    UNKNOWN = 0
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


class Permission(AclCode):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
