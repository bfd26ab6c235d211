"""Makes the ACLs of a link's source here, and removes those that the link has made and the source lacks.

One broker of the cluster does this for each link. Which ACLs these are is decided in `linking/access.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.broker.links.changes import Forward, LinkChanges
from penstock.broker.links.source_cluster import SourceCluster, SourceError
from penstock.broker.node.controller import Controller
from penstock.linking.access import Mirrored, Places, due_acls, mirrored_acls
from penstock.linking.definition import LinkDefinition
from penstock.metadata.access import create_acls, delete_acls, find_acls
from penstock.metadata.image import LINK, ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import Steps
from penstock.ports import Rng
from penstock.security.acls import Acl, AclFilter, Permission
from penstock.wire.apis.create_acls import (
    CREATE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.wire.apis.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.schema import Struct

__all__ = ["AclMirrorChanges", "AclMirroring"]

log = get_logger("links")
#: ACLs of one request
_AT_ONCE: Final = 200
_NOTES: Final = "acls.made"


class AclMirrorChanges:
    """Changes of ACLs on the active controller. Errors are ApiErrors."""

    def __init__(
        self, image: ClusterImage, controller: Controller, rng: Rng, forward: Forward, *, has_authorizer: bool
    ) -> None:
        self._image = image
        self._controller = controller
        self._rng = rng
        self._forward = forward
        self.has_authorizer = has_authorizer

    async def create(self, acls: Sequence[Acl]) -> None:
        async def here() -> CreateAclsResponse:
            results = await self._controller.change(
                lambda: create_acls(self._image, acls, lambda: self._rng.token(16))
            )
            return CreateAclsResponse(results=[_created(each) for each in results])

        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        answer = await self._forward(CREATE_ACLS, CreateAclsRequest(creations=creations), here)
        for each in answer.results:
            _check(each.error_code, each.error_message)

    async def remove(self, acls: Sequence[Acl]) -> None:
        """Remove these ACLs, and no others that their patterns match."""

        async def here() -> DeleteAclsResponse:
            def decide() -> Steps[tuple[Sequence[Struct], None]]:
                found = yield from find_acls(self._image, [AclFilter(*acl) for acl in acls])
                records, _ = yield from delete_acls(self._image, found)
                return records, None

            await self._controller.change(decide)
            return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult() for _ in acls])

        filters = [
            DeleteAclsFilter(
                resource_type_filter=acl.resource_type,
                resource_name_filter=acl.name,
                pattern_type_filter=acl.pattern,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        answer = await self._forward(DELETE_ACLS, DeleteAclsRequest(filters=filters), here)
        for each in answer.filter_results:
            _check(each.error_code, each.error_message)


class AclMirroring:
    """The ACLs of one link."""

    def __init__(self, image: ClusterImage, links: LinkChanges, changes: AclMirrorChanges) -> None:
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

    async def compare(self, definition: LinkDefinition, source: SourceCluster, places: Places) -> None:
        """Create and remove ACLs. An error is kept in `problem`."""
        self.problem = ""
        if not definition.has_acls:
            return
        try:
            if not self._changes.has_authorizer:
                raise SourceError("ACLs are not mirrored: this cluster has no authorizer")
            wanted = await in_slices(mirrored_acls(definition, await source.acls()))
            await self._compare(definition, wanted, places)
            self.problem = wanted.problem
        except (ApiError, SourceError) as e:
            self.problem = str(e) or repr(e)
        if self.problem:
            log.warning("link_acls_refused", link=definition.name, error=self.problem)

    async def _compare(self, definition: LinkDefinition, wanted: Mirrored, places: Places) -> None:
        text = self._image.configs.get((LINK, definition.name), {}).get(_NOTES, "")
        noted = frozenset(filter(None, text.split(",")))
        due = await in_slices(due_acls(wanted, self._image.acls.ids, places, noted | self._made))
        # The notes come first: what is made without one would never be removed.
        await self._note(definition, noted, due.notes_before)
        # What is revoked goes first: an ACL that cannot be made does not keep it.
        for part in _parts([acl for acl in due.remove if acl.permission == Permission.ALLOW]):
            await self._changes.remove(part)
        for part in _parts(due.create):
            await self._changes.create(part)
        for part in _parts([acl for acl in due.remove if acl.permission != Permission.ALLOW]):
            await self._changes.remove(part)
        await self._note(definition, due.notes_before, due.notes_after)
        if due.create or due.remove:
            log.info(
                "link_acls_changed", link=definition.name, created=len(due.create), removed=len(due.remove)
            )

    async def _note(self, definition: LinkDefinition, before: frozenset[str], notes: frozenset[str]) -> None:
        self._made = notes
        if notes != before:
            await self._links.alter_link(definition.name, {_NOTES: ",".join(sorted(notes)) or None})


def _parts(acls: Sequence[Acl]) -> list[list[Acl]]:
    rest = iter(acls)
    return [list(part) for part in iter(lambda: list(islice(rest, _AT_ONCE)), [])]


def _created(error: ApiError | None) -> AclCreationResult:
    return (
        AclCreationResult()
        if error is None
        else AclCreationResult(error_code=error.code, error_message=str(error))
    )


def _check(code: int, message: str | None) -> None:
    if code:
        raise ApiError(ErrorCode(code), message or ErrorCode(code).name)
