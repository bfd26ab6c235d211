"""ACLs, roles and SCRAM credentials, as commands read and write them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import misused
from penstock.model.errors import InvalidConfig
from penstock.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclStore,
    Operation,
    PatternType,
    ResourceType,
)
from penstock.security.authorizer import Authorizer, Decision
from penstock.security.principal import Session, parse_principal
from penstock.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
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
    "MECHANISMS",
    "add_acls",
    "alter_members",
    "decide",
    "list_acls",
    "operation_of",
    "principal_of",
    "remove_acls",
    "remove_user",
    "resource_of",
    "roles",
    "set_password",
    "users",
]

E = TypeVar("E", bound=IntEnum)
#: the resource type of roles, whose configs are named by their members
_ROLE: Final = 100
_BROKER: Final = 4
_SET, _DELETE = 0, 1
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def resource_of(text: str) -> tuple[ResourceType, str, PatternType]:
    """`topic:NAME`, `group:NAME`, `transactional-id:NAME` or `cluster`. `NAME*` is a prefix."""
    kind, _, name = text.partition(":")
    found = _RESOURCES.get(kind.lower())
    if found is ResourceType.CLUSTER and not name:
        return found, CLUSTER_NAME, PatternType.LITERAL
    if found is None or not name:
        misused(f"{text!r} is not a resource: write topic:NAME, group:NAME, transactional-id:NAME or cluster")
    if name != "*" and name.endswith("*"):
        return found, name[:-1], PatternType.PREFIXED
    return found, name, PatternType.LITERAL


def operation_of(text: str) -> Operation:
    """An operation in any spelling: `DescribeConfigs`, `describe-configs`, `DESCRIBE_CONFIGS`."""
    wanted = text.replace("-", "").replace("_", "").upper()
    known = {operation.name.replace("_", ""): operation for operation in Operation if operation > 1}
    if wanted not in known:
        names = ", ".join(operation.name.lower() for operation in known.values())
        misused(f"{text!r} is not an operation: one of {names}")
    return known[wanted]


def principal_of(text: str) -> str:
    try:
        return str(parse_principal(text))
    except InvalidConfig as e:
        misused(str(e))


def list_acls(line: DirectLine, wanted: AclFilter) -> list[Acl]:
    response = line.send(
        DESCRIBE_ACLS,
        DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        ),
    )
    refuse(response.error_code, response.error_message, "ACLs cannot be listed")
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


def add_acls(line: DirectLine, acls: Sequence[Acl]) -> None:
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
    response = line.send(CREATE_ACLS, CreateAclsRequest(creations=creations))
    for acl, result in zip(acls, response.results, strict=True):
        refuse(result.error_code, result.error_message, f"{acl} is not created")


def remove_acls(line: DirectLine, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove the bindings of all filters; the bindings."""
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
    for result in line.send(DELETE_ACLS, request).filter_results:
        refuse(result.error_code, result.error_message, "ACLs are not removed")
        for acl in result.matching_acls:
            found = (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal)
            removed[Acl(*found, acl.host, acl.operation, acl.permission_type)] = None
    return list(removed)


def roles(line: DirectLine) -> dict[str, list[str]]:
    """The members of each role."""
    listed = line.send(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(resource_types=[_ROLE]))
    refuse(listed.error_code, None, "roles cannot be listed")
    names = [resource.resource_name for resource in listed.config_resources]
    if not names:
        return {}
    resources = [
        DescribeConfigsResource(resource_type=_ROLE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    described = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
    found = {}
    for result in described.results:
        refuse(result.error_code, result.error_message, f"the role {result.resource_name} is not described")
        found[result.resource_name] = [config.name for config in result.configs]
    return found


def alter_members(line: DirectLine, role: str, members: Sequence[str], is_member: bool) -> None:
    operation = _SET if is_member else _DELETE
    changes = [AlterableConfig(name=name, config_operation=operation, value="") for name in members]
    resource = AlterConfigsResource(resource_type=_ROLE, resource_name=role, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = line.send(INCREMENTAL_ALTER_CONFIGS, request).responses
    refuse(result.error_code, result.error_message, f"the role {role} is not changed")


def decide(
    line: DirectLine, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> Decision:
    """The decision of the cluster's authorizer, by the ACLs, roles and configs that it has now."""
    store = AclStore()
    for n, acl in enumerate(list_acls(line, AclFilter())):
        store.add(n.to_bytes(16, "big"), acl)
    for role, members in roles(line).items():
        for member in members:
            store.set_member(role, member, True)
    configs = _authorizer_configs(line)
    super_users = [user.strip() for user in configs.get("super.users", "").split(";") if user.strip()]
    open_without_acl = configs.get("allow.everyone.if.no.acl.found") == "true"
    authorizer = Authorizer(lambda: store, super_users, open_without_acl)
    return authorizer.decide(Session(parse_principal(principal), host=host), operation, kind, name)


def _authorizer_configs(line: DirectLine) -> dict[str, str]:
    node = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).controller_id
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node), configuration_keys=names
    )
    (result,) = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    return {config.name: config.value or "" for config in result.configs}


def users(line: DirectLine) -> list[dict[str, Any]]:
    """One row per user and mechanism."""
    response = line.send(DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=None))
    refuse(response.error_code, response.error_message, "users cannot be listed")
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


def set_password(
    line: DirectLine, user: str, mechanism: str, password: str, iterations: int, salt: bytes
) -> None:
    """Store the keys of a password. The password itself does not leave this process."""
    number, algorithm = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    change = ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )
    _alter_users(line, AlterUserScramCredentialsRequest(upsertions=[change]))


def remove_user(line: DirectLine, user: str, mechanisms: Sequence[str]) -> None:
    for mechanism in mechanisms:
        change = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
        _alter_users(line, AlterUserScramCredentialsRequest(deletions=[change]))


def _alter_users(line: DirectLine, request: AlterUserScramCredentialsRequest) -> None:
    for result in line.send(ALTER_USER_SCRAM_CREDENTIALS, request).results:
        refuse(result.error_code, result.error_message, f"the user {result.user} is not changed")
