"""Names of tests have components and domain objects as subjects, as CONTRIBUTING.md asks of sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: words without a component, a domain object or a role: the reader has to find out which one is meant
_VAGUE = "who|whom|whoever|nobody|somebody|anybody|everybody|everyone|someone|what|whatever"
_WRONG = re.compile(rf"_(?:{_VAGUE})(?:_|$)|^test_(?:it|they|them|those)_")


def names() -> Iterator[tuple[str, str]]:
    """Each test as the path of its module and its name."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for found in re.finditer(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M):
            yield str(path.relative_to(ROOT)), found[1]


def test_names_of_tests_have_a_subject() -> None:
    assert [f"{path}::{name}" for path, name in names() if _WRONG.search(name)] == [], (
        "name the component and its behaviour with Kafka's terms"
    )


def test_vague_names_are_found() -> None:
    for name in ("test_who_waits_is_answered", "test_it_waits", "test_a_lag_that_nobody_knows", "test_what"):
        assert _WRONG.search(name)
    for name in ("test_a_waiting_fetch_is_answered", "test_itself_and_whole_batches"):
        assert not _WRONG.search(name)
