"""The files of a broker: on disks or in memory, encrypted or not, at full speed or paced.

A broker without keys does not import the encryption.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.base.logs import get_logger
from penstock.broker.base.pacing import PacedFiles
from penstock.broker.base.system_ports import OsFiles
from penstock.encryption import IN_PROGRESS, MAGIC, META, PLAIN, VERSION
from penstock.model.config import BrokerConfig
from penstock.model.config.encryption_keys import FILE_PROVIDER, TEXT_PROVIDERS
from penstock.model.errors import PenstockError
from penstock.ports import Files

if TYPE_CHECKING:
    from penstock.encryption.files import EncryptedFiles
    from penstock.encryption.keys import KeyRing

__all__ = ["archive_keys", "is_on_disk", "key_ring", "paced", "watch_damage", "with_encryption"]

log = get_logger("encryption")
#: no disk is faster, so a higher limit in bytes per second counts as none
_FASTER_THAN_DISKS: Final = 1e12
#: how often damage of one file is reported, while clients try to read it
_REPORT_INTERVAL_S: Final = 60.0
#: the files that this is remembered of
_REPORTED_MAX: Final = 1000


def with_encryption(
    files: Files, config: BrokerConfig, token: Callable[[int], bytes] = secrets.token_bytes
) -> Files:
    """`files`, encrypted if the config has keys; PenstockError if that does not fit the data directories.

    `token` returns random bytes.
    """
    is_file = config.penstock_encryption_key_provider == FILE_PROVIDER
    has_keys = not is_file or config.penstock_encryption_keys is not None
    if not has_keys and not any(_is_marked(files, directory) for directory in config.data_dirs):
        return files
    from penstock.encryption.directory import check_directories

    if not has_keys:
        check_directories(files, config.data_dirs, None)
        return files
    ring = key_ring(files, config, config.data_dirs, token)
    found = check_directories(files, config.data_dirs, ring)
    if plain := found.pop((PLAIN, ""), 0):
        # Damaged headers, or files of another origin. They are not read.
        log.warning("files_not_encrypted", files=plain)
    counts = {f"{key} (version {version})": count for (version, key), count in found.items()}
    log.info("encryption_enabled", key=ring.current.name, files=counts)
    return _opened(files, config, ring, token)


def key_ring(
    files: Files, config: BrokerConfig, directories: Iterable[str], token: Callable[[int], bytes]
) -> KeyRing:
    """The keys of data directories, from the provider that the config names; PenstockError if it has none."""
    from penstock.broker.base.key_providers import key_provider, keys_text
    from penstock.encryption.directory_keys import open_ring
    from penstock.encryption.keys import parse_keys

    provider = key_provider(config)
    if provider is not None:
        return open_ring(files, directories, provider, token)
    text = keys_text(config)
    if text is None:
        raise PenstockError("penstock.encryption.keys is not set")
    return parse_keys(text)


def archive_keys(config: BrokerConfig) -> KeyRing | None:
    """The keys of archives, which are those of the data directories; None if there are none.

    PenstockError if a service has wrapped the keys: then each data directory has keys of its own.
    """
    from penstock.broker.base.key_providers import keys_text
    from penstock.encryption.keys import parse_keys

    if config.penstock_encryption_key_provider not in TEXT_PROVIDERS:
        raise PenstockError(
            f"an archive needs keys that all brokers share: penstock.encryption.key.provider must be "
            f"{' or '.join(TEXT_PROVIDERS)}, not {config.penstock_encryption_key_provider}"
        )
    text = keys_text(config)
    return None if text is None else parse_keys(text)


def _opened(files: Files, config: BrokerConfig, ring: KeyRing, token: Callable[[int], bytes]) -> Files:
    """`files`, encrypted. Directories that have only small files of version 1 leave that version."""
    from penstock.encryption.conversion import convert_small_files
    from penstock.encryption.directory import directory_version
    from penstock.encryption.files import EncryptedFiles

    old = []
    for directory in config.data_dirs:
        if directory_version(files, directory) != 1:
            continue
        left = convert_small_files(EncryptedFiles(files, ring, token), directory)
        if not left:
            log.info("encryption_upgraded", directory=directory, version=VERSION)
            continue
        old.append(directory)
        action = (
            "the scrubber converts segments while the broker runs, and the next start the rest; "
            "`penstock encryption apply` converts them while the broker is stopped"
        )
        log.warning("encryption_version_1", directory=directory, files=left, action=action)
    accepts = frozenset({1, VERSION}) if old else frozenset({VERSION})
    return EncryptedFiles(files, ring, token, accepts=accepts, report=Damage())


class Damage:
    """Logs files that are not authentic, and tells the scrubber of them. Called from any thread."""

    def __init__(self) -> None:
        #: called with the path of the file
        self.found: Callable[[str], None] = lambda path: None
        #: when damage of a file was reported
        self._reported: dict[str, float] = {}

    def __call__(self, path: str, reason: str) -> None:
        now = time.monotonic()
        if now < self._reported.get(path, -math.inf) + _REPORT_INTERVAL_S:
            return
        if len(self._reported) >= _REPORTED_MAX:
            self._reported.clear()
        self._reported[path] = now
        log.error("encrypted_file_damaged", path=path, reason=reason)
        self.found(path)


def watch_damage(files: Files, found: Callable[[str], None]) -> None:
    """Have `found` called, from any thread, with the path of each file whose content is not authentic."""
    report = getattr(files, "damage", None)
    if isinstance(report, Damage):
        report.found = found


def _is_marked(files: Files, directory: str) -> bool:
    """Whether a directory is encrypted, or is being converted. One that cannot be read is found later."""
    try:
        if files.exists(f"{directory}/{IN_PROGRESS}"):
            return True
        return files.exists(f"{directory}/{META}") and files.read(f"{directory}/{META}").startswith(MAGIC)
    except OSError:
        return False


def is_on_disk(files: Files) -> bool:
    """Whether another process can read the same files: those in memory, which tests use, it cannot."""
    return isinstance(getattr(files, "inner", files), OsFiles)


def paced(files: Files, bytes_per_s: float) -> Files:
    """`files` with a limited rate; files in memory are not limited."""
    if bytes_per_s > _FASTER_THAN_DISKS or not is_on_disk(files):
        return files
    slow = PacedFiles(bytes_per_s)
    return slow if isinstance(files, OsFiles) else cast("EncryptedFiles", files).over(slow)
