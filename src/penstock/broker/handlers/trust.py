"""Refuses changes of trust by clients that are not super users (ADR 58, ADR 93 for links).

`model.config.trust_keys` has the keys. The active controller checks each change when it decides about it, for
the principal in the Envelope, so the broker that received the request makes no difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.model.config.links import link_trust_changes
from penstock.model.config.listeners import Endpoint
from penstock.model.config.trust_keys import internal_trust_changes, trust_changes
from penstock.model.errors import ApiError, ErrorCode

__all__ = ["TrustGuard"]

_SHOWN_MAX: Final = 5


class TrustGuard:
    """Decides which configs of brokers a request may change."""

    def __init__(self, access: Access | None, internal: Endpoint | None) -> None:
        """`access` is None without an authorizer, `internal` without a listener for other nodes."""
        self._access = access
        self._internal = internal

    def denied(self, context: Context, names: Sequence[str]) -> list[str]:
        """The names that the request may not change."""
        internal = self._internal
        if self._access is not None:
            if self._access.is_super_user(context):
                return []
            return trust_changes(names, None if internal is None else internal.name)
        if internal is None or internal.protocol == "PLAINTEXT":
            return []
        # There are no super users. A client that is no node must not be able to become one.
        return internal_trust_changes(names, internal.name)

    def check(self, context: Context, names: Sequence[str]) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED if the request may not change one of the configs."""
        self._refuse(context, self.denied(context, names))

    def check_link(
        self,
        context: Context,
        current: Mapping[str, str],
        values: Mapping[str, str],
        named: Collection[str],
    ) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED if a change of a link would give secrets of brokers away."""
        if self._access is not None and not self._access.is_super_user(context):
            reason = (
                "only a super user may change it, unless the request has all secrets of the link, and no file"
            )
            self._refuse(context, link_trust_changes(current, values, named), reason)

    def _refuse(
        self,
        context: Context,
        denied: Sequence[str],
        reason: str = "only a super user may change it at runtime",
    ) -> None:
        if not denied:
            return
        if self._access is not None:
            self._access.denied_trust(context)
        else:
            reason = "without an authorizer it can only be set in the config files of the brokers"
        shown = ", ".join(denied[:_SHOWN_MAX])
        more = f" and {len(denied) - _SHOWN_MAX} more" if len(denied) > _SHOWN_MAX else ""
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{shown}{more} decides about trust: {reason}")
