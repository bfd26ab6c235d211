"""Reads and changes ACLs, roles and users, for any client that can send a request.

The port of the client sends requests, and turns the error codes of responses into errors of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from penstock.security.acls import Acl, AclFilter
from penstock.security.mechanisms import scram_name, scrams
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest

__all__ = [
    "AccessPort",
    "add_acls",
    "alter_members",
    "list_acls",
    "list_roles",
    "list_users",
    "remove_acls",
    "remove_user",
    "revoke_user",
    "set_password",
]

#: the resource type of roles, whose configs are named by their members
_ROLE: Final = 100
#: the resource type of revoked principals, and the name of their config
_REVOCATION: Final = 101
_REVOKED_AT: Final = "revoked.at.ms"
_SET, _DELETE = 0, 1
_SALT_BYTES: Final = 24


class AccessPort(Protocol):
    """The cluster, as a client reaches it."""

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        """The response of any broker; a request that changes something is not repeated."""
        ...

    def check(self, code: int, message: str | None, about: str) -> None:
        """Raise the client's error `about` something unless `code` is NONE."""
        ...


async def list_acls(cluster: AccessPort, wanted: AclFilter | None = None) -> list[Acl]:
    """The ACLs that match a filter; all without one."""
    wanted = wanted or AclFilter()
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = await cluster.send(DESCRIBE_ACLS, request)
    cluster.check(response.error_code, response.error_message, "ACLs cannot be listed")
    return [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def add_acls(cluster: AccessPort, acls: Sequence[Acl]) -> None:
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    response = await cluster.send(CREATE_ACLS, CreateAclsRequest(creations=creations), changes=True)
    for acl, result in zip(acls, response.results, strict=True):
        cluster.check(result.error_code, result.error_message, f"{acl} is not created")


async def remove_acls(cluster: AccessPort, filters: Iterable[AclFilter]) -> list[Acl]:
    """Remove the ACLs that match any of the filters; the removed ones."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.name,
                pattern_type_filter=wanted.pattern,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            for wanted in filters
        ]
    )
    removed: dict[Acl, None] = {}
    for result in (await cluster.send(DELETE_ACLS, request, changes=True)).filter_results:
        cluster.check(result.error_code, result.error_message, "ACLs are not removed")
        for acl in result.matching_acls:
            found = (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal)
            removed[Acl(*found, acl.host, acl.operation, acl.permission_type)] = None
    return list(removed)


async def list_roles(cluster: AccessPort) -> dict[str, list[str]]:
    """The members of each role."""
    listed = await cluster.send(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(resource_types=[_ROLE]))
    cluster.check(listed.error_code, None, "roles cannot be listed")
    resources = [
        DescribeConfigsResource(
            resource_type=_ROLE, resource_name=resource.resource_name, configuration_keys=None
        )
        for resource in listed.config_resources
    ]
    if not resources:
        return {}
    found = {}
    described = await cluster.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
    for result in described.results:
        about = f"the role {result.resource_name} is not described"
        cluster.check(result.error_code, result.error_message, about)
        found[result.resource_name] = [config.name for config in result.configs]
    return found


async def alter_members(cluster: AccessPort, role: str, members: Iterable[str], is_member: bool) -> None:
    """Add members to a role, or remove them. The first member creates the role."""
    operation, value = (_SET, "") if is_member else (_DELETE, None)
    changes = [AlterableConfig(name=name, config_operation=operation, value=value) for name in members]
    await _alter_configs(cluster, _ROLE, role, changes, f"the role {role} is not changed")


async def list_users(cluster: AccessPort) -> list[dict[str, Any]]:
    """One row per user and SCRAM mechanism. Users of files and of tokens are not listed by brokers."""
    request = DescribeUserScramCredentialsRequest(users=None)
    response = await cluster.send(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    cluster.check(response.error_code, response.error_message, "users cannot be listed")
    return [
        {"user": result.user, "mechanism": scram_name(info.mechanism), "iterations": info.iterations}
        for result in response.results
        for info in result.credential_infos
    ]


async def set_password(
    cluster: AccessPort, user: str, mechanism: str, password: str, iterations: int
) -> None:
    """Store the keys of a password. The password itself does not leave this process."""
    scram, salt = scrams()[mechanism], os.urandom(_SALT_BYTES)
    salted = await asyncio.to_thread(hashlib.pbkdf2_hmac, scram.hash, password.encode(), salt, iterations)
    change = ScramCredentialUpsertion(
        name=user, mechanism=scram.number, iterations=iterations, salt=salt, salted_password=salted
    )
    await _alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=[change]))


async def remove_user(cluster: AccessPort, user: str, mechanisms: Iterable[str]) -> None:
    """Remove the passwords of a user for some SCRAM mechanisms."""
    for mechanism in mechanisms:
        change = ScramCredentialDeletion(name=user, mechanism=scrams()[mechanism].number)
        await _alter_users(cluster, AlterUserScramCredentialsRequest(deletions=[change]))


async def revoke_user(cluster: AccessPort, user: str, now_ms: int) -> list[str]:
    """Remove all passwords of a user, and close its connections at all brokers; their mechanisms."""
    known = [row["mechanism"] for row in await list_users(cluster) if row["user"] == user]
    await remove_user(cluster, user, [mechanism for mechanism in known if mechanism in scrams()])
    principal = f"User:{user}"
    change = AlterableConfig(name=_REVOKED_AT, config_operation=_SET, value=str(now_ms))
    about = f"the connections of {principal} are not closed"
    await _alter_configs(cluster, _REVOCATION, principal, [change], about)
    return known


async def _alter_users(cluster: AccessPort, request: AlterUserScramCredentialsRequest) -> None:
    for result in (await cluster.send(ALTER_USER_SCRAM_CREDENTIALS, request, changes=True)).results:
        cluster.check(result.error_code, result.error_message, f"the user {result.user} is not changed")


async def _alter_configs(
    cluster: AccessPort, kind: int, name: str, changes: list[AlterableConfig], about: str
) -> None:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = (await cluster.send(INCREMENTAL_ALTER_CONFIGS, request, changes=True)).responses
    cluster.check(result.error_code, result.error_message, about)
