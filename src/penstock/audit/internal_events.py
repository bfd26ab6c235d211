"""Events of the audit trail itself: checkpoints, the end of a chain, deleted files."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CHECKPOINT", "DROPPED", "FILE_DELETED", "STOPPED", "internal_event"]

#: a chain had no other event for a time
CHECKPOINT: Final = "audit_checkpoint"
#: the last event of a broker that stops
STOPPED: Final = "audit_stopped"
#: events were dropped, and no later event has reported their number
DROPPED: Final = "audit_events_dropped"
#: the oldest file is deleted; `last` is its last event
FILE_DELETED: Final = "audit_file_deleted"
#: OCSF's class of the life of an application, and its activity other than start and stop
_LIFECYCLE: Final = 6002
_OTHER: Final = 99


def internal_event(name: str, time_ms: int, **fields: Any) -> dict[str, Any]:
    """An event that no client has caused."""
    return {
        "event": name,
        "class_uid": _LIFECYCLE,
        "activity_id": _OTHER,
        "status_id": 1,
        "principal": "",
        "time": time_ms,
        **fields,
    }
