"""What a query has done: a manifest after each batch, and what batches keep for a retry.

Spark runs a batch again if the driver has died before the checkpoint had its end. The newest manifest says
whether the batch was done, and has the state before it. A file that is there is whole (`Store`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.jobs.storage import Store
from penstock.model.errors import PenstockError

__all__ = ["Ledger", "StateBroken"]

_MANIFEST: Final = "manifest-"


class StateBroken(PenstockError):
    """State and checkpoint do not belong together, or rows went missing: a human must look."""


class Ledger:
    """The files of one query's state."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self) -> bytes | None:
        """The newest manifest; None before the first."""
        done = [name for name in self._store.names("") if name.startswith(_MANIFEST)]
        if not done:
            return None
        newest = max(done, key=lambda name: int(name.removeprefix(_MANIFEST).removesuffix(".json")))
        return self._store.read(newest)

    def is_new(self, batch_id: int, done: int) -> bool:
        """Whether a batch comes next after the batch `done`; StateBroken if batches lie between them."""
        if batch_id > done + 1:
            raise StateBroken(
                f"batch {batch_id} comes after {done} in the state beside the checkpoint: "
                "one of them is older. Restore both, or remove both and start again"
            )
        return batch_id > done

    def once(self, path: str, make: Callable[[], bytes]) -> bytes:
        """What the first attempt of a batch has kept under a name: later attempts get the same."""
        if not self._store.exists(path):
            self._store.write(path, make())
        return self._store.read(path)

    def begin(self, batch_id: int, text: bytes) -> None:
        """Write the manifest of a query that has not done a batch yet."""
        self._store.write(f"{_MANIFEST}{batch_id}.json", text)

    def finish(self, batch_id: int, text: bytes, needed: set[str]) -> None:
        """Write the manifest of a batch, and remove all files but those that are still needed."""
        own = f"{_MANIFEST}{batch_id}.json"
        self._store.write(own, text)
        for name in self._store.names(""):
            if name != own and name not in needed:
                self._store.delete(name)
