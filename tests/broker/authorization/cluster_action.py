"""A cluster with an authorizer, and a principal that may act as a node."""

from __future__ import annotations

from penstock.metadata.access import create_acls, delete_acls
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.security.principal import Principal
from tests.broker.nodes import Cluster, eventually

#: The nodes of these tests are anonymous. Every other principal has what its ACLs allow.
CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"}
BOB = Principal("User", "bob")


async def allow_cluster_action(nodes: Cluster, principal: Principal = BOB) -> None:
    action = Operation.CLUSTER_ACTION
    await add_acls(nodes, (str(principal), action, ResourceType.CLUSTER, "kafka-cluster", Permission.ALLOW))


async def add_acls(nodes: Cluster, *wanted: tuple[str, Operation, ResourceType, str, Permission]) -> None:
    """Add bindings for (principal, operation, resource type, name, permission), and wait for all brokers."""
    acls = [
        Acl(kind, name, PatternType.LITERAL, principal, "*", operation, permission)
        for principal, operation, kind, name, permission in wanted
    ]
    controller = await nodes.settled()
    count = len(controller.stages.cluster.image.acls) + len(acls)
    ids = iter(range(len(controller.stages.cluster.image.acls) + 1, count + 1))
    await controller.stages.cluster.node.controller.change(
        lambda: create_acls(controller.stages.cluster.image, acls, lambda: next(ids).to_bytes(16, "big"))
    )
    await eventually(
        lambda: all(len(broker.stages.cluster.image.acls) == count for broker in nodes.brokers.values())
    )


async def revoke(nodes: Cluster) -> None:
    controller = await nodes.settled()
    await controller.stages.cluster.node.controller.change(
        lambda: delete_acls(
            controller.stages.cluster.image, [list(controller.stages.cluster.image.acls.by_id.items())]
        )
    )
    await eventually(
        lambda: all(not len(broker.stages.cluster.image.acls) for broker in nodes.brokers.values())
    )
