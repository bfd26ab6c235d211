"""Client quotas: there are none, and the tools that manage them are told so."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("entity_type", ["user", "client-id", "ip"])
def test_nobody_has_a_quota(client: RawClient, entity_type: str, version: int) -> None:
    component = ComponentData(entity_type=entity_type, match_type=2)

    response = client.ask(
        DESCRIBE_CLIENT_QUOTAS, version, DescribeClientQuotasRequest(components=[component])
    )

    assert (response.error_code, response.entries) == (ErrorCode.NONE, [])


@penstock_only
@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_refused_with_the_reason(client: RawClient, version: int) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="me")]
    entry = AlteredEntry(entity=entity, ops=[OpData(key="producer_byte_rate", value=1000.0)])

    response = client.ask(ALTER_CLIENT_QUOTAS, version, AlterClientQuotasRequest(entries=[entry]))

    (result,) = response.entries
    assert (result.error_code, result.entity) == (ErrorCode.INVALID_REQUEST, entity)
    assert "no client quotas" in (result.error_message or "")
