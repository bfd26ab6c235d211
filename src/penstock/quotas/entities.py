"""Entities of quotas, the keys that each may have, and the precedence among them.

An entity names a user, a client id, both, or an address. A name of None is the default of its type. Kafka's
order of precedence for a client is `LEVELS`: the first level that has a value for a key decides. Each key is
resolved alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ApiError, ErrorCode

__all__ = [
    "CLIENT_ID",
    "CLIENT_KEYS",
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "ENTITY_TYPES",
    "IP",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "USER",
    "Entity",
    "Found",
    "Quotas",
    "check_entity",
    "check_value",
    "find_quota",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: the keys of users and client ids
CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
#: the largest value of the keys that are whole numbers, and the name of their type in errors
_WHOLE: Final = {
    PRODUCER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONSUMER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONNECTION_CREATION_RATE: (2**31 - 1, "an INT"),
}
_FRACTION: Final = 1e-6

#: types and names, in the order of types; None is the default of a type
Entity: TypeAlias = tuple[tuple[str, str | None], ...]
#: the values of each entity by key
Quotas: TypeAlias = Mapping[Entity, Mapping[str, float]]


class Found(NamedTuple):
    """The quota of a client: its limit, and the user and client id that share it ("" for any)."""

    limit: float
    user: str
    client_id: str


def find_quota(quotas: Quotas, key: str, user: str, client_id: str) -> Found | None:
    """The quota that applies to a client, by Kafka's precedence; None if no level has one.

    A quota of a user alone is shared by all client ids of that user. A quota of a client id alone is shared
    by all users. A default is a limit for each user or client id, not for all of them together.
    """
    for user_name, client_name in _levels(user, client_id):
        entity: list[tuple[str, str | None]] = []
        if client_name != "":
            entity.append((CLIENT_ID, client_name))
        if user_name != "":
            entity.append((USER, user_name))
        limit = quotas.get(tuple(entity), {}).get(key)
        if limit is not None:
            return Found(limit, user if user_name != "" else "", client_id if client_name != "" else "")
    return None


def _levels(user: str, client_id: str) -> list[tuple[str | None, str | None]]:
    """Names of users and client ids, first the most specific; "" stands for a level without that type."""
    clients: tuple[str | None, ...] = (client_id, None) if client_id else ()
    users: tuple[str | None, ...] = (user, None) if user else ()
    levels: list[tuple[str | None, str | None]] = []
    for user_name in users:
        levels += [(user_name, client_name) for client_name in clients]
        levels.append((user_name, ""))
    levels += [("", client_name) for client_name in clients]
    return levels


def check_entity(entity: list[tuple[str, str | None]]) -> Entity:
    """An entity in the order of types; INVALID_REQUEST if it is malformed."""
    seen: dict[str, str | None] = {}
    for kind, name in entity:
        if kind in seen:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        seen[kind] = name
    if not seen:
        raise _invalid("Invalid empty client quota entity")
    if IP in seen and len(seen) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    address = seen.get(IP)
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP address. Host names are not resolved.")
    return tuple(sorted(seen.items(), key=lambda pair: pair[0]))


def check_value(entity: Entity, key: str, value: float) -> None:
    """Raise INVALID_REQUEST unless an entity may have this value."""
    known = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_KEYS
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most, kind = _WHOLE.get(key, (None, ""))
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if abs(value % 1.0) > _FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _is_address(text: str) -> bool:
    from ipaddress import ip_address  # for administrators only

    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
