"""The quota of controller mutations (KIP-599)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.base.context import Context
from penstock.broker.base.mutation_quotas import MutationQuota, MutationQuotas
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.listener import Listener
from penstock.quotas.clients import ClientQuotas
from penstock.quotas.entities import Entity
from penstock.quotas.rates import DEFAULT_WINDOWS, MutationMeter
from penstock.security.principal import Principal, Session

INTERNAL = Listener("INTERNAL", "", 0)


def test_a_strict_quota_refuses_and_a_permissive_one_throttles() -> None:
    strict = MutationQuota(MutationMeter(DEFAULT_WINDOWS, 1.0), True, lambda: 0)
    strict.charge(12)
    with pytest.raises(ApiError) as refused:
        strict.charge(1)
    assert (refused.value.code, strict.throttle_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1000)
    permissive = MutationQuota(MutationMeter(DEFAULT_WINDOWS, 1.0), False, lambda: 0)
    permissive.charge(12)
    assert permissive.throttle_ms == 1000
    MutationQuota(None, True, lambda: 0).charge(10**6)


@pytest.mark.parametrize(
    ("listener", "forwarded", "name", "is_limited"),
    [
        (None, False, "node", True),
        (INTERNAL, True, "node", True),
        (INTERNAL, False, "node", False),
        (INTERNAL, False, "stranger", True),
    ],
)
def test_requests_of_nodes_are_exempt(listener: Any, forwarded: bool, name: str, is_limited: bool) -> None:
    quotas: dict[Entity, dict[str, float]] = {(("user", None),): {"controller_mutation_rate": 1.0}}
    found = MutationQuotas(
        ClientQuotas(),
        lambda: (quotas, quotas),
        lambda: 0,
        INTERNAL,
        lambda session: session.principal.name == "node",
    )
    session = Session(Principal("User", name))
    context = SimpleNamespace(
        listener=listener,
        is_forwarded=forwarded,
        session=session,
        principal=session.principal,
        client_id="c",
        version=7,
    )
    quota = found.of(cast(Context, context), 6)
    quota.charge(100)
    if is_limited:
        with pytest.raises(ApiError):
            quota.charge(1)
    else:
        quota.charge(1)
