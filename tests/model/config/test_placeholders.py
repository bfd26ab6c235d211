"""Values of configs that are in files and in the environment."""

from __future__ import annotations

import pytest

from penstock.model.config.placeholders import resolved
from penstock.model.errors import InvalidConfig

FILES = {"/run/secret": "hunter2\n", "/run/keys.properties": "a=1\nkey.b = two words\n"}


def read(path: str) -> str:
    try:
        return FILES[path]
    except KeyError:
        raise FileNotFoundError(path) from None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${file:/run/secret}", "hunter2"),
        ("${file:/run/keys.properties:key.b}", "two words"),
        ('x required user_a="${env:PASSWORD}";', 'x required user_a="pw";'),
        ("${other:x} $5", "${other:x} $5"),
    ],
)
def test_values_are_replaced(text: str, value: str) -> None:
    assert resolved({"k": text}, read, {"PASSWORD": "pw"}) == {"k": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:MISSING}", "k refers to the environment variable MISSING"),
        ("${file:/nowhere}", "k refers to the file /nowhere"),
        ("${file:/run/keys.properties:c}", "k refers to c in the file"),
    ],
)
def test_a_value_that_does_not_exist_is_an_error(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        resolved({"k": text}, read, {})
