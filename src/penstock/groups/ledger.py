"""What the state machines of one partition of `__consumer_offsets` share: groups, timers, and the way out.

An event is handled in one turn: the driver sets the time (`begin`), calls one method of the shard, and
takes what the turn left in the outbox. A record is applied the moment it is written there (`write`), so
later decisions of the same turn, and of turns whose records are not yet in the log, see it. Whoever drives
this must release the answers only when the records are committed, and, if the log refuses them, throw the
whole state away and replay the log: what was applied too early is gone with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.groups.records import encode_record
from penstock.groups.timers import Timers
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.schema import Struct

if TYPE_CHECKING:
    from penstock.groups.group import Group
    from penstock.groups.settings import GroupSettings

__all__ = [
    "Answer",
    "Asker",
    "Client",
    "Environment",
    "Ledger",
    "LogRecord",
    "Outbox",
    "bytes_of",
    "response_of",
]

#: Whoever asked and still waits; means something to the driver only.
Asker: TypeAlias = object
#: A response, or what makes it when it is due, of nothing that changes meanwhile.
Answer: TypeAlias = Struct | Callable[[], Struct]
#: A record's key and value, or what makes them when they are written, of nothing that changes meanwhile.
LogRecord: TypeAlias = tuple[bytes, bytes | None] | Callable[[], tuple[bytes, bytes | None]]


def response_of(answer: Answer) -> Struct:
    return answer if isinstance(answer, Struct) else answer()


def bytes_of(record: LogRecord) -> tuple[bytes, bytes | None]:
    return record if isinstance(record, tuple) else record()


class Outbox:
    """What a turn wants done: records to append, and answers to give once they are committed.

    Both may be recipes: a decision about a group of a thousand is one turn, and its bytes are another's.
    """

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.replies: list[tuple[Asker, Answer]] = []


class Client:
    """Who sent a request, as groups remember and show it."""

    __slots__ = ("host", "id", "version")

    def __init__(self, id: str, host: str, version: int) -> None:
        self.id = id
        self.host = host
        #: of the request
        self.version = version


class Environment:
    """What all shards of a broker read: settings, the cluster's topics, and where new names come from."""

    __slots__ = ("image", "may_expire", "new_uuid", "own_settings", "settings")

    def __init__(
        self,
        settings: GroupSettings,
        image: ClusterImage,
        new_uuid: Callable[[], str],
        may_expire: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_expire` tells whether the wall clock is trusted, so that it may decide what is too old."""
        self.settings = settings
        #: of the groups that have configs of their own
        self.own_settings: dict[str, GroupSettings] = {}
        self.image = image
        self.new_uuid = new_uuid
        self.may_expire = may_expire

    def settings_of(self, group_id: str) -> GroupSettings:
        return self.own_settings.get(group_id, self.settings)


class Ledger:
    """Groups of one partition, and the one way to change them durably."""

    __slots__ = ("apply", "env", "groups", "now_ms", "outbox", "timers")

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.groups: dict[str, Group] = {}
        self.timers: Final = Timers()
        self.outbox = Outbox()
        #: wall time of the event that is being handled
        self.now_ms = 0
        #: takes a record into the state; set by the shard, which knows all kinds
        self.apply: Callable[[Any, Any], None]

    def begin(self, now_ms: int, timer_ms: int) -> None:
        """An event has come: at `now_ms` of the calendar and `timer_ms` of a clock that never goes back."""
        self.now_ms = now_ms
        self.timers.now_ms = timer_ms

    def write(self, key: Struct, value: Struct | None, version: int | None = None) -> None:
        """Have a record appended, and apply it at once."""
        self.write_encoded(encode_record(key, value, version), key, value)

    def write_encoded(self, record: tuple[bytes, bytes | None], key: Struct, value: Struct | None) -> None:
        """The same where that has been encoded before."""
        self.outbox.records.append(record)
        self.apply(key, value)

    def log(self, record: Callable[[], tuple[Struct, Struct | None]]) -> None:
        """Have a record appended that says what the state already is: classic groups change before."""
        self.outbox.records.append(lambda: encode_record(*record()))

    def answer(self, asker: Asker, answer: Answer) -> None:
        self.outbox.replies.append((asker, answer))

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
