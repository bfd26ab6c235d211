"""The quota of controller mutations (KIP-599): partitions that are created or deleted."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.base.context import Context
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.listener import Listener
from penstock.quotas.clients import ClientQuotas
from penstock.quotas.entities import Quotas
from penstock.quotas.rates import MutationMeter
from penstock.security.principal import Session

__all__ = ["MutationQuota", "MutationQuotas"]


class MutationQuota:
    """The quota of controller mutations at one request (KIP-599)."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "throttle_ms")

    def __init__(self, meter: MutationMeter | None, is_strict: bool, now_ms: Callable[[], int]) -> None:
        self._meter = meter
        self._is_strict = is_strict
        self._now_ms = now_ms
        #: the throttle time of the response
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge partitions that are created or deleted.

        A strict quota that is used up raises THROTTLING_QUOTA_EXCEEDED and charges nothing.
        """
        meter = self._meter
        if meter is None:
            return
        if not self._is_strict:
            self.throttle_ms = max(self.throttle_ms, meter.charge(partitions, self._now_ms()))
            return
        throttle_ms = meter.charge_strictly(partitions, self._now_ms())
        if throttle_ms:
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class MutationQuotas:
    """Finds the quota of controller mutations of a request, on the active controller."""

    def __init__(
        self,
        client_quotas: ClientQuotas,
        quotas: Callable[[], tuple[Quotas, object]],
        now_ms: Callable[[], int],
        internal: Listener | None,
        is_node: Callable[[Session], bool],
    ) -> None:
        """`quotas` returns the quotas of the metadata and their generation.

        `is_node` returns true for sessions that may act as a node of the cluster.
        """
        self._client_quotas = client_quotas
        self._quotas = quotas
        self._now_ms = now_ms
        self._internal = internal
        self._is_node = is_node

    def of(self, context: Context, strict_from: int) -> MutationQuota:
        """The quota of a request; strict from a version on. Requests of the nodes have none."""
        meter = None
        self._client_quotas.update(*self._quotas())
        if self._client_quotas.has_any and not self._is_exempt(context):
            limits = self._client_quotas.limits(
                context.principal.name, context.client_id or "", self._now_ms()
            )
            meter = None if limits is None else limits.mutations
        return MutationQuota(meter, context.version >= strict_from, self._now_ms)

    def _is_exempt(self, context: Context) -> bool:
        if context.listener is not self._internal or context.is_forwarded:
            return False
        # A certificate of the nodes' authority makes no node.
        return self._is_node(context.session)
