"""Shares the event loop between large requests, so that small requests never wait long for them.

A large request is computed in slices of `SLICE_S`. At most one slice runs between two polls of the sockets.
Owners (a principal at an address) take turns, so a client with many large requests delays its own. Each
owner has few computations in progress (`COMPUTED_AT_ONCE`), because each holds what it has built so far. A
connection whose requests have used up the share of an iteration takes turns in the same way
(`Connection.rest`).

Whether requests that are pipelined have used up the share is asked every few requests, without a callback in
each iteration: it would cost as much as a request. Half of the share may be left of earlier iterations. Only
when that is over the next iteration is noticed, and gives back the share; until then the other half is used.

Requests that are not large may be many: one on each of a thousand connections. Once those of an iteration
have used up its share, connections with more than a small frame wait for their turn, and after three shares
all do (`frame_bytes_max`).

The clock is a port: in a simulation each look at it takes the same time, so slices end at the same elements.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Iterable
from functools import partial
from time import perf_counter
from typing import Final, Protocol, TypeVar

from penstock.model.errors import ProtocolError
from penstock.net.client_limit import ClientLimit

__all__ = ["COMPUTED_AT_ONCE", "SHARE_S", "SLICE_S", "Client", "Turns"]

T = TypeVar("T")
#: how long a large request may hold the event loop at a time
SLICE_S: Final = 0.002
#: how long pipelined requests may hold it in one iteration, and the first slices of large requests
SHARE_S: Final = 0.004
#: the largest frame that is served once the share of an iteration is used up: a few elements
_SMALL_FRAME: Final = 128
_SHARES_MAX: Final = 3
#: computations of one owner in progress; the others wait, in order
COMPUTED_AT_ONCE: Final = 4
_ANY_SIZE: Final = 1 << 62
#: how long a request that may be large is computed at once, and how long if the share is used up
_FIRST_S: Final = 0.001
_SHORT_S: Final = 0.0002


class Client(Protocol):
    """A connection that something is computed for."""

    @property
    def owner(self) -> Hashable: ...

    @property
    def closed(self) -> bool: ...


class Turns:
    """The large requests of a broker that wait for their next slice.

    Invariant: `_next` is scheduled while an owner waits, or while the second half of the share of pipelined
    requests, or any of the share of others, is in use.
    """

    __slots__ = (
        "_computing",
        "_is_scheduled",
        "_is_second_half",
        "_suspended",
        "_until",
        "_used_s",
        "_waiting",
        "clock",
        "frame_bytes_max",
        "is_simulated",
        "is_used_up",
    )

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """`clock` returns seconds of computation."""
        self.clock = clock
        #: whether only `clock` may decide when a connection waits
        self.is_simulated = clock is not perf_counter
        #: callbacks in the order of their arrival, by owner; the first owner is the next one
        self._waiting: dict[Hashable, list[Callable[[], None]]] = {}
        #: the large requests that wait until their owners are resumed, by suspended owner and connection
        self._suspended: dict[Hashable, dict[Client, list[asyncio.Future[None]]]] = {}
        self._computing = ClientLimit(COMPUTED_AT_ONCE)
        self._is_scheduled = False
        self._used_s = 0.0
        #: when a half of the share of pipelined requests ends; the first may be of an earlier iteration
        self._until = 0.0
        self._is_second_half = False
        #: whether large requests have used up their share of this iteration of the loop
        self.is_used_up = False
        #: a connection with more unserved bytes waits for its turn
        self.frame_bytes_max = _ANY_SIZE

    def __len__(self) -> int:
        parked = [futures for clients in self._suspended.values() for futures in clients.values()]
        return sum(map(len, self._waiting.values())) + sum(map(len, parked))

    def wait(self, owner: Hashable, callback: Callable[[], None], *, first: bool = False) -> None:
        """Call `callback` in a later iteration, when it is the owner's turn; `first` before its others."""
        callbacks = self._waiting.setdefault(owner, [])
        callbacks.insert(0 if first else len(callbacks), callback)
        self._schedule()

    def suspend(self, owner: Hashable) -> None:
        """Give the large requests of an owner no turn until `resume`; its other requests go on."""
        self._suspended[owner] = {}

    def resume(self, owner: Hashable) -> None:
        for futures in self._suspended.pop(owner, {}).values():
            _wake(futures)

    def forget(self, client: Client) -> None:
        """A connection is closed: its large requests end now, not when their owner is resumed."""
        parked = self._suspended.get(client.owner)
        if parked:
            _wake(parked.pop(client, []))

    def use(self, seconds: float) -> None:
        """Count time of this iteration as that of requests that are not short."""
        used_s = self._used_s = self._used_s + seconds
        if used_s >= SHARE_S:
            self.is_used_up = True
            self.frame_bytes_max = _SMALL_FRAME if used_s < _SHARES_MAX * SHARE_S else 0
        self._schedule()

    def is_share_over(self) -> bool:
        """Whether pipelined requests have held the loop for long in this iteration."""
        now = self.clock()
        if now < self._until:
            return False
        if self._is_second_half:
            return True
        # The iteration in which the first half began may be over: the next one is noticed from now on.
        self._until = now + SHARE_S / 2
        self._is_second_half = True
        self._schedule()
        return False

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A new iteration: the sockets were polled since the last call."""
        self._is_scheduled = self.is_used_up = False
        self._used_s = 0.0
        if self._is_second_half:
            self._is_second_half = False
            self._until = self.clock() + SHARE_S / 2
        self.frame_bytes_max = _ANY_SIZE
        if not self._waiting:
            return
        owner, callbacks = next(iter(self._waiting.items()))
        callback = callbacks.pop(0)
        del self._waiting[owner]
        if callbacks:
            self._waiting[owner] = callbacks
        self._schedule()
        callback()

    async def turn(self, client: Client, *, first: bool = False) -> None:
        """Wait for the client's turn. The caller then computes for up to `SLICE_S`.

        Raises ProtocolError if the connection is closed by then: the rest is not needed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(client.owner, partial(_wake, (future,)), first=first)
        await future
        if client.closed:
            raise ProtocolError("the connection was closed before its request was answered")

    async def large_turn(self, client: Client, *, first: bool = False) -> None:
        """The same, for a slice of a large request: also waits until its owner is not suspended.

        An owner may be suspended while its requests wait for their turn, so this is checked after the turn:
        the last slices of all of them would write their responses.
        """
        await self.turn(client, first=first)
        while (parked := self._suspended.get(client.owner)) is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            parked.setdefault(client, []).append(future)
            await future
            await self.turn(client, first=first)

    async def run(self, steps: Generator[object, None, T], client: Client, *, begins: bool = True) -> T:
        """The result of all steps, each of which has to be short.

        `begins` is False if the steps go on with the result of others: they go first, because they hold it.
        """
        if not begins:
            return await self._run(steps, client, first=True)
        owner = client.owner
        await self._computing.enter(owner, 1)
        try:
            return await self._run(steps, client)
        finally:
            self._computing.leave(owner, 1)

    async def _run(self, steps: Generator[object, None, T], client: Client, *, first: bool = False) -> T:
        clock = self.clock
        while True:
            await self.large_turn(client, first=first)
            until = clock() + SLICE_S
            try:
                while clock() < until:
                    next(steps)
            except StopIteration as e:
                result: T = e.value
                return result

    def run_first(self, steps: Generator[object, None, T]) -> tuple[T] | None:
        """The result of all steps, if they are done soon; None if the rest needs turns (`run`)."""
        clock = self.clock
        began = clock()
        until = began + (_SHORT_S if self.is_used_up else _FIRST_S)
        try:
            while True:
                next(steps)
                now = clock()
                if now >= until:
                    self.use(now - began)
                    return None
        except StopIteration as e:
            return (e.value,)


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
