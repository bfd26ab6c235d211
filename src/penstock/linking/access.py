"""Which ACLs of the source a link makes here, and which of them it removes again.

An ACL is mirrored if the link mirrors all that its pattern can name: a topic, a group, or a prefix that a
pattern `NAME*` of the link covers. So the source gives rights here to nothing but what comes from it.

Invariants:
- A mirrored Allow gives no right that a Deny at the source takes away. If such a Deny cannot be mirrored as
  it is, no ACL is.
- Only what the link has made is removed. It is noted before it is made.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.linking.definition import LinkDefinition, Names
from penstock.model.errors import PolicyViolation
from penstock.security.acls import WILDCARD, Acl, PatternType, Permission, ResourceType

__all__ = ["ACLS_MAX", "AclChanges", "due_acls", "mirrored_acls", "note_of"]

#: the notes of more would make the configs of a link large
ACLS_MAX: Final = 2000
_NOTE_BYTES: Final = 8


class AclChanges(NamedTuple):
    """What to create, what to remove, and the notes about all that the link has made then."""

    create: Sequence[Acl]
    remove: Sequence[Acl]
    #: before the changes, and after them
    notes_before: frozenset[str]
    notes_after: frozenset[str]


def note_of(acl: Acl) -> str:
    """A short text by which an ACL is recognised."""
    text = "\0".join(str(int(each)) if isinstance(each, int) else each for each in acl)
    digest = hashlib.sha256(text.encode()).digest()[:_NOTE_BYTES]
    return urlsafe_b64encode(digest).decode().rstrip("=")


def mirrored_acls(definition: LinkDefinition, source: Iterable[Acl]) -> list[Acl]:
    """The ACLs of the source as they are here. PolicyViolation if they cannot be mirrored."""
    found: dict[Acl, None] = {}
    for acl in source:
        here = _mirrored(definition, acl)
        if here is not None:
            found[here] = None
        elif acl.permission == Permission.DENY and _may_concern(definition, acl):
            raise PolicyViolation(
                f"no ACL is mirrored: the link does not have all that this one denies: {acl}"
            )
    if len(found) > ACLS_MAX:
        raise PolicyViolation(f"no ACL is mirrored: {len(found)} are more than a link may have: {ACLS_MAX}")
    return list(found)


def due_acls(
    wanted: Sequence[Acl], here: Iterable[Acl], is_here: Container[Acl], made: frozenset[str]
) -> AclChanges:
    """The changes that make the ACLs of a link those that are wanted. `made` are notes of earlier ones."""
    # A Deny comes before, and goes after, the Allow that it limits.
    create = sorted((acl for acl in wanted if acl not in is_here), key=_permission)
    kept = set(wanted)
    remove = [acl for acl in here if acl not in kept and note_of(acl) in made] if made else []
    remove.sort(key=_permission, reverse=True)
    new = {note_of(acl) for acl in create}
    # A note of an ACL that is neither here nor wanted is of no use any more.
    after = new | {note for acl in wanted if (note := note_of(acl)) in made}
    return AclChanges(create, remove, made | new, frozenset(after))


def _permission(acl: Acl) -> int:
    return acl.permission


def _mirrored(definition: LinkDefinition, acl: Acl) -> Acl | None:
    """The ACL as it is here; None if the link does not mirror all that it names."""
    if acl.resource_type == ResourceType.TOPIC:
        covers, prefix = _covering(acl, definition.topics, definition.mirrors), definition.prefix
    elif acl.resource_type == ResourceType.GROUP:
        covers, prefix = _covering(acl, definition.groups, definition.groups.match), ""
    else:
        return None
    if not covers:
        return None
    if prefix and acl.name == WILDCARD and acl.pattern == PatternType.LITERAL:
        return acl._replace(name=prefix, pattern=PatternType.PREFIXED)
    return acl._replace(name=prefix + acl.name) if prefix else acl


def _covering(acl: Acl, names: Names, mirrors: Callable[[str], bool]) -> bool:
    if acl.pattern == PatternType.PREFIXED:
        return names.covers(acl.name)
    return names.covers("") if acl.name == WILDCARD else mirrors(acl.name)


def _may_concern(definition: LinkDefinition, acl: Acl) -> bool:
    """Whether an ACL that is not mirrored may be about something that is."""
    if acl.resource_type == ResourceType.TOPIC:
        names = definition.topics
    elif acl.resource_type == ResourceType.GROUP:
        names = definition.groups
    else:
        return False
    if acl.pattern == PatternType.PREFIXED:
        return names.may_begin_with(acl.name)
    return acl.name == WILDCARD and names.may_begin_with("")
