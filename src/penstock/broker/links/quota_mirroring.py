"""Sets the quotas of a link's source here, and removes those that the link has set and the source lacks.

One broker of the cluster does this for each link. Which quotas these are is decided in `linking/limits.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.broker.links.changes import Forward, LinkChanges
from penstock.broker.links.source_cluster import SourceCluster, SourceError
from penstock.broker.node.controller import Controller
from penstock.linking.definition import LinkDefinition
from penstock.linking.limits import MirroredQuotas, Quota, due_quotas, mirrored_quotas
from penstock.metadata.image import LINK, ClusterImage
from penstock.metadata.levels import QUOTAS, refused
from penstock.metadata.quotas import alter_quotas
from penstock.model.errors import ApiError, ErrorCode
from penstock.quotas.entities import Entity
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.describe_client_quotas import EntityData

__all__ = ["QuotaMirrorChanges", "QuotaMirroring"]

log = get_logger("links")
#: quotas of one request
_AT_ONCE: Final = 200
_NOTES: Final = "quotas.made"


class QuotaMirrorChanges:
    """Changes of quotas on the active controller. Errors are ApiErrors."""

    def __init__(self, image: ClusterImage, controller: Controller, forward: Forward) -> None:
        self._image = image
        self._controller = controller
        self._forward = forward

    async def alter(self, quotas: Sequence[Quota], *, remove: bool) -> None:
        """Set quotas, or remove them."""
        request = AlterClientQuotasRequest(entries=list(_entries(quotas, remove=remove)))

        async def here() -> AlterClientQuotasResponse:
            if (off := refused(self._image.features, QUOTAS)) is not None:
                raise off
            return await self._controller.change(lambda: alter_quotas(self._image, request))

        for each in (await self._forward(ALTER_CLIENT_QUOTAS, request, here)).entries:
            if each.error_code:
                code = ErrorCode(each.error_code)
                raise ApiError(code, each.error_message or code.name)


def _entries(quotas: Iterable[Quota], *, remove: bool) -> Iterable[AlteredEntry]:
    """One entry for each entity: a request may name it once."""
    for entity, found in groupby(sorted(quotas, key=_order), lambda each: each.entity):
        yield AlteredEntry(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=each.key, value=0.0 if remove else each.value, remove=remove) for each in found],
        )


def _order(quota: Quota) -> tuple[list[tuple[str, str]], str]:
    return [(kind, "" if name is None else f"={name}") for kind, name in quota.entity], quota.key


class QuotaMirroring:
    """The quotas of one link."""

    def __init__(self, image: ClusterImage, links: LinkChanges, changes: QuotaMirrorChanges) -> None:
        self._image = image
        self._links = links
        self._changes = changes
        #: the notes that this broker has written last: the metadata may not be here yet
        self._made: frozenset[str] = frozenset()
        #: why they are not mirrored; empty if they are, or are not to be
        self.problem = ""

    def rest(self) -> None:
        """Another broker does this from now on."""
        self._made, self.problem = frozenset(), ""

    async def compare(self, definition: LinkDefinition, source: SourceCluster, *, is_active: bool) -> None:
        """Set and remove quotas. An error is kept in `problem`.

        `is_active` says whether the link mirrors any topic: quotas follow the source only then.
        """
        self.problem = ""
        if not definition.has_quotas or not is_active:
            return
        try:
            wanted = await in_slices(mirrored_quotas(definition.quotas, await source.quotas()))
            await self._compare(definition, wanted)
            self.problem = wanted.problem
        except (ApiError, SourceError) as e:
            self.problem = str(e) or repr(e)
        if self.problem:
            log.warning("link_quotas_refused", link=definition.name, error=self.problem)

    async def _compare(self, definition: LinkDefinition, wanted: MirroredQuotas) -> None:
        text = self._image.configs.get((LINK, definition.name), {}).get(_NOTES, "")
        noted = frozenset(filter(None, text.split(",")))
        here: dict[Entity, dict[str, float]] = self._image.quotas
        due = await in_slices(due_quotas(wanted, here, noted | self._made))
        # The notes come first: what is set without one would never be changed again.
        await self._note(definition, noted, due.notes_before)
        for start in range(0, len(due.remove), _AT_ONCE):
            await self._changes.alter(due.remove[start : start + _AT_ONCE], remove=True)
        for start in range(0, len(due.set), _AT_ONCE):
            await self._changes.alter(due.set[start : start + _AT_ONCE], remove=False)
        await self._note(definition, due.notes_before, due.notes_after)
        if due.set or due.remove:
            log.info("link_quotas_changed", link=definition.name, set=len(due.set), removed=len(due.remove))

    async def _note(self, definition: LinkDefinition, before: frozenset[str], notes: frozenset[str]) -> None:
        self._made = notes
        if notes != before:
            await self._links.alter_link(definition.name, {_NOTES: ",".join(sorted(notes)) or None})
