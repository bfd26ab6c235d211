"""The files of a broker, as commands without a broker read them: encrypted directories need keys.

`--encryption-keys FILE` or PENSTOCK_ENCRYPTION_KEYS_FILE names the file with the keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failure import Failure, misused

if TYPE_CHECKING:
    from penstock.encryption.files import EncryptedFiles
    from penstock.ports import Files

__all__ = ["data_files", "encrypted_files", "use_keys"]

_chosen: list[Path] = []


def use_keys(path: Path | None) -> None:
    """Use the keys of a file from now on."""
    _chosen[:] = [] if path is None else [path]


def encrypted_files() -> EncryptedFiles:
    """Files that encrypt and decrypt with the chosen keys."""
    from penstock.broker.base.system_ports import OsFiles
    from penstock.encryption.files import EncryptedFiles
    from penstock.encryption.keys import parse_keys

    if not _chosen:
        misused("the data is encrypted or is to be: name the file with the keys with --encryption-keys")
    try:
        text = _chosen[0].read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(f"cannot read --encryption-keys {_chosen[0]}: {reason}") from error
    return EncryptedFiles(OsFiles(), parse_keys(text))


def data_files(*paths: Path) -> Files:
    """The files of the data directories that have `paths`, all of which are encrypted or none."""
    from penstock.broker.base.system_ports import OsFiles

    kinds = {_is_encrypted(path.absolute()) for path in paths}
    if len(kinds) > 1:
        misused("some of the directories are encrypted and others are not: name them in two commands")
    return encrypted_files() if True in kinds else OsFiles()


def _is_encrypted(path: Path) -> bool:
    """Whether a file or directory is encrypted: its data directory decides, else its own first bytes."""
    from penstock.encryption import MAGIC, META

    for place in (path, *path.parents):
        if (place / META).is_file():
            path = place / META
            break
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
