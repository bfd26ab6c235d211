"""Checks of the APIs about the cluster, its nodes and its access rights."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain
from typing import Any, Final

from penstock.broker.authorization.forms import REASONS, Environment, refusal, refusing
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.security.acls import Operation
from penstock.wire.api import Api
from penstock.wire.apis.alter_client_quotas import AlterationResult, AlterClientQuotasResponse
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from penstock.wire.apis.create_acls import AclCreationResult, CreateAclsResponse
from penstock.wire.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from penstock.wire.apis.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData, names_replica
from penstock.wire.apis.get_replica_log_info import (
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

__all__ = [
    "check_internal_fetch",
    "refuse_acl_deletions",
    "refuse_acls",
    "refuse_credentials",
    "refuse_elections",
    "refuse_log_dirs",
    "refuse_log_info",
    "refuse_quotas",
    "refuse_reassignments",
]

_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
#: partitions between two yields
_STEP: Final = 64


def refuse_elections(context: Context, request: Any, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=REASONS[code])
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def refuse_reassignments(
    context: Context, request: Any, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=REASONS[code],
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=p.partition_index, error_code=code, error_message=REASONS[code]
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refuse_log_dirs(context: Context, request: Any, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def refuse_acls(context: Context, request: Any, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=REASONS[code]) for _ in request.creations]
    )


def refuse_acl_deletions(context: Context, request: Any, code: ErrorCode) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=REASONS[code]) for _ in request.filters
        ]
    )


def refuse_credentials(
    context: Context, request: Any, code: ErrorCode
) -> Generator[None, None, AlterUserScramCredentialsResponse]:
    """One result for each user; a request may name any number."""
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for number, change in enumerate(chain(request.deletions, request.upsertions), 1):
        if change.name not in results:
            results[change.name] = AlterUserScramCredentialsResult(
                user=change.name, error_code=code, error_message=REASONS[code]
            )
        if not number % _STEP:
            yield
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def refuse_quotas(context: Context, request: Any, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterationResult(error_code=code, error_message=REASONS[code], entity=entry.entity)
            for entry in request.entries
        ]
    )


def refuse_log_info(context: Context, request: Any, code: ErrorCode) -> GetReplicaLogInfoResponse:
    return GetReplicaLogInfoResponse(
        topic_partition_log_info_list=[
            TopicPartitionLogInfo(
                topic_id=topic.topic_id,
                partition_log_info=[
                    PartitionLogInfo(partition=index, error_code=code) for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )


def _internal_fetch(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """A Fetch that names a replica, and one of the metadata log, needs ClusterAction.

    Any other Fetch is a consumer's: the handler finds its partitions through `Access.finder`.
    """
    is_metadata = any(
        topic.topic_id == METADATA_TOPIC_ID or topic.topic == METADATA_TOPIC for topic in request.topics
    )
    if not (is_metadata or names_replica(request)) or environment.access.allows_on_cluster(
        context, Operation.CLUSTER_ACTION
    ):
        return None
    if is_metadata:
        return refusal(api, _NO_CLUSTER)
    return _refused_fetch(request)


def _refused_fetch(request: Any) -> Generator[None, None, FetchResponse]:
    """The response to a fetch that names a replica; it may name any number of partitions."""
    response = FetchResponse()
    for topic in request.topics:
        refused = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        for partition in topic.partitions:
            refused.partitions.append(
                PartitionData(
                    partition_index=partition.partition,
                    error_code=_NO_TOPIC,
                    high_watermark=-1,
                    records=b"",
                )
            )
            if not len(refused.partitions) % _STEP:
                yield
        response.responses.append(refused)
        yield
    return response


check_internal_fetch = refusing(_internal_fetch)
