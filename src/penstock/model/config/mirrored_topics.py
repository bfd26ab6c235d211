"""The config `penstock.link` of a mirrored topic: its link, its state, and the topic at the source."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig
from penstock.model.ids import TopicId, format_topic_id, parse_topic_id

__all__ = ["LINK_CONFIG", "MirrorState", "MirroredTopic", "check_mirrored_topic"]

#: the name of the config
LINK_CONFIG: Final = "penstock.link"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class MirrorState(StrEnum):
    """The states of a mirrored topic, in their order."""

    #: leaders fetch from the source
    MIRRORING = "mirroring"
    #: each leader fetches until it has everything that the source has, and stops
    PROMOTING = "promoting"
    #: leaders do not fetch any more, and abort the transactions that are open
    CLOSING = "closing"
    #: the topic is an ordinary one
    PROMOTED = "promoted"


class MirroredTopic(NamedTuple):
    """The value of `penstock.link`, as `LINK/STATE/ID/TOPIC`, and at the end `/OFFSETS` if promoted."""

    link: str
    state: MirrorState
    source_id: TopicId
    source_topic: str
    #: the end of the mirrored records of each partition of a promoted topic
    ends: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MirroredTopic:
        parts = text.split("/")
        try:
            link, state, topic_id, topic = parts[:4]
            ends = tuple(map(int, parts[4].split(","))) if len(parts) == 5 and parts[4] else ()
            found = cls(link, MirrorState(state), parse_topic_id(topic_id), topic, ends)
        except ValueError as e:
            raise InvalidConfig(f"{text!r} is not LINK/STATE/ID/TOPIC: {e}") from e
        named = _NAME.fullmatch(link) and _TOPIC.fullmatch(topic)
        if len(parts) > 5 or not named or min(ends, default=0) < 0:
            raise InvalidConfig(f"{text!r} is not LINK/STATE/ID/TOPIC")
        return found

    @property
    def is_read_only(self) -> bool:
        return self.state is not MirrorState.PROMOTED

    @property
    def is_fetched(self) -> bool:
        """Whether leaders fetch from the source."""
        return self.state in (MirrorState.MIRRORING, MirrorState.PROMOTING)

    def __str__(self) -> str:
        text = f"{self.link}/{self.state}/{format_topic_id(self.source_id)}/{self.source_topic}"
        return f"{text}/{','.join(map(str, self.ends))}" if self.ends else text


def check_mirrored_topic(text: str) -> str | None:
    """The error of a value of `penstock.link`; None if it is valid."""
    try:
        if text:
            MirroredTopic.parse(text)
    except InvalidConfig as e:
        return str(e)
    return None
