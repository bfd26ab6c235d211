"""`penstock up --mount`: a broker that serves a backup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.archives import split_moment
from penstock.cli.failure import Failure
from penstock.cli.private_files import warn_if_exposed
from penstock.cli.requirements import require_extra

if TYPE_CHECKING:
    from penstock.model.config import BrokerConfig

__all__ = ["flags_of", "serve_mount"]


def flags_of(backup: str, store_config: Path | None) -> dict[str, str | None]:
    """The configs that `--mount` and `--store-config` set."""
    from penstock.backup.mounting import mount_settings

    path = None if store_config is None else str(store_config.absolute())
    return {**mount_settings(backup), "penstock.mount.store.config": path}


def serve_mount(config: BrokerConfig, ready: Callable[[str], None]) -> None:
    """Run the broker until a signal; Failure if there is no such backup, or if it cannot be read."""
    require_extra("obstore", "archive")
    from penstock.archive.errors import ArchiveError
    from penstock.backup.mounting import Mount, open_mount
    from penstock.broker.app.server import run

    assert config.penstock_mount is not None
    address, moment_ms = split_moment(config.penstock_mount)
    if config.penstock_mount_store_config is not None:
        warn_if_exposed(Path(config.penstock_mount_store_config), "penstock.mount.store.config")

    async def opened() -> Mount:
        try:
            return await open_mount(config, address, moment_ms)
        except OSError as e:
            raise Failure(f"{e}: check the address, the credentials and the network") from e

    try:
        run(config, ready=ready, open_mount=opened)
    except ArchiveError as e:
        raise Failure(str(e)) from e
