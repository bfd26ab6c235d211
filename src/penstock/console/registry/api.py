"""The REST API of a schema registry: subjects, versions, compatibility, drafts, deletion.

Names of subjects may have any character, so each is quoted as a whole.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.console.views.schemas import Checked, Draft, Level, SchemaVersion, SubjectVersion
from penstock.model.errors import PenstockError
from penstock.registry.http import RegistryHttp, RegistryRefused

__all__ = ["NotFound", "RegistryApi"]

#: codes of the API: of a subject, a version, a schema, and a level of its own that is not there
_MISSING: Final = frozenset({40401, 40402, 40403, 40405, 40406, 40408})


class NotFound(PenstockError):
    """The registry does not have the subject, the version or the schema."""


class _Config(msgspec.Struct):
    compatibilityLevel: str


class _Compatibility(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class _Registered(msgspec.Struct):
    id: int
    version: int | None = None


class RegistryApi:
    """One registry. Owned by the thread of the event loop."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self.url = http.settings.url
        self.is_read_only = http.settings.is_read_only

    async def subjects(self) -> tuple[list[str], list[str]]:
        """Names of subjects, and of those that are deleted and not yet removed for good."""
        live, every = await asyncio.gather(
            self._http.send(list[str], "GET", "/subjects"),
            self._http.send(list[str], "GET", "/subjects?deleted=true"),
        )
        known = set(live)
        return sorted(known), sorted(set(every) - known)

    async def versions(self, subject: str) -> tuple[list[int], list[int]]:
        """Numbers of versions, and of those that are deleted; NotFound if there is none of either."""
        live = await self._versions(subject, "")
        every = await self._versions(subject, "?deleted=true")
        if not live and not every:
            raise NotFound(f"the schema registry has no subject {subject}")
        return sorted(live), sorted(set(every) - set(live))

    async def _versions(self, subject: str, query: str) -> list[int]:
        try:
            return await self._http.send(list[int], "GET", f"{_subject(subject)}/versions{query}")
        except RegistryRefused as error:
            if _is_missing(error):
                return []
            raise

    async def version(self, subject: str, version: int | str) -> SchemaVersion:
        """One version, also if it is deleted; NotFound if it is not there."""
        path = f"{_subject(subject)}/versions/{version}?deleted=true"
        try:
            return await self._http.send(SchemaVersion, "GET", path)
        except RegistryRefused as error:
            if _is_missing(error):
                raise NotFound(f"subject {subject} has no version {version}") from error
            raise

    async def schema(self, number: int) -> SchemaVersion:
        """A schema by its number; NotFound if it is not there."""
        try:
            return await self._http.send(SchemaVersion, "GET", f"/schemas/ids/{number}")
        except RegistryRefused as error:
            if _is_missing(error):
                raise NotFound(f"the schema registry has no schema {number}") from error
            raise

    async def uses(self, number: int) -> list[SubjectVersion]:
        """The subjects and versions of a schema."""
        try:
            found = await self._http.send(list[SubjectVersion], "GET", f"/schemas/ids/{number}/versions")
        except RegistryRefused as error:
            if _is_missing(error):
                return []
            raise
        return sorted(found, key=lambda each: (each.subject, each.version))

    async def referring(self, subject: str, version: int) -> list[int] | None:
        """Numbers of the schemas that refer to a version; None if the registry does not say it."""
        path = f"{_subject(subject)}/versions/{version}/referencedby"
        try:
            return sorted(await self._http.send(list[int], "GET", path))
        except RegistryRefused as error:
            if error.status in (404, 405, 500, 501):
                return None
            raise

    async def level(self, subject: str | None = None) -> Level:
        """The compatibility of a subject: its own, or else that of all subjects."""
        if subject is not None:
            try:
                return Level(await self._own_level(f"/config/{quote(subject, safe='')}"), True)
            except RegistryRefused as error:
                if not _is_missing(error):
                    raise
        return Level(await self._own_level("/config"), False)

    async def _own_level(self, path: str) -> str:
        return (await self._http.send(_Config, "GET", path)).compatibilityLevel

    async def set_level(self, subject: str | None, level: str | None) -> None:
        """Set the compatibility of a subject or of all; None returns a subject to that of all."""
        path = "/config" if subject is None else f"/config/{quote(subject, safe='')}"
        if level is None:
            await self._http.send(msgspec.Raw, "DELETE", path)
        else:
            await self._http.send(msgspec.Raw, "PUT", path, {"compatibility": level})

    async def check(self, subject: str, draft: Draft) -> Checked:
        """Whether a draft is compatible with the versions of a subject, as the subject's level says."""
        known = await self._known(subject, draft)
        path = f"/compatibility{_subject(subject)}/versions"
        try:
            found = await self._compatibility(f"{path}?verbose=true", draft)
        except RegistryRefused as error:
            if _is_missing(error):
                return Checked(None, [], known)
            if error.status not in (404, 405):
                raise
            # Some registries compare with one version only.
            found = await self._compatibility(f"{path}/latest?verbose=true", draft)
        return Checked(found.is_compatible, list(found.messages or ()), known)

    async def _compatibility(self, path: str, draft: Draft) -> _Compatibility:
        return await self._http.send(_Compatibility, "POST", path, draft.body())

    async def _known(self, subject: str, draft: Draft) -> int | None:
        """The version that has exactly this schema; None if there is none."""
        try:
            found = await self._http.send(_Registered, "POST", _subject(subject), draft.body())
        except RegistryRefused as error:
            # A schema that is no schema is also an error of the check, which has the reason.
            if error.status in (404, 422, 500):
                return None
            raise
        return found.version

    async def register(self, subject: str, draft: Draft) -> tuple[int, int | None]:
        """The number of the schema, and its version in the subject."""
        found = await self._http.send(_Registered, "POST", f"{_subject(subject)}/versions", draft.body())
        return found.id, found.version or await self._known(subject, draft)

    async def delete(self, subject: str, version: int | None, *, permanent: bool) -> None:
        """Delete a version or a subject. Only what is deleted can be removed for good."""
        path = _subject(subject) + ("" if version is None else f"/versions/{version}")
        await self._http.send(msgspec.Raw, "DELETE", f"{path}?permanent=true" if permanent else path)


def _subject(name: str) -> str:
    return f"/subjects/{quote(name, safe='')}"


def _is_missing(error: RegistryRefused) -> bool:
    return error.status == 404 and error.code in _MISSING
