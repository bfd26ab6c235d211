"""Addresses of archives, and the options of object stores from a file.

An address is a URL (`s3://bucket/prefix`, `gs://`, `az://`, `file:///folder`, `memory:///`) or a folder. It
has no secrets: credentials come from the environment or from a file, so that `ps` and logs do not show them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.archive.errors import ArchiveRefused

__all__ = ["StoreAddress", "parse_address", "parse_options"]

_SCHEMES: Final = ("s3", "gs", "az", "azure", "file", "memory")


class StoreAddress(NamedTuple):
    """Where an archive is: `url` for an object store, `folder` for a folder."""

    scheme: str
    #: as a person reads it, without secrets
    text: str
    folder: Path | None = None


def parse_address(text: str) -> StoreAddress:
    """Raise ArchiveRefused for a text that is no address, or that contains a secret."""
    if "://" not in text:
        if not text:
            raise ArchiveRefused("the address of the archive is empty: name a folder or a URL")
        return StoreAddress("file", text, Path(text).absolute())
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        raise ArchiveRefused(
            f"an archive cannot be at {parts.scheme}://: use a folder, or one of "
            f"{', '.join(f'{scheme}://' for scheme in _SCHEMES)}"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        # The text itself may have the secret, so that the message does not repeat it.
        raise ArchiveRefused(
            f"an address at {parts.scheme}:// has more than bucket and prefix: give credentials in the "
            f"environment or in a file"
        )
    if parts.scheme == "file":
        if parts.netloc or not parts.path:
            raise ArchiveRefused(f"{text} names no folder of this machine: use file:///FOLDER")
        return StoreAddress("file", text, Path(parts.path))
    if parts.scheme != "memory" and not parts.netloc:
        raise ArchiveRefused(f"{text} names no bucket")
    return StoreAddress(parts.scheme, text)


def parse_options(text: str, path: str) -> dict[str, str]:
    """The options in a file, one `NAME=VALUE` in a line, as the environment would have them in lower case."""
    options = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ArchiveRefused(f"line {number} of {path} is not NAME=VALUE")
        options[name.strip().lower()] = value.strip()
    return options
