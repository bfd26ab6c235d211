"""Decisions about client quotas, and the filters that list them."""

from __future__ import annotations

from typing import Final

from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps, is_slice_over
from penstock.quotas.entities import ENTITY_TYPES, IP, Entity, check_entity, check_value
from penstock.wire.apis.alter_client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
)
from penstock.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import ClientQuotaRecord, QuotaEntity

__all__ = ["alter_quotas", "describe_quotas"]

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
#: a filter that accepts every name of its type
_ANY_NAME: Final = object()


def alter_quotas(
    image: ClusterImage, request: AlterClientQuotasRequest
) -> tuple[list[Struct], AlterClientQuotasResponse]:
    """The records of the alterations that are valid, and one result per entity.

    Like Kafka: an entity that comes twice is an error, and its first alteration takes effect.
    """
    records: list[Struct] = []
    results: dict[tuple[tuple[str, str | None], ...], AlterationResult] = {}
    for number, entry in enumerate(request.entries):
        # One part more than there are types is always an error.
        named = [(e.entity_type, e.entity_name) for e in entry.entity[: len(ENTITY_TYPES) + 1]]
        key = tuple(sorted(named, key=lambda pair: (pair[0], pair[1] or "")))
        if len(entry.entity) > len(ENTITY_TYPES):
            key = ((str(number), None), *key)
        result = AlterationResult(entity=entry.entity)
        try:
            if key in results:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_text(named)}")
            records += _alter(image, check_entity(named), entry)
        except ApiError as e:
            result.error_code, result.error_message = e.code, str(e)
        results[key] = result
    if request.validate_only:
        records = []
    return records, AlterClientQuotasResponse(entries=list(results.values()))


def _alter(image: ClusterImage, entity: Entity, entry: AlteredEntry) -> list[Struct]:
    """The records of one entity. A value that does not change needs none."""
    current = image.quotas.get(entity, {})
    records: list[Struct] = []
    seen: set[str] = set()
    for op in entry.ops:
        if op.key in seen:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate quota key {op.key} not updating quota for this entity {_text(entity)}",
            )
        seen.add(op.key)
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=_named(entity), key=op.key, remove=True))
            continue
        check_value(entity, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=_named(entity), key=op.key, value=op.value))
    return records


def _named(entity: Entity) -> list[QuotaEntity]:
    return [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]


def _text(entity: Entity | list[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def describe_quotas(
    image: ClusterImage, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """The quotas of the entities that match all components of the request.

    There may be many entities, and they may change between two slices.
    """
    try:
        wanted = _filter(request)
    except ApiError as e:
        return DescribeClientQuotasResponse(error_code=e.code, error_message=str(e), entries=None)
    entries = []
    for number, (entity, values) in enumerate(list(image.quotas.items()), 1):
        if _matches(dict(entity), wanted, request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
        if is_slice_over(number):
            yield
    return DescribeClientQuotasResponse(entries=entries)


def _filter(request: DescribeClientQuotasRequest) -> dict[str, object]:
    """The name that each type needs: a text, None for the default, or `_ANY_NAME`."""
    wanted: dict[str, object] = {}
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type == _EXACT:
            if match is None:
                message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            wanted[kind] = match
        elif component.match_type in (_DEFAULT, _SPECIFIED):
            if match is not None:
                name = "DEFAULT" if component.match_type == _DEFAULT else "SPECIFIED"
                message = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            wanted[kind] = None if component.match_type == _DEFAULT else _ANY_NAME
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if IP in wanted and len(wanted) > 1:
        message = (
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return wanted


def _matches(entity: dict[str, str | None], wanted: dict[str, object], strict: bool) -> bool:
    """Whether an entity has all wanted types and names, and with `strict` no other type."""
    if strict and len(entity) != len(wanted):
        return False
    return all(kind in entity and name in (entity[kind], _ANY_NAME) for kind, name in wanted.items())
