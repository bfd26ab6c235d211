"""Audit events and their limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.base import audit as audit_module
from penstock.broker.base.audit import Audit
from penstock.broker.base.audit_details import Details
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.context import Context
from penstock.broker.base.denials import SAMPLES_MAX
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import Principal, Session
from penstock.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tests.broker.events import Events

DONE = Details(True, [], 0, None)
SESSION = Session(Principal("User", "eve"), "CLIENTS", "10.0.0.9")


def context() -> Context:
    stats = SimpleNamespace(name="DeleteTopics")
    return cast(Context, SimpleNamespace(session=SESSION, stats=stats, client_id="c", denials=None))


def deny(audit: Audit, operation: Operation, *names: str, by: Context | None = None) -> None:
    """A request that is denied an operation on topics, and has its response."""
    denied = by or context()
    for name in names:
        audit.denied(denied, operation, ResourceType.TOPIC, name)
    end(denied)


def end(denied: Context) -> None:
    assert denied.denials is not None
    denied.denials.end()


def named(events: Events, event: str) -> list[dict[str, Any]]:
    return [fields for _, name, fields in events.all if name == event]


def test_events_have_the_fields_of_ocsf(events: Events) -> None:
    audit = Audit(10, lambda: 0.0)
    deny(audit, Operation.DELETE, "t")
    audit.changed(context(), DONE)
    audit.authentication_failed(SESSION, "PLAIN", "wrong password")
    (denied,) = named(events, "access_denied")
    assert (denied["class_uid"], denied["status_id"], denied["principal"]) == (6003, 2, "User:eve")
    assert (denied["api"], denied["operation"], denied["resource"]) == ("DeleteTopics", "DELETE", "t")
    (changed,) = named(events, "metadata_changed")
    assert (changed["class_uid"], changed["status_id"], changed["host"]) == (6003, 1, "10.0.0.9")
    (failed,) = named(events, "authentication_failed")
    assert (failed["class_uid"], failed["activity_id"], failed["mechanism"]) == (3002, 1, "PLAIN")


def test_a_request_with_many_denials_has_one_event(events: Events) -> None:
    """A request with 100,000 names wrote 100,000 events, or counted as many as dropped."""
    audit, denied = Audit(100, lambda: 0.0), context()
    for n in range(1000):
        audit.denied(denied, Operation.DESCRIBE, ResourceType.TOPIC, f"t{n % 500}")
    audit.denied(denied, Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    audit.denied(denied, Operation.DESCRIBE, ResourceType.TOPIC, "x" * 1000)
    assert not named(events, "access_denied"), "the request is not done"
    end(denied)
    assert denied.denials is None, "a later request of a connection that repeats itself has its own event"
    (event,) = named(events, "access_denied")
    assert (event["operation"], event["resource_type"], event["resource"]) == ("DESCRIBE", "TOPIC", "t0")
    assert event["denials"] == 1002
    topics = [f"t{n}" for n in range(SAMPLES_MAX)]
    assert event["denied"] == [
        {"operation": "DESCRIBE", "resource_type": "TOPIC", "count": 1001, "resources": topics},
        {"operation": "CREATE", "resource_type": "CLUSTER", "count": 1, "resources": ["kafka-cluster"]},
    ]
    assert audit.denials == {("DESCRIBE", "TOPIC"): 1001, ("CREATE", "CLUSTER"): 1}


def test_equal_requests_with_many_denials_are_one_event_and_a_count(events: Events) -> None:
    timers: list[Callable[[], None]] = []
    audit = Audit(100, lambda: 0.0, aggregation_s=10.0, call_later=lambda _, call: timers.append(call))
    for _ in range(3):
        deny(audit, Operation.READ, "a", "b")
    for timer in list(timers):
        timer()
    assert [event.get("count") for event in named(events, "access_denied")] == [None, 2]


def test_denials_of_a_request_without_a_response_are_written(events: Events) -> None:
    """A client that closes its connection before the response was not audited at all."""
    timers: list[Callable[[], None]] = []
    audit, gone = Audit(100, lambda: 0.0, call_later=lambda _, call: timers.append(call)), context()
    audit.denied(gone, Operation.READ, ResourceType.TOPIC, "t")
    while timers:
        timers.pop(0)()
    (event,) = named(events, "access_denied")
    assert event["resource"] == "t"
    deny(audit, Operation.READ, "answered")
    while timers:
        timers.pop(0)()
    assert len(named(events, "access_denied")) == 2


def test_events_beyond_the_limit_are_dropped_and_counted(events: Events) -> None:
    now = [0.0]
    audit = Audit(2, lambda: now[0])
    for _ in range(5):
        deny(audit, Operation.READ, "t")
    assert len(named(events, "access_denied")) == 2
    now[0] = 0.5
    deny(audit, Operation.READ, "t")
    assert named(events, "access_denied")[-1]["dropped"] == 3
    deny(audit, Operation.READ, "t")
    assert len(named(events, "access_denied")) == 3


def test_no_client_can_hide_a_change_behind_denials(events: Events) -> None:
    audit = Audit(2, lambda: 0.0)
    for n in range(5):
        deny(audit, Operation.READ, f"t{n}")
        audit.changed(context(), Details(False, [], 0, "CLUSTER_AUTHORIZATION_FAILED"))
        audit.authentication_failed(SESSION, "PLAIN", f"wrong password {n}")
    audit.changed(context(), DONE)
    (changed,) = named(events, "metadata_changed")
    assert changed["dropped"] == 13
    for _ in range(5):
        audit.changed(context(), DONE)
    assert len(named(events, "metadata_changed")) == 2


def test_a_limit_of_zero_writes_nothing(events: Events) -> None:
    audit = Audit(0, lambda: 0.0)
    deny(audit, Operation.READ, "t")
    assert not named(events, "access_denied")
    assert audit.denials == {("READ", "TOPIC"): 1}


def test_equal_events_are_one_event_and_a_count(events: Events) -> None:
    timers: list[Callable[[], None]] = []

    def call_later(seconds: float, call: Callable[[], None]) -> None:
        if seconds == 7.0:
            timers.append(call)

    audit = Audit(100, lambda: 0.0, aggregation_s=7.0, call_later=call_later)
    for _ in range(4):
        deny(audit, Operation.READ, "t")
    deny(audit, Operation.READ, "another")
    assert [found.get("count") for found in named(events, "access_denied")] == [None, None]
    timers.pop(0)()
    assert named(events, "access_denied")[-1] == {**named(events, "access_denied")[0], "count": 3}
    for timer in timers:
        timer()
    assert not audit._output._repeated, "the window has passed, and nothing has happened again"
    deny(audit, Operation.READ, "t")
    assert "count" not in named(events, "access_denied")[-1]


def test_texts_that_clients_choose_are_cut(events: Events) -> None:
    """Names of 32 KB made batches that the audit topic refused."""
    audit = Audit(100, lambda: 0.0, aggregation_s=10.0, call_later=lambda _, call: None)
    known = context()
    known.client_id = "c" * 32_767
    deny(audit, Operation.READ, "é" * 32_767, by=known)
    deny(audit, Operation.READ, "n" * 256, by=known)
    cut, whole = named(events, "access_denied")
    assert cut["resource"] == "é" * 255 + "…"
    assert cut["client_id"] == "c" * 255 + "…"
    assert whole["resource"] == "n" * 256
    assert max(len(str(part)) for key in audit._output._repeated for part in key) == 256


def test_an_administrative_change_names_its_resources(events: Events) -> None:
    async def handler(context: Context, request: CreateTopicsRequest) -> object:
        results = [
            CreatableTopicResult(name="orders"),
            CreatableTopicResult(name="bills", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        ]
        return CreateTopicsResponse(topics=results)

    serve = Audit(100, lambda: 0.0).audited(handler)
    asyncio.run(serve(context(), CreateTopicsRequest()))
    (changed,) = named(events, "metadata_changed")
    assert changed["resources"] == [
        {"type": "TOPIC", "name": "orders"},
        {"type": "TOPIC", "name": "bills", "error": "TOPIC_ALREADY_EXISTS"},
    ]
    assert not {"resources_left_out", "error", "validate_only"} & changed.keys()
    asyncio.run(serve(context(), CreateTopicsRequest(validate_only=True)))
    (validated,) = named(events, "metadata_not_changed")
    assert (validated["validate_only"], validated["status_id"]) == (True, 1)


@pytest.mark.parametrize("kind", ["plain", "coroutine", "deferred"])
def test_deleted_data_is_reported_by_every_kind_of_handler(events: Events, kind: str) -> None:
    code, pending = ErrorCode.NONE, Deferred[Any]()

    def respond() -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])

    def plain(context: Context, request: Any) -> Any:
        return respond()

    async def coroutine(context: Context, request: Any) -> Any:
        return respond()

    def deferred(context: Context, request: Any) -> Any:
        return pending

    handler: Any = {"plain": plain, "coroutine": coroutine, "deferred": deferred}[kind]
    serve: Any = Audit(100, lambda: 0.0).reported(handler)
    for code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE):
        pending = Deferred()
        answer = serve(context(), DeleteGroupsRequest())
        if kind == "coroutine":
            answer = asyncio.run(answer)
        elif kind == "deferred":
            pending.resolve(respond())
            answer = answer.value
        assert answer.results[0].error_code == code
    (changed,) = named(events, "data_changed")
    assert (changed["api"], changed["resources"]) == ("DeleteTopics", [{"type": "GROUP", "name": "g"}])


def test_an_abandoned_request_is_cancelled(events: Events) -> None:
    pending: Deferred[Any] = Deferred()
    cancelled: list[bool] = []
    pending.on_cancel = lambda: cancelled.append(True)
    serve: Any = Audit(100, lambda: 0.0).reported(lambda context, request: pending)
    serve(context(), DeleteGroupsRequest()).cancel()
    assert cancelled and not events.all


def test_administrative_changes_are_never_summed_up(events: Events) -> None:
    audit = Audit(100, lambda: 0.0, aggregation_s=10.0, call_later=lambda _, call: None)
    for _ in range(3):
        audit.changed(context(), DONE)
    assert len(named(events, "metadata_changed")) == 3


def test_events_go_to_the_queue_and_not_to_the_log(events: Events) -> None:
    async def main() -> None:
        queue = AuditQueue(2)
        audit = Audit(100, lambda: 0.0, to_log=False, queue=queue, wall_ms=lambda: 77)
        for _ in range(4):
            audit.changed(context(), DONE)
        assert [event["time"] for event in queue.first(9)] == [77, 77]
        queue.remove(2)
        audit.changed(context(), DONE)
        assert queue.first(1)[0]["dropped"] == 2

    asyncio.run(main())
    assert not named(events, "metadata_changed")


def test_events_that_the_topic_has_refused_are_reported() -> None:
    async def main() -> None:
        queue = AuditQueue(10)
        audit = Audit(100, lambda: 0.0, to_log=False, queue=queue)
        for _ in range(3):
            audit.changed(context(), DONE)
        queue.drop_first()
        queue.drop_first()
        audit.changed(context(), DONE)
        audit.changed(context(), DONE)
        assert [event.get("dropped") for event in queue.first(9)] == [None, 2, None]

    asyncio.run(main())


def test_writing_audit_events_is_not_audited(events: Events) -> None:
    audit = Audit(100, lambda: 0.0, internal="CLIENTS")
    deny(audit, Operation.WRITE, "__audit")
    assert not named(events, "access_denied")


def test_a_change_that_has_waited_for_room_is_never_dropped() -> None:
    """Requests that waited together all went on with the first free place, and all but one event was lost."""

    async def main() -> None:
        queue, may_end = AuditQueue(3), asyncio.Event()
        audit = Audit(1, lambda: 0.0, to_log=False, queue=queue, blocks=True)

        async def handler(context: Context, request: str) -> object:
            await may_end.wait()
            if request == "fails":
                raise ValueError(request)
            return SimpleNamespace()

        serve = audit.audited(handler)
        running = [asyncio.ensure_future(serve(context(), str(n))) for n in range(5)]
        failing = asyncio.ensure_future(serve(context(), "fails"))
        await asyncio.sleep(0)
        for n in range(5):
            deny(audit, Operation.READ, f"t{n}")
        assert not len(queue), "the room is reserved"
        may_end.set()
        while not all(task.done() for task in running):
            await asyncio.sleep(0)
            queue.remove(len(queue))
        with pytest.raises(ValueError, match="fails"):
            await failing
        await asyncio.gather(*running)
        queue.remove(len(queue))
        for n in range(3):
            await serve(context(), str(n))
        assert len(queue) == 3, "nothing stays reserved, and no rate drops a change"

    asyncio.run(main())


def test_a_change_waits_for_room_and_is_refused_without(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []

    async def handler(context: Context, request: str) -> object:
        executed.append(request)
        return SimpleNamespace()

    async def main() -> None:
        queue = AuditQueue(1)
        audit = Audit(100, lambda: 0.0, to_log=False, queue=queue, blocks=True)
        serve = audit.audited(handler)
        await serve(context(), "first")
        waiting = asyncio.ensure_future(serve(context(), "second"))
        await asyncio.sleep(0)
        assert executed == ["first"]
        queue.remove(1)
        await waiting
        assert executed == ["first", "second"]
        monkeypatch.setattr(audit_module, "_ROOM_S", 0.0)
        with pytest.raises(ProtocolError):
            await serve(context(), "third")

    asyncio.run(main())
    assert executed == ["first", "second"]
