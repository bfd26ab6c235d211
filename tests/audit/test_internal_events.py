"""Events of the audit trail itself."""

from __future__ import annotations

from penstock.audit.internal_events import CHECKPOINT, internal_event


def test_an_internal_event_has_the_fields_of_the_others() -> None:
    event = internal_event(CHECKPOINT, 1234, node_id=1)
    assert (event["event"], event["class_uid"], event["time"], event["node_id"]) == (
        CHECKPOINT,
        6002,
        1234,
        1,
    )
    assert event["principal"] == ""
