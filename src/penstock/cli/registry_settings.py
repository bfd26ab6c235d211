"""The schema registry of a command: `--registry` and `--registry-config`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failure import misused

if TYPE_CHECKING:
    from penstock.registry.settings import RegistrySettings

__all__ = ["registry_at"]


def registry_at(url: str | None, config: Path | None) -> RegistrySettings | None:
    """The registry at an address, with credentials from a file; None without an address."""
    from penstock.model.config.files import property_pairs
    from penstock.registry.settings import registry_settings

    if url is None:
        if config is not None:
            misused("--registry-config: no schema registry is used")
        return None
    try:
        pairs = {} if config is None else dict(property_pairs(config.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        misused(f"cannot read --registry-config {config}: {error}")
    return registry_settings(pairs, url, "--registry-config")
