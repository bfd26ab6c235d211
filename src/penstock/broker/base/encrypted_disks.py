"""The files of a broker: on disks or in memory, encrypted or not, at full speed or paced.

A broker without keys does not import the encryption.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.base.logs import get_logger
from penstock.broker.base.pacing import PacedFiles
from penstock.broker.base.system_ports import OsFiles
from penstock.encryption import IN_PROGRESS, MAGIC, META
from penstock.model.config import BrokerConfig
from penstock.ports import Files

if TYPE_CHECKING:
    from penstock.encryption.files import EncryptedFiles

__all__ = ["is_on_disk", "paced", "with_encryption"]

log = get_logger("encryption")
#: no disk is faster, so a higher limit in bytes per second counts as none
_FASTER_THAN_DISKS: Final = 1e12


def with_encryption(
    files: Files, config: BrokerConfig, token: Callable[[int], bytes] = secrets.token_bytes
) -> Files:
    """`files`, encrypted if the config has keys; PenstockError if that does not fit the data directories.

    `token` returns random bytes.
    """
    text = config["penstock.encryption.keys"]
    if text is None and not any(_is_marked(files, directory) for directory in config.data_dirs):
        return files
    from penstock.encryption.directory import NOT_ENCRYPTED, check_directories

    if text is None:
        check_directories(files, config.data_dirs, None)
        return files
    from penstock.encryption.files import EncryptedFiles
    from penstock.encryption.keys import parse_keys

    ring = parse_keys(str(text))
    found = check_directories(files, config.data_dirs, ring)
    if plain := found.pop(NOT_ENCRYPTED, 0):
        # Damaged headers, or files of another origin. Storage finds what is wrong with them.
        log.warning("files_not_encrypted", files=plain)
    log.info("encryption_enabled", key=ring.current.name, files=dict(found))
    return EncryptedFiles(files, ring, token, _no_room_for_extent)


def _is_marked(files: Files, directory: str) -> bool:
    """Whether a directory is encrypted, or is being converted. One that cannot be read is found later."""
    try:
        if files.exists(f"{directory}/{IN_PROGRESS}"):
            return True
        return files.exists(f"{directory}/{META}") and files.read(f"{directory}/{META}").startswith(MAGIC)
    except OSError:
        return False


def _no_room_for_extent(path: str) -> None:
    reason = "it was opened or truncated very often: stop the broker and run `penstock encryption rotate`"
    log.warning("encrypted_file_full", path=path, reason=reason)


def is_on_disk(files: Files) -> bool:
    """Whether another process can read the same files: those in memory, which tests use, it cannot."""
    return isinstance(getattr(files, "inner", files), OsFiles)


def paced(files: Files, bytes_per_s: float) -> Files:
    """`files` with a limited rate; files in memory are not limited."""
    if bytes_per_s > _FASTER_THAN_DISKS or not is_on_disk(files):
        return files
    slow = PacedFiles(bytes_per_s)
    return slow if isinstance(files, OsFiles) else cast("EncryptedFiles", files).over(slow)
