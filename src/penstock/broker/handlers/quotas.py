"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.base.context import Context
from penstock.broker.node.controller import Controller
from penstock.metadata.image import ClusterImage
from penstock.metadata.quotas import alter_quotas, describe_quotas
from penstock.wire.apis.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.wire.schema import Struct

__all__ = ["QuotaHandlers"]


class QuotaHandlers:
    """The admin APIs of client quotas. The active controller alters them."""

    def __init__(self, image: ClusterImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    def describe_client_quotas(
        self, context: Context, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        return describe_quotas(self._image, request)

    async def alter_client_quotas(
        self, context: Context, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        def decide() -> tuple[Sequence[Struct], AlterClientQuotasResponse]:
            return alter_quotas(self._image, request)

        return await self._controller.change(decide)
