"""A broker with an authorizer. Its administrator connects from another loopback address."""

from __future__ import annotations

import socket
from typing import Final

from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from tests.broker.raw import RawClient

#: With the ACLs of `Admin`, every resource has one: nothing is open to other addresses.
CONFIG: Final = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
_ADMIN_HOST: Final = "127.0.0.2"
_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


class Admin(RawClient):
    """A client that may do everything, and that gives rights to clients at 127.0.0.1."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.socket.close()
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 25, source_address=(_ADMIN_HOST, 0))
        for kind in _TYPES:
            name = "kafka-cluster" if kind == ResourceType.CLUSTER else "*"
            self.allow(Operation.ALL, kind, name, host=_ADMIN_HOST)

    def allow(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        host: str = "127.0.0.1",
        deny: bool = False,
        pattern: PatternType = PatternType.LITERAL,
        principal: str = "User:ANONYMOUS",
    ) -> None:
        creation = AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=Permission.DENY if deny else Permission.ALLOW,
        )
        response = self.call(CREATE_ACLS, 3, CreateAclsRequest(creations=[creation]))
        assert [result.error_code for result in response.results] == [ErrorCode.NONE]

    def revoke(self, name: str | None = None) -> int:
        """Remove the ACLs of 127.0.0.1 on resources of this name, or all; their number."""
        wanted = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=name,
            pattern_type_filter=PatternType.ANY,
            host_filter="127.0.0.1",
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        (result,) = self.call(DELETE_ACLS, 3, DeleteAclsRequest(filters=[wanted])).filter_results
        return len(result.matching_acls)
