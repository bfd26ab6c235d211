"""Abilities that need a level: what they write, brokers of the version before cannot read.

A new version works at the level of the version before until an operator raises it (`penstock cluster
upgrade`). Below its level an ability is off, so that brokers of both versions can run together, and the
version before can be restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.model.errors import ApiError, ErrorCode

__all__ = [
    "ACCESS",
    "QUOTAS",
    "RELEASE",
    "TIERED_TOPICS",
    "TOKENS",
    "TRANSACTIONS",
    "TWO_PHASE_COMMIT",
    "Ability",
    "check_topic",
    "refused",
]

#: the feature whose levels stand for releases: 1 is 0.1, 2 is 0.2
RELEASE: Final = "penstock.version"
#: the config that a topic with tiered storage has
_TIERED: Final = "remote.storage.enable"
#: Brokers that created clusters at this level knew the records of ACLs, users, quotas and transactions.
_TRANSACTIONS_FROM: Final = "transaction.version"


class Ability(NamedTuple):
    """Something that is off until one of the features has its level."""

    name: str
    #: the level of each feature; one of them is enough
    levels: Mapping[str, int]

    def is_on(self, levels: Mapping[str, int]) -> bool:
        """Whether it is on in a cluster that works at these levels."""
        return any(levels.get(name, 0) >= level for name, level in self.levels.items())


_SINCE_TRANSACTIONS: Final = {RELEASE: 2, _TRANSACTIONS_FROM: 1}
ACCESS: Final = Ability("ACLs and SCRAM users", _SINCE_TRANSACTIONS)
QUOTAS: Final = Ability("client quotas", _SINCE_TRANSACTIONS)
#: Brokers of 0.1 do not know their records.
TOKENS: Final = Ability("delegation tokens", {RELEASE: 2})
TRANSACTIONS: Final = Ability("transactions", _SINCE_TRANSACTIONS)
#: Their disks are freed: for an earlier broker their logs would lack segments.
TIERED_TOPICS: Final = Ability("topics with tiered storage", {RELEASE: 2})
#: An earlier coordinator ignores the epoch of the client that has kept a transaction.
TWO_PHASE_COMMIT: Final = Ability("two-phase transactions", {RELEASE: 2})


def refused(levels: Mapping[str, int], ability: Ability) -> ApiError | None:
    """The error of a request that needs an ability at these levels; None if it is on."""
    if ability.is_on(levels):
        return None
    return ApiError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{ability.name} need level {ability.levels[RELEASE]} of {RELEASE}, and this cluster works at "
        f"{levels.get(RELEASE, 0)}: once all brokers have been upgraded, raise it with `penstock cluster "
        f"upgrade`",
    )


def check_topic(
    levels: Mapping[str, int], values: Mapping[str, str], current: Mapping[str, str] | None = None
) -> None:
    """Raise UNSUPPORTED_VERSION if a topic gets configs of an ability that is off; those it has may stay."""
    had = (current or {}).get(_TIERED, "").lower() == "true"
    if values.get(_TIERED, "").lower() == "true" and not had:
        off = refused(levels, TIERED_TOPICS)
        if off is not None:
            raise off
