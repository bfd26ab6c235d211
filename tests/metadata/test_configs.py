"""What an incremental alteration makes of a list."""

from __future__ import annotations

from time import thread_time

import pytest

from penstock.metadata.configs import Alteration, Operation, alter_incrementally


def _altered(text: str, operation: Operation, value: str) -> str:
    return alter_incrementally({"list": text}, {"list": ""}, [Alteration("list", operation, value)])["list"]


@pytest.mark.parametrize(
    ("text", "operation", "value", "result"),
    [
        ("a,b", Operation.APPEND, "c,b,c", "a,b,c"),
        ("", Operation.APPEND, "a", "a"),
        ("a,b,a,c,a", Operation.SUBTRACT, "a,c,a,d", "b,a"),
        ("a", Operation.SUBTRACT, "a", ""),
    ],
)
def test_a_list_is_changed_by_its_items(text: str, operation: Operation, value: str, result: str) -> None:
    assert _altered(text, operation, value) == result


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_the_cost_is_linear_in_the_items(operation: Operation) -> None:
    """The value of a config has 32,767 characters at most; half a second for each such list before."""
    listed = ",".join(f"{number:04x}" for number in range(6500))
    changed = ",".join(f"{number:04x}" for number in range(6500 + 6499, 6499, -1))
    items = changed if operation is Operation.APPEND else listed[::-1]

    def cost_s() -> float:
        began = thread_time()
        _altered(listed, operation, items)
        return thread_time() - began

    assert min(cost_s() for _ in range(3)) < 0.1
