"""Admin APIs of the active controller: ElectLeaders, reassignments, UpdateFeatures, UnregisterBroker."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.base.context import Context
from penstock.broker.base.features import SUPPORTED_FEATURES
from penstock.broker.node.controller import Controller, NotController
from penstock.broker.node.controller_loop import ControllerLoop
from penstock.broker.node.controller_service import ControllerService
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.metadata import elect_leaders as elections
from penstock.metadata import features, reassignment
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps
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
from penstock.wire.schema import Struct

__all__ = ["ClusterHandlers"]


class ClusterHandlers:
    """The APIs that change leaders, replicas, features and broker registrations."""

    def __init__(
        self,
        image: ClusterImage,
        controller: Controller,
        controller_loop: ControllerLoop,
        service: ControllerService,
        quorum: QuorumDriver,
    ) -> None:
        self._image = image
        self._controller = controller
        self._controller_loop = controller_loop
        self._service = service
        self._quorum = quorum

    async def elect_leaders(self, context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
        controller_loop, image = self._controller_loop, self._image
        try:
            reports = await controller_loop.reports.collect(elections.partitions_to_recover(image, request))
            return await self._controller.change(
                lambda: elections.elect_leaders(image, controller_loop.policy, request, reports)
            )
        except ApiError as e:
            return ElectLeadersResponse(error_code=e.code)

    async def alter_partition_reassignments(
        self, context: Context, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        return await self._controller.change(
            lambda: reassignment.alter_reassignments(self._image, self._controller_loop.policy, request)
        )

    async def list_partition_reassignments(
        self, context: Context, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        def decide() -> Steps[tuple[Sequence[Struct], ListPartitionReassignmentsResponse]]:
            return [], (yield from reassignment.list_reassignments(self._image, request))

        # A change without records: the active controller answers it from its newest image.
        return await self._controller.change(decide)

    async def update_features(
        self, context: Context, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        try:
            features.check_number(self._image, request, SUPPORTED_FEATURES)
        except ApiError as e:
            # Without results: clients apply the error of the response to each feature. The audit has samples.
            del request.feature_updates[len(SUPPORTED_FEATURES) :]
            return UpdateFeaturesResponse(error_code=e.code, error_message=str(e))
        response = UpdateFeaturesResponse(
            results=[UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
        )
        try:
            await self._controller.change(
                lambda: (
                    features.update_features(
                        self._image, request, SUPPORTED_FEATURES, self._quorum.kraft_level
                    ),
                    None,
                )
            )
        except ApiError as e:
            response.error_code = e.code
            response.error_message = str(e)
            for result in response.results:
                result.error_code = e.code
        return response

    async def unregister_broker(
        self, context: Context, request: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        response = await self._service.handle(UNREGISTER_BROKER, request)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise NotController("another node leads the quorum")
        return response
