"""Object stores of S3, Google Cloud, Azure, and folders, through the library obstore.

Errors of the library become `OSError`s (`penstock.ports.ObjectStore`). Their texts may have addresses with
signed queries in them, so that only their first line is kept, without queries.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from penstock.archive.errors import ArchiveRefused
from penstock.model.installation import pip_install
from penstock.objectstore.address import StoreAddress
from penstock.ports import Buffer, StoredObject

__all__ = ["LibraryStore", "open_store"]

_QUERY: Final = re.compile(r"\?\S*")
_CLIENT: Final[dict[str, Any]] = {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=120)}
#: Plain http only where the operator has asked for it. It is an option of the HTTP client, not of the store.
_ALLOW_HTTP: Final = "aws_allow_http"
_YES: Final = ("1", "true", "yes")
_RETRY_TIMEOUT: Final = timedelta(seconds=60)


def open_store(
    address: StoreAddress,
    options: Mapping[str, str] | None = None,
    *,
    create: bool = False,
    max_retries: int = 5,
) -> LibraryStore:
    """The store at an address; a folder is created only with `create`.

    `options` come before the environment. ArchiveRefused if the library is missing or refuses them.
    """
    try:
        stores: Any = import_module("obstore.store")
    except ImportError as e:
        raise ArchiveRefused(f"obstore is missing: {pip_install('archive')}") from e
    if address.folder is not None:
        if create:
            # It has records, which only the user of the broker can read in a data directory, too.
            address.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not address.folder.is_dir():
            raise ArchiveRefused(f"there is no archive: {address.folder} is no folder")
        return LibraryStore(stores.LocalStore(address.folder), address.folder)
    if address.scheme == "memory":
        return LibraryStore(stores.MemoryStore())
    options = dict(options or {})
    client = dict(_CLIENT)
    if (options.pop(_ALLOW_HTTP, None) or os.environ.get(_ALLOW_HTTP.upper(), "")).lower() in _YES:
        client["allow_http"] = True
    retries = {"max_retries": max_retries, "retry_timeout": _RETRY_TIMEOUT}
    try:
        store = stores.from_url(address.text, config=options, client_options=client, retry_config=retries)
    except Exception as e:  # noqa: BLE001 - the library has an error for each of its stores
        raise ArchiveRefused(f"{address.text} cannot be used: {_first_line(e)}") from None
    return LibraryStore(store)


class LibraryStore:
    """A `penstock.ports.ObjectStore` over a store of obstore."""

    def __init__(self, store: Any, folder: Path | None = None) -> None:
        self._library: Any = import_module("obstore")
        self._store = store
        self._folder = folder

    async def get(self, name: str) -> bytes:
        with _as_os_errors(name):
            answer = await self._library.get_async(self._store, name)
            return bytes(await answer.bytes_async())
        raise AssertionError

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        with _as_os_errors(name):
            return bytes(await self._library.get_range_async(self._store, name, start=start, end=end))
        raise AssertionError

    async def get_buffer(self, name: str, start: int, end: int) -> Buffer:
        """As `get_range`, in the memory of the library."""
        with _as_os_errors(name):
            return memoryview(await self._library.get_range_async(self._store, name, start=start, end=end))
        raise AssertionError

    async def put_new(self, name: str, data: Buffer) -> None:
        try:
            with _as_os_errors(name):
                await self._library.put_async(self._store, name, data, mode="create")
        except FileNotFoundError:
            raise ArchiveRefused(f"{name} cannot be written: there is no such bucket or container") from None
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder, self._folder / name)

    async def listing(self, prefix: str) -> list[StoredObject]:
        found = []
        folder, _, start = prefix.rpartition("/")
        with _as_os_errors(prefix):
            async for chunk in self._library.list(self._store, prefix=folder or None):
                found += [
                    StoredObject(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))
                    for each in chunk
                    if not start or each["path"].startswith(prefix)
                ]
        return sorted(found)

    async def delete(self, name: str) -> None:
        with _as_os_errors(name):
            try:
                await self._library.delete_async(self._store, name)
            except FileNotFoundError:
                return


@contextmanager
def _as_os_errors(name: str) -> Iterator[None]:
    """Raise the errors of the library as `OSError`s with one line, without their cause."""
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotSupportedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} is not there") from None
    except AlreadyExistsError:
        raise FileExistsError(f"{name} is there already") from None
    except (PermissionDeniedError, UnauthenticatedError) as e:
        raise PermissionError(f"the store refuses {name}: {_first_line(e)}") from None
    except (NotSupportedError, NotImplementedError) as e:
        raise ArchiveRefused(f"the store does not support conditional puts: {_first_line(e)}") from None
    except BaseError as e:
        raise OSError(f"the store has failed with {name}: {_first_line(e)}") from None


def _first_line(error: Exception) -> str:
    return _QUERY.sub("", str(error).partition("\n")[0])[:500]


def _sync(root: Path, path: Path) -> None:
    """Make a file and its name durable: the library does not."""
    paths = [path, *(parent for parent in path.parents if parent.is_relative_to(root))]
    for each in paths:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
