"""The config `penstock.link` of a mirrored topic: its link, its state, and the topic at the source."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig, PolicyViolation
from penstock.model.ids import TopicId, format_topic_id, parse_topic_id

__all__ = ["LINK_CONFIG", "Cut", "MirrorState", "MirroredTopic", "check_mirrored_topic", "check_order"]

#: the name of the config
LINK_CONFIG: Final = "penstock.link"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
#: behind the number of a promotion that was given up
_LIFTED: Final = "lifted"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class MirrorState(StrEnum):
    """The states of a mirrored topic, in their order."""

    #: a topic that had records of its own: leaders look for the last point in common with the source
    RETURNING = "returning"
    #: leaders fetch from the source
    MIRRORING = "mirroring"
    #: leaders fetch, and a broker asks the source to refuse records of producers
    FENCING = "fencing"
    #: each leader fetches until it has everything that the source has, and stops
    PROMOTING = "promoting"
    #: leaders do not fetch any more, and abort the transactions that are open
    CLOSING = "closing"
    #: the topic is an ordinary one
    PROMOTED = "promoted"
    #: of a topic at the source: it takes no records since its mirror in another cluster is promoted
    FENCED = "fenced"
    #: of a topic at the source: it was fenced, and takes records again
    LIFTED = "lifted"


class Cut(NamedTuple):
    """Where the log of a partition ended when its topic returned to a link.

    The rest of the log is in the quarantine: records from `offset` on of leader epochs up to `leader_epoch`.
    """

    offset: int
    leader_epoch: int

    @classmethod
    def parse(cls, text: str) -> Cut:
        offset, _, epoch = text.partition("@")
        return cls(int(offset), int(epoch))

    def is_due(self, end_offset: int, latest_epoch: int, leader_epoch: int) -> bool:
        """Whether a log is to be cut: it has records behind the cut, and none of a later leader epoch.

        `latest_epoch` is that of its last record, `leader_epoch` the partition's in the metadata.
        """
        return end_offset > self.offset and latest_epoch <= self.leader_epoch < leader_epoch

    def __str__(self) -> str:
        return f"{self.offset}@{self.leader_epoch}"


class MirroredTopic(NamedTuple):
    """The value of `penstock.link`, as `LINK/STATE/ID/TOPIC`.

    At the end it has `/OFFSETS` if the topic is promoted, and `/CUTS` if it has returned to the link. A state
    has `.NUMBER` behind it if a promotion has fenced the source, or was to, and `.NUMBER.lifted` in a later
    promotion without a fence.
    """

    link: str
    state: MirrorState
    source_id: TopicId
    source_topic: str
    #: the end of the mirrored records of each partition of a promoted topic
    ends: tuple[int, ...] = ()
    #: of each partition of a topic that has returned, until it is promoted again
    cuts: tuple[Cut, ...] = ()
    #: the number of the last promotion with a fence, which rises; 0 if there was none
    fence: int = 0
    #: of a topic behind `MIRRORING`: that promotion was given up before, and its fence is not to stay
    is_lifted: bool = False

    @classmethod
    def parse(cls, text: str) -> MirroredTopic:
        parts = text.split("/")
        try:
            link, state, topic_id, topic = parts[:4]
            last = parts[4].split(",") if len(parts) == 5 and parts[4] else []
            ends = tuple(int(each) for each in last if "@" not in each)
            cuts = tuple(Cut.parse(each) for each in last if "@" in each)
            state, *numbered = state.split(".")
            number = int(numbered[0]) if numbered else 0
            is_lifted = numbered[1:] == [_LIFTED]
            source_id = parse_topic_id(topic_id)
            found = cls(link, MirrorState(state), source_id, topic, ends, cuts, number, is_lifted)
        except ValueError as e:
            raise InvalidConfig(f"{text!r} is not LINK/STATE/ID/TOPIC: {e}") from e
        named = _NAME.fullmatch(link) and _TOPIC.fullmatch(topic)
        negative = number < 0 or min(ends, default=0) < 0 or any(min(cut) < 0 for cut in cuts)
        is_strange = len(numbered) > 1 + is_lifted or (is_lifted and not number)
        if len(parts) > 5 or not named or negative or (ends and cuts) or is_strange:
            raise InvalidConfig(f"{text!r} is not LINK/STATE/ID/TOPIC")
        return found

    @property
    def is_read_only(self) -> bool:
        return self.state not in (MirrorState.PROMOTED, MirrorState.LIFTED)

    @property
    def is_source(self) -> bool:
        """Whether this is the state of a topic that a link of another cluster mirrors, or has mirrored."""
        return self.state in (MirrorState.FENCED, MirrorState.LIFTED)

    @property
    def is_fetched(self) -> bool:
        """Whether leaders fetch from the source."""
        return self.state in (MirrorState.MIRRORING, MirrorState.FENCING, MirrorState.PROMOTING)

    @property
    def lifts_fence(self) -> bool:
        """Whether the last promotion with a fence was given up: brokers lift the fence at the source."""
        return self.fence > 0 and (self.state is MirrorState.MIRRORING or self.is_lifted)

    def behind(self, state: MirrorState) -> MirroredTopic:
        """The topic in a later state of a promotion or a failover, which does not change the source."""
        return self._replace(state=state, is_lifted=self.lifts_fence)

    @property
    def numbered_state(self) -> str:
        """The state, with the number of a promotion with a fence."""
        number = f".{self.fence}" if self.fence else ""
        return f"{self.state}{number}.{_LIFTED}" if self.is_lifted else f"{self.state}{number}"

    def __str__(self) -> str:
        text = f"{self.link}/{self.numbered_state}/{format_topic_id(self.source_id)}/{self.source_topic}"
        last = self.ends or self.cuts
        return f"{text}/{','.join(map(str, last))}" if last else text


def check_order(current: str, value: str) -> None:
    """Refuse a `value` of `penstock.link` that comes too late: a newer promotion has set the current one.

    Why: brokers fence a source, and lift its fence, by requests that may be on their way for a long time.
    """
    if not value or value == current:
        return
    wanted, known = MirroredTopic.parse(value), MirroredTopic.parse(current) if current else None
    if wanted.state is MirrorState.PROMOTING and wanted.fence and not wanted.is_lifted:
        if known is None or known.fence != wanted.fence or known.state is not MirrorState.FENCING:
            raise PolicyViolation(f"promotion {wanted.fence} of {wanted.source_topic} was given up")
    elif wanted.is_source and known is not None and known.is_source:
        is_same = (known.link, known.source_id) == (wanted.link, wanted.source_id)
        if is_same and _order(wanted) < _order(known):
            raise PolicyViolation(f"link {wanted.link} has begun promotion {known.fence} since: {value}")


def _order(topic: MirroredTopic) -> tuple[int, bool]:
    return topic.fence, topic.state is MirrorState.LIFTED


def check_mirrored_topic(text: str) -> str | None:
    """The error of a value of `penstock.link`; None if it is valid."""
    try:
        if text:
            MirroredTopic.parse(text)
    except InvalidConfig as e:
        return str(e)
    return None
