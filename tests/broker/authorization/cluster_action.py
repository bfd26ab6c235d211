"""A cluster with an authorizer, and a principal that may act as a node."""

from __future__ import annotations

from penstock.metadata.access import create_acls, delete_acls
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from penstock.security.principal import Principal
from tests.broker.nodes import Cluster, eventually

#: The nodes of these tests are anonymous. Every other principal has what its ACLs allow.
CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"}
BOB = Principal("User", "bob")


async def allow_cluster_action(nodes: Cluster, principal: Principal = BOB) -> None:
    acl = Acl(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        str(principal),
        "*",
        Operation.CLUSTER_ACTION,
        Permission.ALLOW,
    )
    controller = await nodes.settled()
    await controller.controller.change(lambda: create_acls(controller.image, [acl], lambda: bytes(15) + b"1"))
    await eventually(lambda: all(len(broker.image.acls) == 1 for broker in nodes.brokers.values()))


async def revoke(nodes: Cluster) -> None:
    controller = await nodes.settled()
    await controller.controller.change(lambda: delete_acls(controller.image, [AclFilter()]))
    await eventually(lambda: all(not len(broker.image.acls) for broker in nodes.brokers.values()))
