"""Who may do what: access control lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from klamm.client.admin.asking import Part, ask_controller, patiently
from klamm.client.admin.results import Results, failure
from klamm.client.errors import ClientError
from klamm.core.acls import AclOperation, AclResource, PatternType, Permission


@dataclass(frozen=True, slots=True)
class Acl:
    """`Acl("User:anna", AclOperation.READ, AclResource.TOPIC, "orders")`. The name of the cluster is `kafka-cluster`;
    `*` as a principal, a host or a (literal) name is everything."""

    principal: str
    operation: AclOperation
    resource: AclResource
    name: str
    pattern: PatternType = PatternType.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = "*"

    def __str__(self) -> str:
        how = "" if self.pattern is PatternType.LITERAL else f"{self.pattern.name.lower()} "
        what = f"{self.resource.name.lower()} {how}{self.name}"
        return f"{self.permission.name.lower()} {self.principal} to {self.operation.name.lower()} {what}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """What fits all that is given; without anything, every ACL."""

    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    permission: Permission = Permission.ANY
    host: str | None = None


class Acls(Part):
    async def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Those that fit the filter; all without one."""
        from klamm.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

        request = DescribeAclsRequest(**_filter(wanted or AclFilter()))

        async def ask() -> list[Acl]:
            answer: DescribeAclsResponse = await self._cluster.request(request)
            if (error := failure(answer.error_code, "ACLs", answer.error_message)) is not None:
                raise error
            return [
                Acl(
                    acl.principal,
                    AclOperation(acl.operation),
                    AclResource(on.resource_type),
                    on.resource_name,
                    PatternType(on.pattern_type),
                    Permission(acl.permission_type),
                    acl.host,
                )
                for on in answer.resources
                for acl in on.acls
            ]

        return await patiently(self._cluster, ask)

    async def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        from klamm.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest

        wanted = list(dict.fromkeys(acls))
        if not wanted:
            return Results({})
        creations = [
            AclCreation(
                resource_type=acl.resource,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in wanted
        ]
        answer = await ask_controller(self._cluster, CreateAclsRequest(creations=creations), _codes)
        told = {  # answers have the order of the questions, and no names
            acl: failure(one.error_code, acl, one.error_message)
            for acl, one in zip(wanted, answer.results, strict=False)
        }
        return Results.of(wanted, told)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Results[AclFilter, Results[Acl, None]]:
        """Delete what fits these filters; for each, what that was."""
        from klamm.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest

        wanted = list(dict.fromkeys(filters))
        if not wanted:
            return Results({})
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(one)) for one in wanted])
        answer = await ask_controller(
            self._cluster, request, lambda answer: (one.error_code for one in answer.filter_results)
        )
        told: dict[AclFilter, Results[Acl, None] | ClientError] = {
            one: failure(result.error_code, "ACLs", result.error_message) or _deleted(result)
            for one, result in zip(wanted, answer.filter_results, strict=False)
        }
        return Results.of(wanted, told)


def _codes(answer: Any) -> list[int]:
    return [one.error_code for one in answer.results]


def _filter(wanted: AclFilter) -> dict[str, Any]:
    """The fields that questions and deletions have in common."""
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _deleted(result: Any) -> Results[Acl, None]:
    told = {
        (
            acl := Acl(
                one.principal,
                AclOperation(one.operation),
                AclResource(one.resource_type),
                one.resource_name,
                PatternType(one.pattern_type),
                Permission(one.permission_type),
                one.host,
            )
        ): failure(one.error_code, acl, one.error_message)
        for one in result.matching_acls
    }
    return Results.of(told, told)
