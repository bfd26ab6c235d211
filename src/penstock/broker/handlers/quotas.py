"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.node.controller import Controller
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import QUOTAS, refused
from penstock.metadata.quotas import alter_quotas, describe_quotas
from penstock.wire.apis.alter_client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.schema import Struct

__all__ = ["QuotaHandlers"]


class QuotaHandlers:
    """The admin APIs of client quotas. The active controller alters them."""

    def __init__(self, image: ClusterImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    def describe_client_quotas(self, context: Context, request: DescribeClientQuotasRequest) -> Any:
        return context.in_turns(describe_quotas(self._image, request))

    async def alter_client_quotas(
        self, context: Context, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        if (off := refused(self._image.features, QUOTAS)) is not None:
            return AlterClientQuotasResponse(
                entries=[
                    AlterationResult(entity=each.entity, error_code=off.code, error_message=str(off))
                    for each in request.entries
                ]
            )

        def decide() -> tuple[Sequence[Struct], AlterClientQuotasResponse]:
            return alter_quotas(self._image, request)

        return await self._controller.change(decide)
