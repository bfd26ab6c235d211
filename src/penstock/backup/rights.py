"""The ACLs and client quotas of a cluster: read for a cut, and made again in a restored cluster.

Passwords of SCRAM users are not among them: no request of Kafka's protocol returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.archive.cuts import CutAcl, CutEntity, CutQuota
from penstock.backup.source import Cluster, SourceFailed
from penstock.model.errors import ErrorCode, error_name
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    EntityData,
)

__all__ = ["create_acls", "create_quotas", "read_acls", "read_quotas"]

#: in filters of ACLs: any type, pattern, operation and permission
_ANY: Final = 1
#: answers of a cluster that has none to give, or not to this user
_NOT_GIVEN: Final = (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
#: ACLs that are created by one request
_AT_ONCE: Final = 500


async def read_acls(cluster: Cluster) -> tuple[CutAcl, ...] | None:
    """All ACLs; None if the cluster does not give them."""
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await cluster.send_any(DESCRIBE_ACLS, request)
    if answer.error_code in _NOT_GIVEN:
        return None
    _check("the ACLs", answer.error_code, answer.error_message)
    return tuple(
        CutAcl(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            pattern_type=resource.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    )


async def read_quotas(cluster: Cluster) -> tuple[CutQuota, ...] | None:
    """All client quotas; None if the cluster does not give them."""
    answer = await cluster.send_any(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
    if answer.error_code in _NOT_GIVEN:
        return None
    _check("the client quotas", answer.error_code, answer.error_message)
    return tuple(
        CutQuota(
            entity=tuple(CutEntity(type=each.entity_type, name=each.entity_name) for each in entry.entity),
            values={each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    )


def _check(what: str, code: int, message: str | None) -> None:
    if code:
        raise SourceFailed(f"{what} cannot be read: {message or error_name(code)}")


async def create_acls(cluster: Cluster, acls: Sequence[CutAcl]) -> list[str]:
    """Create ACLs in a restored cluster; returns the reasons for those that it refuses."""
    refused = []
    for start in range(0, len(acls), _AT_ONCE):
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls[start : start + _AT_ONCE]
        ]
        answer = await cluster.send_any(CREATE_ACLS, CreateAclsRequest(creations=creations))
        for creation, result in zip(creations, answer.results, strict=True):
            if result.error_code:
                reason = result.error_message or error_name(result.error_code)
                refused.append(f"the ACL of {creation.principal} for {creation.resource_name}: {reason}")
    return refused


async def create_quotas(cluster: Cluster, quotas: Sequence[CutQuota]) -> list[str]:
    """Set client quotas in a restored cluster; returns the reasons for those that it refuses."""
    entries = [
        AlteredEntry(
            entity=[EntityData(entity_type=each.type, entity_name=each.name) for each in quota.entity],
            ops=[OpData(key=key, value=value) for key, value in quota.values.items()],
        )
        for quota in quotas
    ]
    if not entries:
        return []
    refused = []
    answer = await cluster.send_any(ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=entries))
    for result in answer.entries:
        if result.error_code:
            name = ", ".join(f"{each.entity_type} {each.entity_name}" for each in result.entity)
            reason = result.error_message or error_name(result.error_code)
            refused.append(f"the quota of {name}: {reason}")
    return refused
