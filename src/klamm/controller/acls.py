"""Adding and removing access control entries. What may be stored is Kafka's rule; nobody is held to it yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.controller.commands import Decision
from klamm.core.acls import CLUSTER_NAME, AclOperation, AclResource, PatternType, Permission
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.slices import Sliced
from klamm.metadata.acls import Acl, AclFilter, finding
from klamm.metadata.image import Image, acl_record
from klamm.metadata.records import MetadataRecord

MAX_ACLS_PER_REQUEST = 10_000
"""Entries that one request may add or remove; Kafka's bound as well."""


class AclFailure(NamedTuple):
    error: ErrorCode
    message: str


def create_acls(image: Image, acls: Sequence[Acl]) -> Decision[list[AclFailure | None]]:
    """Why each of them was not added; None if it was, or was there already."""
    results: list[AclFailure | None] = []
    fresh: dict[Acl, None] = {}
    for acl in acls:
        problem = _problem(acl)
        if problem is not None:
            results.append(AclFailure(ErrorCode.INVALID_REQUEST, problem))
        elif len(fresh) == MAX_ACLS_PER_REQUEST:
            message = f"a request may add {MAX_ACLS_PER_REQUEST} ACLs at most"
            results.append(AclFailure(ErrorCode.POLICY_VIOLATION, message))
        else:
            results.append(None)
            if acl not in image.acls:
                fresh[acl] = None
    return Decision([acl_record(acl) for acl in fresh], results)


def _problem(acl: Acl) -> str | None:
    """Why this cannot be an entry."""
    if not AclResource.knows(acl.resource_type) or acl.resource_type == AclResource.ANY:
        return f"{acl.resource_type} is no type of resource that an ACL can be for"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"an ACL is for a literal name or a prefix; {acl.pattern} is neither"
    if not AclOperation.knows(acl.operation) or acl.operation == AclOperation.ANY:
        return f"{acl.operation} is no operation that an ACL can be for"
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return f"an ACL allows or denies; {acl.permission} is neither"
    if not acl.resource_name:
        return "an ACL needs the name of a resource"
    if acl.resource_type == AclResource.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"the only resource of type CLUSTER is {CLUSTER_NAME}, not {acl.resource_name}"
    kind, colon, _ = acl.principal.partition(":")
    if not (kind and colon):
        return f"{acl.principal!r} is no principal; write it as User:NAME"
    return None


def deleting_acls(image: Image, filters: Sequence[AclFilter]) -> Sliced[Decision[list[list[Acl] | AclFailure]]]:
    """The entries that each filter has removed. One that several filters find is told of by all of them."""
    results: list[list[Acl] | AclFailure] = []
    removed: dict[Acl, None] = {}
    for one in filters:
        try:
            found = yield from _finding(image, one)
            if len(removed | dict.fromkeys(found)) > MAX_ACLS_PER_REQUEST:
                message = f"a request may remove {MAX_ACLS_PER_REQUEST} ACLs at most"
                raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
        except BrokerError as error:
            results.append(AclFailure(error.code, str(error)))
        else:
            removed.update(dict.fromkeys(found))
            results.append(found)
        yield  # a turn for each filter at least
    records: list[MetadataRecord] = [acl_record(acl, removed=True) for acl in removed]
    return Decision(records, results)


def _finding(image: Image, one: AclFilter) -> Sliced[list[Acl]]:
    problem = one.problem()
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
    return (yield from finding(image.acls, one))
