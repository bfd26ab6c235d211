"""Files that only their owner can read, and a check of files that have secrets."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["is_open_to_others", "is_secret", "secret_names", "write_private"]

_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
#: sensitive for Kafka, but public in fact
_PUBLIC: Final = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")
_PLACEHOLDER: Final = re.compile(r"\s*\$\{[^}]*\}\s*")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; a reader sees the old content or the new one."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def is_secret(name: str) -> bool:
    """Whether the value of a broker config must not be shown."""
    from penstock.model.config import is_sensitive

    return is_sensitive(name)


def secret_names(configs: Mapping[str, str]) -> list[str]:
    """The configs whose value is a secret in itself, not a reference to one."""
    return [
        name
        for name, value in configs.items()
        if is_secret(name) and value and not name.endswith(_PUBLIC) and _PLACEHOLDER.fullmatch(value) is None
    ]


def is_open_to_others(path: Path) -> bool:
    """Whether users other than the owner can read a file; false if it does not exist."""
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False
