"""What a query has done: a manifest after each batch, and what batches keep for a retry.

Spark runs a batch again if the driver has died before the checkpoint had its end. The newest manifest says
whether the batch was done, and has the state before it. A file that is there is whole (`Store`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.jobs.storage import Store
from penstock.model.errors import PenstockError

__all__ = ["Ledger", "StateBroken"]

_MANIFEST: Final = "manifest-"
#: names that begin with the batch that they belong to
_OF_BATCH: Final = re.compile(r"(?:manifest-|plan-|begun-)?(\d+)[-.]")


class StateBroken(PenstockError):
    """State and checkpoint do not belong together, or rows went missing: a human must look."""


class Ledger:
    """The files of one query's state. It remembers the manifest that it has read or written last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: bytes | None = None

    def newest(self) -> bytes | None:
        """The newest manifest, which is held from now on; None before the first."""
        self._held = self._newest()
        return self._held

    def check_held(self) -> None:
        """StateBroken if the newest manifest is not the one held: another driver runs, or has run."""
        if self._newest() != self._held:
            raise StateBroken(
                f"another driver has changed the state in {self._store.uri}: "
                "stop all but one of this query, and start that one again"
            )

    def _newest(self) -> bytes | None:
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
        self._held = text

    def finish(self, batch_id: int, text: bytes, needed: set[str]) -> None:
        """Write the manifest of a batch, and remove files that are not needed any more.

        StateBroken if another driver has written a manifest. Files of later batches stay: they are not ours.
        """
        self.check_held()
        own = f"{_MANIFEST}{batch_id}.json"
        self._store.write(own, text)
        self._held = text
        for name in self._store.names(""):
            number = _OF_BATCH.match(name)
            is_later = number is not None and int(number[1]) > batch_id
            if name != own and name not in needed and not is_later:
                self._store.delete(name)
