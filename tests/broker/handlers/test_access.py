"""The admin APIs of ACLs and SCRAM credentials, on a broker without an authorizer."""

from __future__ import annotations

from typing import Any

from penstock.broker.handlers import access
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.broker.raw import RawClient


def test_acls_need_an_authorizer(client: RawClient) -> None:
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:a",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    created = client.call(CREATE_ACLS, 3, CreateAclsRequest(creations=[creation]))
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED]
    everything: dict[str, Any] = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    described = client.call(DESCRIBE_ACLS, 3, DescribeAclsRequest(**everything))
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert access._DISABLED.__traceback__ is None, "a broker would keep each request that it refuses"
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**everything)])
    deleted = client.call(DELETE_ACLS, 3, request)
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


def test_scram_credentials_are_kept_until_they_are_deleted(client: RawClient) -> None:
    change = ScramCredentialUpsertion(
        name="scram-user", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )

    def alter(request: AlterUserScramCredentialsRequest) -> list[int]:
        response = client.call(ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        return [result.error_code for result in response.results]

    def describe() -> tuple[int, list[tuple[int, int]]]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name="scram-user")])
        (found,) = client.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request).results
        return found.error_code, [(info.mechanism, info.iterations) for info in found.credential_infos]

    assert alter(AlterUserScramCredentialsRequest(upsertions=[change])) == [ErrorCode.NONE]
    assert describe() == (ErrorCode.NONE, [(1, 4096)])
    deletion = ScramCredentialDeletion(name="scram-user", mechanism=1)
    assert alter(AlterUserScramCredentialsRequest(deletions=[deletion])) == [ErrorCode.NONE]
    assert describe() == (ErrorCode.RESOURCE_NOT_FOUND, [])
