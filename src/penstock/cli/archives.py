"""What `penstock backup` and `penstock restore` share: addresses, options of stores, errors as one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.options import milliseconds

if TYPE_CHECKING:
    from penstock.ports import ObjectStore

__all__ = ["Address", "StoreConfig", "duration_ms", "in_store", "split_moment"]

T = TypeVar("T")

Address = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A folder, or a URL: s3://bucket/prefix, gs://…, az://….")
]
StoreConfig = Annotated[
    Path | None,
    typer.Option(
        "--store-config",
        envvar="PENSTOCK_STORE_CONFIG_FILE",
        metavar="FILE",
        help="Options of the object store, such as aws_access_key_id=…, instead of the environment.",
    ),
]


def split_moment(text: str) -> tuple[str, int | None]:
    """(address, milliseconds since 1970) of `ADDRESS@TIME`; None without a time."""
    address, at, moment = text.rpartition("@")
    if not at or not moment[:1].isdigit():
        return text, None
    return address, milliseconds(moment, "the time after @")


def duration_ms(option: str, text: str) -> int:
    """A duration as people write it: 60s, 24h, 30d."""
    from penstock.model.config.units import in_milliseconds
    from penstock.model.errors import InvalidConfig

    try:
        found = in_milliseconds(text)
    except InvalidConfig:
        found = 0
    if found <= 0:
        misused(f"{option} {text!r} is not a duration like 60s, 24h or 30d")
    return found


def in_store(
    address: str,
    store_config: Path | None,
    work: Callable[[ObjectStore], Awaitable[T]],
    *,
    create: bool = False,
) -> T:
    """Run `work` with the store at an address."""
    from penstock.cli.data_files import archive_ring
    from penstock.cli.private_files import warn_if_exposed
    from penstock.model.errors import PenstockError
    from penstock.objectstore.address import parse_address, parse_options
    from penstock.objectstore.encrypted_store import with_keys
    from penstock.objectstore.object_store import open_store

    try:
        options = None
        if store_config is not None:
            warn_if_exposed(store_config, "--store-config")
            options = parse_options(store_config.read_text(encoding="utf-8"), str(store_config))
        store = with_keys(open_store(parse_address(address), options, create=create), archive_ring())

        async def run() -> Any:
            return await work(store)

        return asyncio.run(run())  # type: ignore[no-any-return]
    except PenstockError as e:
        raise Failure(str(e)) from e
    except OSError as e:
        raise Failure(f"{e}: check the address, the credentials and the network") from e
