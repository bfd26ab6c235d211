"""Client quotas, as commands read and write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import misused
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

__all__ = ["DEFAULT", "alter_quotas", "entity_of", "key_of", "list_quotas", "shown_entity", "values_of"]

#: stands for the default of a type of entities
DEFAULT: Final = "<default>"
_EXACT, _DEFAULT_ONLY = 0, 1


def entity_of(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    """The entity of options; `<default>` and `default` name the default of a type."""
    named = {"user": user, "client-id": client_id, "ip": ip}
    if ip is not None and (user is not None or client_id is not None):
        misused("--ip cannot be combined with --user or --client-id")
    return {
        kind: None if name in (DEFAULT, "default") else name
        for kind, name in named.items()
        if name is not None
    }


def values_of(pairs: Sequence[str]) -> dict[str, float]:
    """`key=number` pairs; a key may have hyphens for underscores."""
    values = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        try:
            values[key_of(key)] = float(text)
        except ValueError:
            misused(f"{pair!r} is not KEY=NUMBER, for example producer_byte_rate=1048576")
    return values


def key_of(text: str) -> str:
    return text.strip().replace("-", "_")


def shown_entity(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity.items())


def list_quotas(line: DirectLine, entity: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """One row per entity and key, of the entities that have all names of `entity`."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT_ONLY if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    response = line.send(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=components))
    refuse(response.error_code, response.error_message, "quotas cannot be listed")
    rows = []
    for entry in response.entries or []:
        names = {e.entity_type: DEFAULT if e.entity_name is None else e.entity_name for e in entry.entity}
        rows += [
            {
                **{kind: names.get(kind, "") for kind in ("user", "client-id", "ip")},
                "quota": value.key,
                "limit": int(value.value) if value.value.is_integer() else value.value,
            }
            for value in entry.values
        ]
    return rows


def alter_quotas(
    line: DirectLine, entity: Mapping[str, str | None], values: Mapping[str, float | None], validate: bool
) -> None:
    """Set values, and remove those that are None."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(entries=[AlteredEntry(entity=named, ops=ops)], validate_only=validate)
    for result in line.send(ALTER_CLIENT_QUOTAS, request).entries:
        refuse(result.error_code, result.error_message, f"the quota of {shown_entity(entity)} is not changed")
