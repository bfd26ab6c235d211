"""The lines of programs of the Java client become deliveries."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.deliveries import Delivery
from chaos.share_members import ConsoleMember, JavaMember, VerifiableMember


def taken(kind: type[JavaMember | VerifiableMember | ConsoleMember], *lines: str) -> list[Delivery]:
    deliveries: list[Delivery] = []
    member = kind("host:1", Path("jars"), deliveries)
    for line in lines:
        member.take(line + "\n")
    assert {delivery.client for delivery in deliveries} == {member.client}
    return deliveries


def shown(deliveries: list[Delivery]) -> list[tuple[int, bool, bool]]:
    return [(d.value, d.is_accepted, d.accepted_at is not None) for d in deliveries]


def test_lines_of_the_share_consumer() -> None:
    found = taken(JavaMember, "accepts 7", "releases 8", "accepts 9", "accepted 7")
    assert shown(found) == [(7, True, True), (8, False, False), (9, True, False)]


@pytest.mark.parametrize("is_good", [True, False])
def test_events_of_the_verifiable_share_consumer(is_good: bool) -> None:
    success = str(is_good).lower()
    found = taken(
        VerifiableMember,
        '{"timestamp":1,"name":"startup_complete"}',
        '{"timestamp":2,"name":"record_data","key":null,"value":"7","topic":"chaos","partition":1,"offset":3}',
        '{"timestamp":3,"name":"records_consumed","count":1,"partitions":[]}',
        '{"timestamp":4,"name":"offsets_acknowledged","count":1,"partitions":[{"topic":"chaos","partition":1,'
        f'"count":1,"offsets":[3]}}],"success":{success}}}',
    )
    assert shown(found) == [(7, True, is_good)]


def test_lines_of_the_console_share_consumer() -> None:
    assert shown(taken(ConsoleMember, "7", "[warning] something", "8")) == [
        (7, True, False),
        (8, True, False),
    ]
