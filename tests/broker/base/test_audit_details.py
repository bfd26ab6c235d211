"""The resources that audit events of administrative requests name."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.base.audit_details import RESOURCES_MAX, TEXT_MAX, details_of
from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.wire.apis.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.apis.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.apis.describe_client_quotas import EntityData
from penstock.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.wire.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.wire.apis.update_features import FeatureUpdate, UpdateFeaturesRequest, UpdateFeaturesResponse

#: of the HMAC of a token, which is a password
HMAC_HASH = "f52fbd32b2b3b86f"
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "principal": "User:eve",
    "host": "*",
    "operation": 4,
    "permission_type": 3,
}
ACL_TEXT = "ALLOW User:eve host *: WRITE on TOPIC:LITERAL:orders"


def resource(kind: str, name: str, *changes: str, error: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind, "name": name}
    if changes:
        found["changes"] = list(changes)
    return found if error is None else {**found, "error": error}


CASES: list[tuple[Any, Any, bool, list[dict[str, Any]]]] = [
    (
        DeleteTopicsRequest(),
        DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name="orders"),
                DeletableTopicResult(
                    name=None, topic_id=bytes(16), error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                ),
            ]
        ),
        True,
        [
            resource("TOPIC", "orders"),
            resource("TOPIC", "AAAAAAAAAAAAAAAAAAAAAA", error="TOPIC_AUTHORIZATION_FAILED"),
        ],
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=100,
                    resource_name="ops",
                    configs=[AlterableConfig(name="User:eve", value="x")],
                ),
                AlterConfigsResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[AlterableConfig(name="ssl.key.password", value="hunter2")],
                ),
            ]
        ),
        IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(resource_type=100, resource_name="ops"),
                AlterConfigsResourceResponse(resource_type=4, resource_name="1"),
                # The authorizer has removed it from the request.
                AlterConfigsResourceResponse(resource_type=2, resource_name="t", error_code=29),
            ]
        ),
        True,
        [
            resource("ROLE", "ops", "User:eve"),
            resource("BROKER", "1", "ssl.key.password"),
            resource("TOPIC", "t", error="TOPIC_AUTHORIZATION_FAILED"),
        ],
    ),
    (
        AlterPartitionReassignmentsRequest(),
        AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name="orders",
                    partitions=[
                        ReassignablePartitionResponse(partition_index=0),
                        ReassignablePartitionResponse(partition_index=1, error_code=85),
                        ReassignablePartitionResponse(partition_index=2),
                    ],
                )
            ]
        ),
        True,
        [
            resource("TOPIC", "orders", "0", "2"),
            resource("TOPIC", "orders", "1", error="NO_REASSIGNMENT_IN_PROGRESS"),
        ],
    ),
    (
        ElectLeadersRequest(),
        ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic="orders", partition_result=[PartitionResult(partition_id=0, error_code=84)]
                )
            ]
        ),
        False,
        [resource("TOPIC", "orders", "0", error="ELECTION_NOT_NEEDED")],
    ),
    (
        CreateAclsRequest(creations=[AclCreation(**ACL), AclCreation(**ACL)]),
        CreateAclsResponse(results=[AclCreationResult(), AclCreationResult(error_code=42)]),
        True,
        [resource("ACL", ACL_TEXT), resource("ACL", ACL_TEXT, error="INVALID_REQUEST")],
    ),
    (
        DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter(resource_name_filter="t")]),
        DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(**ACL)]),
                DeleteAclsFilterResult(error_code=42),
            ]
        ),
        True,
        [resource("ACL", ACL_TEXT), resource("ACL", "t", error="INVALID_REQUEST")],
    ),
    (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="eve", mechanism=1)],
            upsertions=[ScramCredentialUpsertion(name="bob", mechanism=2, salted_password=b"hunter2")],
        ),
        AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user="eve", error_code=91),
                AlterUserScramCredentialsResult(user="bob"),
            ]
        ),
        True,
        [
            resource("USER", "eve", "delete SCRAM-SHA-256", error="RESOURCE_NOT_FOUND"),
            resource("USER", "bob", "set SCRAM-SHA-512"),
        ],
    ),
    (
        CreateDelegationTokenRequest(
            renewers=[CreatableRenewer(principal_type="User", principal_name="bob")]
        ),
        CreateDelegationTokenResponse(
            principal_type="User", principal_name="eve", token_id="id", hmac=b"hunter2"
        ),
        True,
        [resource("DELEGATION_TOKEN", "id", "owner User:eve", f"hash {HMAC_HASH}", "renewer User:bob")],
    ),
    (
        RenewDelegationTokenRequest(hmac=b"hunter2"),
        RenewDelegationTokenResponse(error_code=66),
        False,
        [resource("DELEGATION_TOKEN", f"hash {HMAC_HASH}", error="DELEGATION_TOKEN_EXPIRED")],
    ),
    (
        AlterClientQuotasRequest(
            entries=[
                AlteredEntry(
                    entity=[
                        EntityData(entity_type="user", entity_name="eve"),
                        EntityData(entity_type="client-id", entity_name=None),
                    ],
                    ops=[OpData(key="producer_byte_rate", value=1.0)],
                )
            ]
        ),
        AlterClientQuotasResponse(entries=[AlterationResult(error_code=DENIED)]),
        False,
        [resource("QUOTA", "user=eve,client-id=<default>", "producer_byte_rate", error=DENIED.name)],
    ),
    (
        UpdateFeaturesRequest(feature_updates=[FeatureUpdate(feature="metadata.version")]),
        UpdateFeaturesResponse(error_code=DENIED),
        False,
        [resource("FEATURE", "metadata.version", error=DENIED.name)],
    ),
    (
        UnregisterBrokerRequest(broker_id=7),
        UnregisterBrokerResponse(),
        True,
        [resource("BROKER", "7")],
    ),
    (
        DeleteGroupsRequest(),
        DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id="g"),
                DeletableGroupResult(group_id="h", error_code=ErrorCode.NON_EMPTY_GROUP),
            ]
        ),
        True,
        [resource("GROUP", "g"), resource("GROUP", "h", error="NON_EMPTY_GROUP")],
    ),
    (
        OffsetDeleteRequest(group_id="g"),
        OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name="orders",
                    partitions=[
                        OffsetDeleteResponsePartition(error_code=86),
                        OffsetDeleteResponsePartition(partition_index=1),
                    ],
                ),
                OffsetDeleteResponseTopic(
                    name="bills", partitions=[OffsetDeleteResponsePartition(error_code=86)]
                ),
            ]
        ),
        True,
        [
            resource("GROUP", "g", "orders"),
            resource("GROUP", "g", "bills", error="GROUP_SUBSCRIBED_TO_TOPIC"),
        ],
    ),
    # A filter that matches nothing.
    (DeleteAclsRequest(), DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()]), True, []),
]


@pytest.mark.parametrize(("request_", "response", "succeeded", "resources"), CASES)
def test_resources_are_named(
    request_: Any, response: Any, succeeded: bool, resources: list[dict[str, Any]]
) -> None:
    details = details_of(request_, response)
    assert details.resources == resources
    assert details.succeeded is succeeded
    assert details.left_out == 0
    assert "hunter2" not in str(details)


def test_the_error_of_a_whole_request() -> None:
    details = details_of(UnregisterBrokerRequest(broker_id=7), UnregisterBrokerResponse(error_code=DENIED))
    assert (details.succeeded, details.error) == (False, DENIED.name)


def test_resources_are_bounded_in_number_and_length() -> None:
    def created(count: int, name: str) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=name) for _ in range(count)])

    many = details_of(CreateTopicsRequest(), created(1000, "t"))
    assert (len(many.resources), many.left_out) == (RESOURCES_MAX, 1000 - RESOURCES_MAX)
    long = details_of(CreateTopicsRequest(), created(1000, "t" * 32_767))
    assert len(str(long.resources)) < 6_000
    assert {len(each["name"]) for each in long.resources} == {TEXT_MAX}
    assert len(long.resources) + long.left_out == 1000


def test_a_failure_after_many_successes_does_not_make_the_request_fail() -> None:
    results = [CreatableTopicResult(name="t", error_code=36) for _ in range(100)]
    assert not details_of(CreateTopicsRequest(), CreateTopicsResponse(topics=results)).succeeded
    results.append(CreatableTopicResult(name="last"))
    assert details_of(CreateTopicsRequest(), CreateTopicsResponse(topics=results)).succeeded


def test_the_changes_of_a_resource_are_bounded() -> None:
    configs = [AlterableConfig(name="x" * 1000) for _ in range(500)]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)]
    )
    answer = AlterConfigsResourceResponse(resource_type=2, resource_name="t")
    (found,) = details_of(request, IncrementalAlterConfigsResponse(responses=[answer])).resources
    assert len(found["changes"]) == RESOURCES_MAX + 1
    assert found["changes"][-1] == "480 more"
    assert max(map(len, found["changes"])) == TEXT_MAX
