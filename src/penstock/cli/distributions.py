"""Finds out whether the two distributions of Penstock are installed in different versions.

`penstock-mq` and `penstock-mq-client` share the files of the clients (ADR 136). In the same version these are
the same bytes. In different versions the later installation has replaced files of the other one, and a broker
would run with modules of two versions.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from penstock.model.installation import DISTRIBUTION

__all__ = ["mixed_versions"]

_INSTALLED: Final = re.compile(r"(penstock_mq(?:_client)?)-(.+)\.dist-info")


def mixed_versions(packages: Path | None = None) -> str | None:
    """The message of an environment that has two versions, else None; it costs one look at its folder."""
    folder = Path(__file__).parents[2] if packages is None else packages
    found = {match[1]: match[2] for name in _names(folder) if (match := _INSTALLED.fullmatch(name))}
    if len(set(found.values())) < 2:
        return None
    named = " and ".join(
        f"{name.replace('_', '-')} {version}" for name, version in sorted(found.items(), reverse=True)
    )
    wanted = found[DISTRIBUTION.replace("-", "_")]
    return (
        f"{named} have replaced files of each other: install the same version of both, "
        f"`pip install --force-reinstall --no-deps {DISTRIBUTION}=={wanted} {DISTRIBUTION}-client=={wanted}`"
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # a package in an archive has no folder, and no second distribution in it
