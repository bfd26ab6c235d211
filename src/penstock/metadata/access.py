"""Decisions about ACLs and the members of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.metadata.image import ROLE, ClusterImage
from penstock.model.errors import ApiError, InvalidConfig
from penstock.security.acls import Acl, AclFilter, check_acl, check_filter
from penstock.security.principal import parse_principal
from penstock.wire.schema import Struct
from penstock.wire.security_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

__all__ = ["check_role", "create_acls", "delete_acls"]


def create_acls(
    image: ClusterImage, acls: Sequence[Acl], new_id: Callable[[], bytes]
) -> tuple[list[Struct], list[ApiError | None]]:
    """The records of the bindings that are new, and one result per binding. A duplicate succeeds."""
    records: list[Struct] = []
    results: list[ApiError | None] = []
    known = set(image.acls.ids)
    for acl in acls:
        try:
            check_acl(acl)
        except ApiError as e:
            results.append(e)
            continue
        results.append(None)
        if acl not in known:
            known.add(acl)
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


def delete_acls(
    image: ClusterImage, filters: Sequence[AclFilter]
) -> tuple[list[Struct], list[list[Acl] | ApiError]]:
    """The records that remove the bindings of all filters, and the bindings or the error of each filter."""
    removed: dict[bytes, None] = {}
    results: list[list[Acl] | ApiError] = []
    for wanted in filters:
        try:
            check_filter(wanted)
        except ApiError as e:
            results.append(e)
            continue
        matching = image.acls.matching(wanted)
        removed.update(dict.fromkeys(acl_id for acl_id, _ in matching))
        results.append([acl for _, acl in matching])
    return [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed], results


def check_role(resource: tuple[int, str], members: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless the resource is a role with a name, and its members are principals."""
    kind, name = resource
    assert kind == ROLE
    if not name:
        raise InvalidConfig("A role needs a name")
    for member in members:
        if parse_principal(member).type == "Role":
            raise InvalidConfig(f"{member} is a role: members are principals such as User:alice")
