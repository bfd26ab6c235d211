"""The options of reads from an archive, and the choice of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from penstock.scan.moments import parse_moment
from penstock.scan.place import ArchivePlace
from penstock.spark.errors import WrongOption

__all__ = ["ARCHIVE_OPTIONS", "AUTO", "ArchiveOptions", "chosen_columns", "parse_archive"]

ARCHIVE_OPTIONS: Final = ("archive", "archiveStoreConfig", "archiveEncryptionKeys", "asOf")
#: the archive of tiered storage, as the brokers' configs have it
AUTO: Final = "auto"


class _Given(Protocol):
    def get(self, name: str) -> str | None: ...


class ArchiveOptions(NamedTuple):
    """Where sealed segments are read from, and which moment of a backup."""

    place: ArchivePlace
    is_backup: bool = False
    #: None for the newest cut
    moment_ms: int | None = None


def parse_archive(given: _Given, *, streaming: bool) -> ArchiveOptions | None:
    """None if everything is read from brokers."""
    address = given.get("archive")
    as_of = given.get("asOf")
    if not address:
        for name in ARCHIVE_OPTIONS[1:]:
            if given.get(name) is not None:
                raise WrongOption(f"{name} needs the option archive: the address of the archive")
        return None
    place = ArchivePlace(address, given.get("archiveStoreConfig"), given.get("archiveEncryptionKeys"))
    if as_of is None:
        return ArchiveOptions(place)
    if streaming:
        raise WrongOption("asOf is for batch queries: a backup has no end that moves")
    if address.lower() == AUTO:
        raise WrongOption("asOf needs the address of a backup, not archive=auto")
    try:
        return ArchiveOptions(place, True, parse_moment(as_of))
    except ValueError:
        raise WrongOption(
            f"asOf must be a time such as 2026-11-17T12:00, milliseconds since 1970, or latest, not {as_of!r}"
        ) from None


def chosen_columns(text: str | None, available: Sequence[str]) -> list[str]:
    """The columns of a query in their usual order; all of them if none are chosen."""
    if text is None:
        return list(available)
    wanted = {name.strip() for name in text.split(",") if name.strip()}
    unknown = sorted(wanted - set(available))
    if unknown or not wanted:
        named = f"has no {', '.join(unknown)}" if unknown else "names no column"
        raise WrongOption(f"columns {named}: choose from {', '.join(available)}")
    if "malformed" in wanted and "value" not in wanted:
        raise WrongOption("columns has malformed without value: it is what could not become a value")
    return [name for name in available if name in wanted]
