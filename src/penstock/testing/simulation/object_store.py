"""An object store that fails as real ones do: errors, delays, late listings, lost answers, wrong bytes.

It is a dict with faults. One random number generator makes all choices, so a seed replays a failure. A store
that is shared by several writers is one object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.ports import Buffer, Clock, StoredObject

__all__ = ["SimulatedStore", "StoreFaults"]

#: how much later than its error a late put is carried out, at most
_LATE_S: Final = 5.0


@dataclass(slots=True)
class StoreFaults:
    """The share of calls that each fault happens to."""

    #: an error, and nothing was done
    failure: float = 0.0
    #: an error, although the object was written or deleted
    lost_answer: float = 0.0
    #: an error, and the object is written some seconds later, also if its writer has ended meanwhile
    late_put: float = 0.0
    #: a read returns one changed byte
    wrong_bytes: float = 0.0
    #: a put of a segment stores one changed byte
    wrong_puts: float = 0.0
    #: fewer bytes than were asked for
    short_reads: float = 0.0
    #: seconds that a call takes at most
    delay_s: float = 0.0
    #: milliseconds for which a new object may be missing in listings
    listing_lag_ms: int = 0
    #: a store without conditional puts: the second put of a name overwrites the first
    overwrites: bool = False


class SimulatedStore:
    """A store in memory with faults. `sleep` is that of the event loop, which may be simulated."""

    def __init__(
        self,
        rng: Random,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        faults: StoreFaults | None = None,
        later: Callable[[float, Callable[[], object]], object] | None = None,
    ) -> None:
        """`later` calls a function after some seconds, in no process; only late puts need it."""
        self._later = later
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self.faults = faults or StoreFaults()
        #: name -> bytes and time of the put
        self.objects: dict[str, tuple[bytes, int]] = {}
        #: how often the store was rolled back
        self._rollbacks = 0
        #: True: every call fails, as if the store were not there
        self.is_down = False
        #: called after an object was written, and before one is deleted
        self.on_put: Callable[[str], None] = lambda name: None
        self.on_delete: Callable[[str], None] = lambda name: None

    def happens(self, share: float) -> bool:
        return share > 0 and self._rng.random() < share

    async def _call(self, name: str) -> None:
        if self.faults.delay_s:
            await self._sleep(self._rng.uniform(0, self.faults.delay_s))
        if self.is_down or self.happens(self.faults.failure):
            raise OSError(f"the store has failed with {name}")

    def _answer(self, name: str) -> None:
        if self.happens(self.faults.lost_answer):
            raise TimeoutError(f"no answer about {name}")

    def _damaged(self, data: bytes) -> bytes:
        if data and self.happens(self.faults.wrong_bytes):
            at = self._rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << self._rng.randrange(8))]) + data[at + 1 :]
        if data and self.happens(self.faults.short_reads):
            data = data[: self._rng.randrange(len(data))]
        return data

    def _read(self, name: str) -> bytes:
        try:
            return self.objects[name][0]
        except KeyError:
            raise FileNotFoundError(f"{name} is not there") from None

    async def get(self, name: str) -> bytes:
        await self._call(name)
        return self._damaged(self._read(name))

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        await self._call(name)
        return self._damaged(self._read(name)[start:end])

    async def put_new(self, name: str, data: Buffer) -> None:
        await self._call(name)
        content = bytes(data)
        if self._later is not None and self.happens(self.faults.late_put):
            began = self._rollbacks
            self._later(
                self._rng.uniform(0, _LATE_S), lambda: self._rollbacks == began and self._write(name, content)
            )
            raise TimeoutError(f"no answer about {name} yet")
        is_new = self._write(name, content)
        self._answer(name)
        if not is_new:
            raise FileExistsError(f"{name} is there already")

    def _write(self, name: str, content: bytes) -> bool:
        """Returns false if there is an object of this name already."""
        if name in self.objects and not self.faults.overwrites:
            return False
        self.objects[name] = (content, self._clock.now_ms())
        if name.endswith(".segment") and self.happens(self.faults.wrong_puts):
            self.rot(name)
        self.on_put(name)
        return True

    async def listing(self, prefix: str) -> list[StoredObject]:
        await self._call(prefix)
        now_ms = self._clock.now_ms()
        found = []
        for name, (data, written_ms) in sorted(self.objects.items()):
            late_ms = self._rng.uniform(0, self.faults.listing_lag_ms) if self.faults.listing_lag_ms else 0
            if name.startswith(prefix) and now_ms - written_ms >= late_ms:
                found.append(StoredObject(name, len(data), written_ms))
        return found

    async def delete(self, name: str) -> None:
        await self._call(name)
        if name in self.objects:
            self.on_delete(name)
        self.objects.pop(name, None)
        self._answer(name)

    # -- damage that stays

    def rot(self, name: str) -> None:
        """Change one byte of an object."""
        data, written_ms = self.objects[name]
        at = self._rng.randrange(len(data))
        self.objects[name] = (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], written_ms)

    def lose(self, name: str) -> None:
        """Remove an object."""
        del self.objects[name]

    def roll_back(self, objects: dict[str, tuple[bytes, int]]) -> None:
        """Have only these objects; puts that are under way are lost."""
        self._rollbacks += 1
        self.objects = dict(objects)
