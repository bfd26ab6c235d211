"""Which quotas of users at the source a link sets here, and which of them it removes again.

The link names the users. Quotas of other users, of client ids and addresses alone, and defaults are those of
the cluster that has them.

Invariant: Only what the link has set, and what is as it has set it, is changed or removed. It is noted before
it is set.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.linking.definition import Names
from penstock.model.errors import ApiError
from penstock.model.steps import Steps, slices
from penstock.quotas.entities import USER, Entity, Quotas, check_entity, check_value

__all__ = [
    "QUOTAS_MAX",
    "MirroredQuotas",
    "Quota",
    "QuotaChanges",
    "due_quotas",
    "mirrored_quotas",
    "note_of",
]

#: the notes of more would make the configs of a link large
QUOTAS_MAX: Final = 2000
_NOTE_BYTES: Final = 8


class Quota(NamedTuple):
    """One limit of an entity."""

    entity: Entity
    key: str
    value: float


class MirroredQuotas(NamedTuple):
    """The quotas of the source that a link mirrors."""

    quotas: Collection[Quota]
    #: why nothing is set; empty if all of them are
    problem: str = ""


class QuotaChanges(NamedTuple):
    """What to set, what to remove, and the notes about all that the link has set then."""

    set: Sequence[Quota]
    remove: Sequence[Quota]
    #: before the changes, and after them
    notes_before: frozenset[str]
    notes_after: frozenset[str]


def note_of(quota: Quota) -> str:
    """A short text by which a quota is recognised."""
    named = "\0".join(f"{kind}\0{'' if name is None else '=' + name}" for kind, name in quota.entity)
    digest = hashlib.sha256(f"{named}\0{quota.key}\0{float(quota.value)!r}".encode()).digest()
    return urlsafe_b64encode(digest[:_NOTE_BYTES]).decode().rstrip("=")


def mirrored_quotas(users: Names, source: Iterable[Quota]) -> Steps[MirroredQuotas]:
    """The quotas of the users that a link names. Those that this cluster does not know are left out."""
    found: dict[tuple[Entity, str], Quota] = {}
    for some in slices(source):
        for quota in some:
            if (mirrored := _mirrored(users, quota)) is not None:
                found[mirrored.entity, mirrored.key] = mirrored
        yield
    if len(found) > QUOTAS_MAX:
        return MirroredQuotas(
            (), f"no quota is mirrored: {len(found)} are more than a link may have: {QUOTAS_MAX}"
        )
    return MirroredQuotas(list(found.values()))


def _mirrored(users: Names, quota: Quota) -> Quota | None:
    user = dict(quota.entity).get(USER)
    if user is None or not users.match(user):
        return None
    try:
        entity = check_entity(list(quota.entity))
        check_value(entity, quota.key, quota.value)
    except ApiError:
        return None
    return quota._replace(entity=entity)


def due_quotas(wanted: MirroredQuotas, here: Quotas, made: frozenset[str]) -> Steps[QuotaChanges]:
    """The changes that make the quotas of a link those that are wanted. `made` are notes of earlier ones."""
    if wanted.problem:
        return QuotaChanges((), (), made, made)
    due: list[Quota] = []
    remove: list[Quota] = []
    kept: set[str] = set()
    by_key = {(each.entity, each.key): each for each in wanted.quotas}
    for some in slices(by_key.values()):
        for quota in some:
            own = _value(here, quota)
            if own is None or (own != quota.value and note_of(quota._replace(value=own)) in made):
                due.append(quota)
        yield
    for entities in slices(list(here.items()) if made else ()):
        for entity, values in entities:
            for key, value in list(values.items()):
                note = note_of(quota := Quota(entity, key, value))
                if note not in made:
                    continue
                if (entity, key) not in by_key:
                    remove.append(quota)
                else:
                    kept.add(note)
        yield
    new = {note_of(quota) for quota in due}
    changed = {note_of(each._replace(value=own)) for each in due if (own := _value(here, each)) is not None}
    return QuotaChanges(due, remove, made | new, frozenset(new | (kept - changed)))


def _value(here: Mapping[Entity, Mapping[str, float]], quota: Quota) -> float | None:
    return here.get(quota.entity, {}).get(quota.key)
