"""Which ACLs of the source a link makes here, and which of them it removes again.

A literal ACL is mirrored if the link mirrors the topic or the group that it names. One of a prefix is
mirrored if a pattern `NAME*` of the link covers the prefix, or if the link has a prefix of its own, with
which it begins here. So the source gives rights here to what comes from it, or what such a pattern leaves to
it, and to nothing else.

Invariants:
- A mirrored Allow gives no right that a Deny at the source takes away. If such a Deny cannot be mirrored as
  it is, no ACL is made, and the mirrored Allows that it may limit are removed.
- Only what the link has made is removed. It is noted before it is made.
- What is about a topic that the link does not mirror any more, or never did, stays as it is.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Container, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from penstock.linking.definition import LinkDefinition, Names
from penstock.model.steps import Steps, slices
from penstock.security.acls import WILDCARD, Acl, PatternType, Permission, ResourceType

__all__ = ["ACLS_MAX", "AclChanges", "Mirrored", "Places", "due_acls", "mirrored_acls", "note_of"]

#: the notes of more would make the configs of a link large
ACLS_MAX: Final = 2000
_NOTE_BYTES: Final = 8
_ROLE: Final = "Role:"
_EVERYBODY: Final = "User:*"


class Mirrored(NamedTuple):
    """The ACLs of the source as they are here."""

    acls: Collection[Acl]
    #: why nothing is made; empty if all of them are
    problem: str = ""
    #: what the source denies, and the link cannot deny in the same way
    denials: Sequence[Acl] = ()

    def limits(self, acl: Acl) -> bool:
        """Whether the source may deny what an Allow here gives."""
        return acl.permission == Permission.ALLOW and any(
            denial.resource_type == acl.resource_type and _may_be_one(denial.principal, acl.principal)
            for denial in self.denials
        )


class AclChanges(NamedTuple):
    """What to create, what to remove, and the notes about all that the link has made then."""

    create: Sequence[Acl]
    remove: Sequence[Acl]
    #: before the changes, and after them
    notes_before: frozenset[str]
    notes_after: frozenset[str]


class _Place(Enum):
    #: the link mirrors it
    MIRRORED = "mirrored"
    ABSENT = "absent"
    #: it is this cluster's
    OWN = "own"


class Places(NamedTuple):
    """The topics here, as ACLs name them."""

    #: the link fetches them
    mirrored: Container[str]
    #: they match the link, which does not fetch them: promoted ones, and those that were here before
    own: Collection[str]
    all: Container[str]
    #: whether the link fetches any topic
    is_active: bool

    def may_create(self, acl: Acl) -> bool:
        """A Deny may come before its topic; an Allow could meet another topic of the name."""
        place = self._of(acl)
        return place is _Place.MIRRORED or (place is _Place.ABSENT and acl.permission == Permission.DENY)

    def may_remove(self, acl: Acl) -> bool:
        return self._of(acl) is not _Place.OWN

    def _of(self, acl: Acl) -> _Place:
        if not self.is_active:
            return _Place.OWN
        if acl.resource_type == ResourceType.GROUP:
            return _Place.MIRRORED
        if acl.pattern == PatternType.PREFIXED:
            return _Place.OWN if any(name.startswith(acl.name) for name in self.own) else _Place.MIRRORED
        if acl.name in self.mirrored:
            return _Place.MIRRORED
        return _Place.OWN if acl.name in self.all else _Place.ABSENT


def note_of(acl: Acl) -> str:
    """A short text by which an ACL is recognised."""
    text = "\0".join(str(int(each)) if isinstance(each, int) else each for each in acl)
    digest = hashlib.sha256(text.encode()).digest()[:_NOTE_BYTES]
    return urlsafe_b64encode(digest).decode().rstrip("=")


def mirrored_acls(definition: LinkDefinition, source: Iterable[Acl]) -> Steps[Mirrored]:
    """The ACLs of the source as they are here."""
    found: dict[Acl, None] = {}
    denials: list[Acl] = []
    for some in slices(source):
        for acl in some:
            here, is_denial = _mirrored(definition, acl), acl.permission == Permission.DENY
            # The roles of this cluster have other members.
            if here is not None and not acl.principal.startswith(_ROLE):
                found[here] = None
            elif is_denial and (here is not None or _may_concern(definition, acl)):
                denials.append(acl)
        yield
    problem = ""
    if denials:
        problem = f"no ACL is mirrored: the link does not have all that this one denies: {denials[0]}"
    elif len(found) > ACLS_MAX:
        problem = f"no ACL is mirrored: {len(found)} are more than a link may have: {ACLS_MAX}"
    return Mirrored(found.keys(), problem, denials)


def due_acls(
    wanted: Mirrored, here: Collection[Acl], places: Places, made: frozenset[str]
) -> Steps[AclChanges]:
    """The changes that make the ACLs of a link those that are wanted. `made` are notes of earlier ones."""
    create = [] if wanted.problem else [a for a in wanted.acls if a not in here and places.may_create(a)]
    remove: list[Acl] = []
    kept: set[str] = set()
    for some in slices(list(here) if made else ()):
        for acl in some:
            is_due = acl not in wanted.acls or wanted.limits(acl)
            if not is_due:
                kept.add(note_of(acl))
            elif (note := note_of(acl)) in made:
                # Without its Deny an Allow would give more than the source does.
                is_needed = wanted.problem and acl.permission == Permission.DENY
                if is_needed or not places.may_remove(acl):
                    kept.add(note)
                else:
                    remove.append(acl)
        yield
    # A Deny comes before, and goes after, the Allow that it limits.
    create.sort(key=_permission)
    remove.sort(key=_permission, reverse=True)
    new = {note_of(acl) for acl in create}
    # A note of an ACL that is neither here nor wanted is of no use any more.
    return AclChanges(create, remove, made | new, frozenset(new | (kept & made)))


def _permission(acl: Acl) -> int:
    return acl.permission


def _mirrored(definition: LinkDefinition, acl: Acl) -> Acl | None:
    """The ACL as it is here; None if the link does not mirror all that it names."""
    is_topic = acl.resource_type == ResourceType.TOPIC
    if not is_topic and acl.resource_type != ResourceType.GROUP:
        return None
    names, prefix = (definition.topics, definition.prefix) if is_topic else (definition.groups, "")
    if acl.pattern != PatternType.PREFIXED and acl.name != WILDCARD:
        is_denied = bool(prefix) and acl.permission == Permission.DENY and names.covers(acl.name)
        mirrors = definition.mirrors(acl.name) if is_topic else names.match(acl.name)
        return acl._replace(name=prefix + acl.name) if mirrors or is_denied else None
    stem = "" if acl.name == WILDCARD and acl.pattern != PatternType.PREFIXED else acl.name
    covers = names.covers(stem) if prefix else _is_named(names, stem)
    return acl._replace(name=prefix + stem, pattern=PatternType.PREFIXED) if covers else None


def _is_named(names: Names, stem: str) -> bool:
    """Whether a pattern covers a prefix and names the beginning: `*` leaves nothing to the source.

    Topics of the system begin with an underscore.
    """
    return names.covers(stem) and not names.covers("") and not stem.startswith("_")


def _may_be_one(denied: str, allowed: str) -> bool:
    """Whether a user of one principal may be one of the other, too."""
    return denied == allowed or _EVERYBODY in (denied, allowed) or denied.startswith(_ROLE)


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
