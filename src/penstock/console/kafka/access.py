"""Requests about users, ACLs and roles."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any, Final

from penstock.console.kafka.changes import BROKER, alter_configs
from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check
from penstock.security.acls import Acl, AclFilter
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
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest

__all__ = [
    "MECHANISMS",
    "add_acl",
    "authorizer_configs",
    "change_member",
    "list_acls",
    "list_roles",
    "list_users",
    "remove_acl",
    "remove_user",
    "set_password",
]

#: number and hash of each mechanism
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_ITERATIONS: Final = 8192
#: the resource type of roles, whose configs are named by their members
_ROLE: Final = 100


async def list_acls(cluster: Cluster) -> list[Acl]:
    every = AclFilter()
    request = DescribeAclsRequest(
        resource_type_filter=every.resource_type,
        resource_name_filter=None,
        pattern_type_filter=every.pattern,
        principal_filter=None,
        host_filter=None,
        operation=every.operation,
        permission_type=every.permission,
    )
    response = await cluster.send(DESCRIBE_ACLS, request)
    check(response.error_code, response.error_message, "ACLs")
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


async def add_acl(cluster: Cluster, acl: Acl) -> None:
    creation = AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    response = await cluster.send(CREATE_ACLS, CreateAclsRequest(creations=[creation]), changes=True)
    for result in response.results:
        check(result.error_code, result.error_message, "the ACL is not created")


async def remove_acl(cluster: Cluster, acl: Acl) -> None:
    exact = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    response = await cluster.send(DELETE_ACLS, DeleteAclsRequest(filters=[exact]), changes=True)
    for result in response.filter_results:
        check(result.error_code, result.error_message, "the ACL is not removed")


async def list_users(cluster: Cluster) -> list[dict[str, Any]]:
    """One row per user and SCRAM mechanism. Users of files and of tokens are not listed by brokers."""
    request = DescribeUserScramCredentialsRequest(users=None)
    response = await cluster.send(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    check(response.error_code, response.error_message, "users")
    names = {number: name for name, (number, _) in MECHANISMS.items()}
    return [
        {
            "user": result.user,
            "mechanism": names.get(info.mechanism, str(info.mechanism)),
            "iterations": info.iterations,
        }
        for result in response.results
        for info in result.credential_infos
    ]


async def set_password(cluster: Cluster, user: str, mechanism: str, password: str) -> None:
    """Store the keys of a password. The password itself does not leave this process."""
    number, algorithm = MECHANISMS[mechanism]
    salt = os.urandom(24)
    salted = await asyncio.to_thread(hashlib.pbkdf2_hmac, algorithm, password.encode(), salt, _ITERATIONS)
    change = ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=_ITERATIONS, salt=salt, salted_password=salted
    )
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[change]))


async def remove_user(cluster: Cluster, user: str, mechanism: str) -> None:
    change = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
    await _alter(cluster, AlterUserScramCredentialsRequest(deletions=[change]))


async def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    response = await cluster.send(ALTER_USER_SCRAM_CREDENTIALS, request, changes=True)
    for result in response.results:
        check(result.error_code, result.error_message, f"user {result.user}")


async def list_roles(cluster: Cluster) -> dict[str, list[str]] | None:
    """The members of each role; None for a cluster without roles, such as Apache Kafka."""
    try:
        request = ListConfigResourcesRequest(resource_types=[_ROLE])
        listed = await cluster.send(LIST_CONFIG_RESOURCES, request)
        check(listed.error_code, None, "roles")
        names = [resource.resource_name for resource in listed.config_resources]
        if not names:
            return {}
        resources = [
            DescribeConfigsResource(resource_type=_ROLE, resource_name=name, configuration_keys=None)
            for name in names
        ]
        described = await cluster.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
    except (Refused, NotReachable):
        return None
    return {result.resource_name: [c.name for c in result.configs] for result in described.results}


async def change_member(cluster: Cluster, role: str, member: str, is_member: bool) -> None:
    """Add a member to a role, or remove it. The first member creates the role."""
    await alter_configs(cluster, _ROLE, role, {member: "" if is_member else None}, validate_only=False)


async def authorizer_configs(cluster: Cluster) -> dict[str, str]:
    """The configs of the authorizer, of the first broker that describes them."""
    names = ["authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"]
    metadata = await cluster.metadata([])
    for broker in metadata.brokers:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(broker.node_id), configuration_keys=names
        )
        try:
            response = await cluster.send_to(
                broker.node_id, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])
            )
        except NotReachable:
            continue
        (result,) = response.results
        check(result.error_code, result.error_message, "configs of the authorizer")
        return {config.name: config.value or "" for config in result.configs}
    return {}
