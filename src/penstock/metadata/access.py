"""Decisions about ACLs and the members of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.metadata.image import REVOCATION, ROLE, ClusterImage
from penstock.model.errors import ApiError, InvalidConfig, PolicyViolation
from penstock.model.steps import Steps, is_slice_over
from penstock.security.acls import Acl, AclFilter, check_acl, check_filter
from penstock.security.principal import parse_principal
from penstock.wire.schema import Struct
from penstock.wire.security_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

__all__ = ["REVOKED_AT", "check_revocation", "check_role", "create_acls", "delete_acls", "find_acls"]

#: bindings with their ids
Matches: TypeAlias = list[tuple[bytes, Acl]]
#: the most bindings that one request removes, as in Kafka
_REMOVED_MAX: Final = 10_000
#: the config of a revocation: when it was made, in milliseconds; each change closes connections
REVOKED_AT: Final = "revoked.at.ms"


def create_acls(
    image: ClusterImage, acls: Sequence[Acl], new_id: Callable[[], bytes]
) -> tuple[list[Struct], list[ApiError | None]]:
    """The records of the bindings that are new, and one result per binding. A duplicate succeeds."""
    records: list[Struct] = []
    results: list[ApiError | None] = []
    known, new = image.acls.ids, set[Acl]()
    for acl in acls:
        try:
            check_acl(acl)
        except ApiError as e:
            results.append(e)
            continue
        results.append(None)
        if acl not in known and acl not in new:
            new.add(acl)
            records.append(
                AccessControlEntryRecord(
                    id=new_id(),
                    resource_type=acl.resource_type,
                    resource_name=acl.name,
                    pattern_type=acl.pattern,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
    return records, results


def find_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> Steps[list[Matches | ApiError]]:
    """The bindings or the error of each filter, in steps."""
    found: dict[AclFilter, Matches | ApiError] = {}
    for wanted in filters:
        if wanted in found:
            continue
        try:
            check_filter(wanted)
            found[wanted] = yield from image.acls.search(wanted)
        except ApiError as e:
            found[wanted] = e
    return [found[wanted] for wanted in filters]


def delete_acls(
    image: ClusterImage, found: Sequence[Matches | ApiError]
) -> Steps[tuple[list[Struct], list[list[Acl] | ApiError]]]:
    """The records that remove bindings, and those of them that still exist, in steps.

    As in Kafka, one request removes at most 10,000 bindings. A filter that selects more removes none.
    """
    by_id = image.acls.by_id
    removed: dict[bytes, None] = {}
    results: list[list[Acl] | ApiError] = []
    for each in found:
        if isinstance(each, ApiError):
            results.append(each)
            continue
        present = [(acl_id, acl) for acl_id, acl in each if acl_id in by_id]
        new = [acl_id for acl_id, _ in present if acl_id not in removed]
        if len(removed) + len(new) > _REMOVED_MAX:
            message = f"Cannot remove more than {_REMOVED_MAX} acls in a single delete operation."
            results.append(PolicyViolation(message))
            continue
        removed.update(dict.fromkeys(new))
        results.append([acl for _, acl in present])
        yield
    records: list[Struct] = []
    for acl_id in removed:
        records.append(RemoveAccessControlEntryRecord(id=acl_id))
        if is_slice_over(len(records)):
            yield
    return records, results


def check_role(resource: tuple[int, str], members: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless the resource is a role with a name, and its members are principals."""
    kind, name = resource
    assert kind == ROLE
    if not name:
        raise InvalidConfig("A role needs a name")
    for member in members:
        if parse_principal(member).type == "Role":
            raise InvalidConfig(f"{member} is a role: members are principals such as User:alice")


def check_revocation(resource: tuple[int, str], values: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless the resource is a principal, and its config is the time of a revocation."""
    kind, name = resource
    assert kind == REVOCATION
    if parse_principal(name).type == "Role":
        raise InvalidConfig(f"{name} is a role: the connections of a principal such as User:alice are closed")
    for key, value in values.items():
        if key != REVOKED_AT or not (value.isascii() and value.isdigit()):
            raise InvalidConfig(f"A revocation has one config, {REVOKED_AT}, which is a number")
