"""The files of a broker, as commands without a broker read them: encrypted directories need keys.

`--encryption-keys FILE` or PENSTOCK_ENCRYPTION_KEYS_FILE names the file with the keys. Instead,
`--encryption-config FILE` names a config file of the broker, whose key provider has them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failure import Failure, misused
from penstock.cli.private_files import warn_if_exposed

if TYPE_CHECKING:
    from penstock.encryption.files import EncryptedFiles
    from penstock.encryption.keys import KeyRing
    from penstock.model.config import BrokerConfig
    from penstock.ports import Files

__all__ = ["archive_ring", "data_files", "encrypted_files", "encryption_config", "use_keys"]

_chosen: list[Path] = []
_configured: list[Path] = []


def use_keys(path: Path | None, config: Path | None = None) -> None:
    """Use the keys of a file, or those that a config file of the broker names, from now on."""
    _chosen[:] = [] if path is None else [path]
    _configured[:] = [] if config is None else [config]


def encryption_config() -> BrokerConfig | None:
    """The chosen config file of a broker; None if keys were chosen instead."""
    from penstock.cli.config_sources import read_config_file, resolved_configs
    from penstock.model.config import BrokerConfig
    from penstock.model.errors import InvalidConfig

    if not _configured:
        return None
    try:
        return BrokerConfig(resolved_configs(read_config_file(_configured[0]).configs))
    except InvalidConfig as error:
        misused(f"{_configured[0]}: {error}")


def archive_ring() -> KeyRing | None:
    """The chosen keys, of an archive; None if none were chosen."""
    from penstock.broker.base.encrypted_disks import archive_keys

    config = encryption_config()
    if config is not None:
        return archive_keys(config)
    return _chosen_ring() if _chosen else None


def _chosen_ring() -> KeyRing:
    """The keys in the chosen file."""
    from penstock.encryption.keys import parse_keys

    try:
        text = _chosen[0].read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(f"cannot read --encryption-keys {_chosen[0]}: {reason}") from error
    warn_if_exposed(_chosen[0], "--encryption-keys")
    return parse_keys(text)


def encrypted_files(*directories: Path) -> EncryptedFiles:
    """Files that encrypt and decrypt with the chosen keys; `directories` are the data directories."""
    import secrets

    from penstock.broker.base.encrypted_disks import key_ring
    from penstock.broker.base.system_ports import OsFiles
    from penstock.encryption import VERSION
    from penstock.encryption.files import EncryptedFiles

    config = encryption_config()
    if config is not None:
        ring = key_ring(OsFiles(), config, map(str, directories), secrets.token_bytes)
        return EncryptedFiles(OsFiles(), ring, accepts=frozenset({1, VERSION}), report=_warn, is_bound=False)
    if not _chosen:
        misused(
            "the data is encrypted or is to be: name the file with the keys with --encryption-keys, or the "
            "config file of the broker with --encryption-config"
        )
    return EncryptedFiles(
        OsFiles(), _chosen_ring(), accepts=frozenset({1, VERSION}), report=_warn, is_bound=False
    )


def _warn(path: str, reason: str) -> None:
    """Report a file that a broker would not read."""
    print(f"penstock: {path} is not authentic here: {reason}", file=sys.stderr)


def data_files(*paths: Path) -> Files:
    """The files of the data directories that have `paths`, all of which are encrypted or none."""
    from penstock.broker.base.system_ports import OsFiles

    kinds = {_is_encrypted(path.absolute()) for path in paths}
    if len(kinds) > 1:
        misused("some of the directories are encrypted and others are not: name them in two commands")
    if True not in kinds:
        return OsFiles()
    return encrypted_files(*filter(None, (_data_directory(path.absolute()) for path in paths)))


def _data_directory(path: Path) -> Path | None:
    from penstock.encryption import META

    return next((place for place in (path, *path.parents) if (place / META).is_file()), None)


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
