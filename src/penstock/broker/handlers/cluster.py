"""What operators ask of the active controller: leaders, reassignments, features, brokers that are gone."""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.broker.base.features import SUPPORTED_FEATURES
from penstock.broker.node.controller import NotController
from penstock.metadata import elect_leaders as elections
from penstock.metadata import features, reassignment
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.apis.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.wire.apis.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = [
    "alter_partition_reassignments",
    "elect_leaders",
    "list_partition_reassignments",
    "unregister_broker",
    "update_features",
]


async def elect_leaders(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    broker = context.broker
    duties, image = broker.node.duties, broker.image
    try:
        reports = await duties.reports.collect(elections.partitions_to_recover(image, request))
        return await broker.controller.change(
            lambda: elections.elect_leaders(image, duties.policy, request, reports)
        )
    except ApiError as e:
        return ElectLeadersResponse(error_code=e.code)


async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    broker = context.broker
    return await broker.controller.change(
        lambda: reassignment.alter_reassignments(broker.image, broker.node.duties.policy, request)
    )


async def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    broker = context.broker
    # A change without records: decided by who is the controller, on the newest image.
    return await broker.controller.change(
        lambda: ([], reassignment.list_reassignments(broker.image, request))
    )


async def update_features(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    broker = context.broker
    response = UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
    )
    try:
        await broker.controller.change(
            lambda: (features.update_features(broker.image, request, SUPPORTED_FEATURES), None)
        )
    except ApiError as e:
        response.error_code = e.code
        response.error_message = str(e)
        for result in response.results:
            result.error_code = e.code
    return response


async def unregister_broker(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    response = await context.broker.node.service.ask(UNREGISTER_BROKER, request)
    if response.error_code == ErrorCode.NOT_CONTROLLER:
        raise NotController("another node leads the quorum")
    return response
