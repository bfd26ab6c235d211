"""What the command line and the console have in common about ACLs, roles and users."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.net.access_client import add_acls, revoke_user
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreationResult, CreateAclsResponse
from penstock.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

ALICE = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


class Scripted:
    """Responses by API; `sent` has the requests that change something."""

    def __init__(self, responses: Mapping[Api[Any, Any], Any]) -> None:
        self.responses = responses
        self.sent: list[str] = []

    async def send(self, api: Any, request: Any, *, changes: bool = False) -> Any:
        if changes:
            self.sent.append(api.name)
        return self.responses[api]

    def check(self, code: int, message: str | None, about: str) -> None:
        if code:
            raise RuntimeError(f"{about}: {message}")


def test_the_acl_that_was_refused_is_named() -> None:
    refused = AclCreationResult(error_code=1, error_message="no such principal")
    cluster = Scripted({CREATE_ACLS: CreateAclsResponse(results=[refused])})
    with pytest.raises(RuntimeError, match=r"User:alice.* is not created: no such principal"):
        asyncio.run(add_acls(cluster, [ALICE]))
    assert cluster.sent == ["CreateAcls"]


def test_a_revoked_user_keeps_passwords_of_unknown_mechanisms_and_loses_connections() -> None:
    """A newer cluster may know a mechanism that this client cannot name."""
    user = DescribeUserScramCredentialsResult(user="eve", credential_infos=[CredentialInfo(mechanism=99)])
    cluster = Scripted(
        {
            DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsResponse(results=[user]),
            INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsResponse(
                responses=[AlterConfigsResourceResponse()]
            ),
        }
    )
    assert len(asyncio.run(revoke_user(cluster, "eve", 1))) == 1
    assert cluster.sent == ["IncrementalAlterConfigs"]
