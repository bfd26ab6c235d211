"""The arguments of commands about ACLs, roles and users, and the decision of the cluster's authorizer."""

from __future__ import annotations

from typing import Final

from penstock.cli.direct import DirectLine
from penstock.cli.failure import misused
from penstock.model.errors import InvalidConfig
from penstock.net.access_client import list_acls, list_roles
from penstock.security.acls import CLUSTER_NAME, Operation, PatternType, ResourceType
from penstock.security.authorizer import Decision, authorizer_of
from penstock.security.principal import Session, parse_principal
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

__all__ = ["decide", "operation_of", "principal_of", "resource_of"]

_BROKER: Final = 4
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
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


def decide(
    line: DirectLine, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> Decision:
    """The decision of the cluster's authorizer, by the ACLs, roles and configs that it has now."""
    acls, roles = line.run(list_acls), line.run(list_roles)
    authorizer = authorizer_of(acls, roles, _authorizer_configs(line))
    return authorizer.decide(Session(parse_principal(principal), host=host), operation, kind, name)


def _authorizer_configs(line: DirectLine) -> dict[str, str]:
    node = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest()).controller_id
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node), configuration_keys=names
    )
    (result,) = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])).results
    return {config.name: config.value or "" for config in result.configs}
