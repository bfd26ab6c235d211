"""The denials of one request: exact counts, a few names, and a cost that does not grow."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.broker.base.denials import SAMPLES_MAX, Denials, DeniedKind
from penstock.security.acls import Operation, ResourceType

READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def test_denials_are_counted_by_operation_and_type_in_the_order_of_the_first() -> None:
    denials = Denials(SimpleNamespace(), lambda ended: None)
    for operation, kind, name in ((READ, GROUP, "g"), (READ, TOPIC, "a"), (DESCRIBE, TOPIC, "a")) * 2:
        denials.add(operation, kind, name)
    assert list(denials) == [
        DeniedKind("READ", "GROUP", 2, ["g"]),
        DeniedKind("READ", "TOPIC", 2, ["a"]),
        DeniedKind("DESCRIBE", "TOPIC", 2, ["a"]),
    ]


def test_a_million_names_leave_a_count_and_the_first_few_names() -> None:
    denials = Denials(SimpleNamespace(), lambda ended: None)
    for n in range(1_000_000):
        denials.add(READ, TOPIC, str(n))
    assert list(denials) == [DeniedKind("READ", "TOPIC", 1_000_000, [str(n) for n in range(SAMPLES_MAX)])]


def test_the_end_is_reported_once_and_frees_the_context() -> None:
    ended: list[Denials] = []
    context = SimpleNamespace(denials=None)
    context.denials = Denials(context, ended.append)
    context.denials.add(READ, TOPIC, "t")
    context.denials.end()
    assert (context.denials, len(ended)) == (None, 1)
