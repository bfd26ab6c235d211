"""The one way from an earlier stage of a broker to a later one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.broker.app.upward_port import LaterStages, UpwardPort
from penstock.broker.replica.partition import Partition
from penstock.security.revocation_lists import RevocationLists
from penstock.wire.metadata_records import TopicRecord

PARTITION = cast(Partition, object())
LISTS = cast(RevocationLists, object())


def later(calls: list[tuple[Any, ...]]) -> LaterStages:
    """Stages that note what they are called with."""

    async def applied(records: Any) -> None:
        calls.append(("metadata_applied", list(records)))

    async def revoked(listener: str, lists: RevocationLists) -> None:
        calls.append(("certificates_revoked", listener, lists))

    return LaterStages(
        hosted=lambda partition: calls.append(("hosted", partition)),
        metadata_doubt=lambda: "a snapshot",
        review=lambda partitions: calls.append(("review", list(partitions))),
        heartbeat_due=lambda: calls.append(("heartbeat_due",)),
        metadata_applied=applied,
        certificates_revoked=revoked,
    )


def test_each_call_reaches_its_receiver() -> None:
    async def main() -> None:
        calls: list[tuple[Any, ...]] = []
        port = UpwardPort()
        port.connect(later(calls))
        record = TopicRecord(name="t", topic_id=bytes(16))
        port.hosted(PARTITION)
        port.review([PARTITION])
        port.heartbeat_due()
        await port.metadata_applied([record])
        await port.certificates_revoked("TLS", LISTS)
        assert port.metadata_doubt() == "a snapshot"
        assert calls == [
            ("hosted", PARTITION),
            ("review", [PARTITION]),
            ("heartbeat_due",),
            ("metadata_applied", [record]),
            ("certificates_revoked", "TLS", LISTS),
        ]

    asyncio.run(main())


def test_a_stage_that_starts_before_all_are_composed_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="before all were composed"):
        UpwardPort().hosted(PARTITION)


def test_the_stages_are_connected_once() -> None:
    port = UpwardPort()
    port.connect(later([]))
    with pytest.raises(AssertionError, match="once"):
        port.connect(later([]))
