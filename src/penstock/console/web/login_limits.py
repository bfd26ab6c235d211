"""Limits of logins by the visitor's address and by user.

An attempt takes a token of its address and one of its user. Tokens come back over time, so guessing slows
down, and at once after a login that succeeds. An attempt without a token is refused before the brokers see
it.

The limit of a user counts over all addresses, so that many addresses cannot guess one password. Why it spares
addresses from which the user has logged in before: others could lock the user out otherwise.

Invariant: tables have at most `_ENTRIES_MAX` entries. Pure: the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.console.web.visitors import network_of
from penstock.model.errors import PenstockError

__all__ = ["Attempt", "LoginLimits", "TooManyLogins"]

K = TypeVar("K")
#: failed logins at once, and the seconds until one more is accepted
ADDRESS_BURST: Final = 10
ADDRESS_REFILL_S: Final = 30.0
USER_BURST: Final = 20
USER_REFILL_S: Final = 30.0
#: logins that brokers check at the same time
CONCURRENT_MAX: Final = 16
_ENTRIES_MAX: Final = 10_000
_NAME_MAX: Final = 256


class TooManyLogins(PenstockError):
    """Too many logins have failed; `retry_after_s` says when the next one is accepted."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = max(1, ceil(retry_after_s))
        super().__init__(f"{message}: try again in {self.retry_after_s} s")


class Attempt(NamedTuple):
    """One login that is under way."""

    network: str
    #: whose tokens it has taken; None if the user is not limited
    user: str | None


class _Buckets(Generic[K]):
    """Tokens by key. A key that has all its tokens takes no place."""

    def __init__(self, burst: int, refill_s: float) -> None:
        self._burst = burst
        self._refill_s = refill_s
        #: the tokens at a time, in the order of the last use
        self._left: dict[K, tuple[float, float]] = {}

    def wait_s(self, key: K, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        return max(0.0, 1.0 - self._now(key, now)) * self._refill_s

    def add(self, key: K, tokens: float, now: float) -> None:
        left = self._now(key, now) + tokens
        self._left.pop(key, None)
        if left < self._burst:
            if len(self._left) >= _ENTRIES_MAX:
                self._make_room(now)
            self._left[key] = left, now

    def _now(self, key: K, now: float) -> float:
        left, at = self._left.get(key, (float(self._burst), now))
        return min(float(self._burst), left + max(0.0, now - at) / self._refill_s)

    def _make_room(self, now: float) -> None:
        """Remove a tenth: the keys with the most tokens, so that keys without any stay limited."""
        by_tokens = sorted(self._left, key=lambda key: self._now(key, now), reverse=True)
        for key in by_tokens[: max(1, len(by_tokens) // 10)]:
            del self._left[key]


class LoginLimits:
    """Decides whether a login is tried. Owned by the thread of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._addresses: _Buckets[str] = _Buckets(ADDRESS_BURST, ADDRESS_REFILL_S)
        self._users: _Buckets[str] = _Buckets(USER_BURST, USER_REFILL_S)
        #: (user, network) of logins that have succeeded, in the order of the first ones
        self._known: dict[tuple[str, str], None] = {}
        self._under_way = 0

    def begin(self, address: str, user: str | None) -> Attempt:
        """Take the tokens of a login; TooManyLogins if there are none. The caller ends each attempt.

        `user` is None for a login at a provider, which limits its users itself.
        """
        now, network = self._clock(), network_of(address)
        limited = None if user is None or (user[:_NAME_MAX], network) in self._known else user[:_NAME_MAX]
        wait_s = self._addresses.wait_s(network, now)
        if wait_s:
            raise TooManyLogins("too many logins from this address have failed", wait_s)
        wait_s = 0.0 if limited is None else self._users.wait_s(limited, now)
        if wait_s:
            raise TooManyLogins("too many logins of this user have failed", wait_s)
        if self._under_way >= CONCURRENT_MAX:
            raise TooManyLogins("too many logins are under way", 1.0)
        self._under_way += 1
        # Taken before the outcome is known: guesses at the same time count, too.
        attempt = Attempt(network, limited)
        self._add(attempt, -1.0)
        return attempt

    def failed(self, attempt: Attempt) -> None:
        """The brokers have refused the login: its tokens are used up."""
        self._under_way -= 1

    def undecided(self, attempt: Attempt) -> None:
        """No broker has decided about the login."""
        self._under_way -= 1
        self._add(attempt, 1.0)

    def succeeded(self, attempt: Attempt) -> None:
        self.undecided(attempt)
        if attempt.user is None:
            return
        key = attempt.user, attempt.network
        if len(self._known) >= _ENTRIES_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = None

    def _add(self, attempt: Attempt, tokens: float) -> None:
        now = self._clock()
        self._addresses.add(attempt.network, tokens, now)
        if attempt.user is not None:
            self._users.add(attempt.user, tokens, now)
