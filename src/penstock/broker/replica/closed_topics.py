"""Topics that clients do not append to: internal ones, those that are being restored, and mirrors."""

from __future__ import annotations

from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.model.errors import InvalidTopic, PolicyViolation
from penstock.model.ids import INTERNAL_TOPICS
from penstock.storage.config import LogConfig

__all__ = ["check_open", "is_closed", "is_mirror", "takes_markers"]


def is_closed(topic: str, config: LogConfig) -> bool:
    """Returns true if only the broker itself, a restore, or a link may append."""
    # A coordinator relies on what it reads back from an internal topic.
    return topic in INTERNAL_TOPICS or config.penstock_restoring or is_mirror(config)


def is_mirror(config: LogConfig) -> bool:
    """Returns true if a link mirrors the topic: only what the source has is appended."""
    return bool(config.penstock_link) and MirroredTopic.parse(config.penstock_link).is_read_only


def takes_markers(config: LogConfig) -> bool:
    """Returns true if transactions of this cluster may be open in the topic: its producers wrote to it.

    They wrote to a topic that is fenced, or returns to a link, as long as it was an ordinary one.
    """
    if not config.penstock_link:
        return True
    topic = MirroredTopic.parse(config.penstock_link)
    return topic.is_source or topic.state in (MirrorState.PROMOTED, MirrorState.RETURNING)


def check_open(topic: str, config: LogConfig) -> None:
    """Raise the reason for which the append of a client is refused, if there is one."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Cannot append to internal topic {topic}")
    if config.penstock_restoring:
        raise PolicyViolation(f"topic {topic} is being restored from a backup")
    if is_mirror(config):
        link = MirroredTopic.parse(config.penstock_link)
        if link.state is MirrorState.FENCED:
            raise PolicyViolation(
                f"topic {topic} is read-only: link {link.link} of another cluster has promoted its mirror "
                f"{link.source_topic}; produce there"
            )
        raise PolicyViolation(
            f"topic {topic} is read-only: link {link.link} mirrors it from {link.source_topic} of "
            f"another cluster; produce there, or promote the topic"
        )
