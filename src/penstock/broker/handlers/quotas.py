"""Client quotas, which this broker does not support: DescribeClientQuotas lists none, alterations fail."""

from __future__ import annotations

from typing import Final

from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

__all__ = ["alter_client_quotas", "describe_client_quotas"]

_NO_QUOTAS: Final = (
    "This broker has no client quotas, so none can be set; requests are never throttled by one"
)


def describe_client_quotas(
    context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(entries=[])


def alter_client_quotas(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Reject every quota: it would have no effect."""
    return AlterClientQuotasResponse(
        entries=[
            AlterationResult(
                error_code=ErrorCode.INVALID_REQUEST, error_message=_NO_QUOTAS, entity=entry.entity
            )
            for entry in request.entries
        ]
    )
