"""The record of the first five minutes is about the README as it is."""

from __future__ import annotations

import re

from tools.newcomer import PAGE, ROOT, Installed, Step, recorded, render, steps

README = (ROOT / "README.md").read_text(encoding="utf-8")


def without_comments(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(language, code.strip()) for language, code in found]


def test_the_record_has_the_blocks_of_the_readme() -> None:
    """After a change of the README's blocks: `make newcomer`."""
    page = PAGE.read_text(encoding="utf-8")
    assert without_comments(recorded(page)) == without_comments(steps(README))


def test_a_newcomer_takes_less_than_five_minutes() -> None:
    (total,) = re.findall(r"^\| all \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert 0 < float(total) < 300


def test_a_record_has_times_and_outputs() -> None:
    text = render(
        [Step("sh", "penstock up", 0.5, "ready 127.0.0.1:9092\n"), Step("python", "import os\nx = 1", 1, "")],
        "m",
    )
    assert "| 1. `penstock up` | 0.5 |" in text
    assert "| 2. the program that begins with `import os` | 1.0 |" in text
    assert "| all | 1.5 |" in text
    assert "ready 127.0.0.1:9092" in text and "It prints nothing." in text
    assert recorded(text) == [("sh", "penstock up"), ("python", "import os\nx = 1\n")]


def test_a_record_has_the_size_of_the_clients_alone() -> None:
    text = render([], "m", [Installed("penstock-mq-client", ("penstock_mq_client", "msgspec"), 20_400_000)])
    assert "| `penstock-mq-client` | 2 | 20 |" in text


def test_the_record_says_how_much_smaller_the_clients_alone_are() -> None:
    sizes = dict(re.findall(r"^\| `(penstock-mq(?:-client)?)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE))
    assert int(sizes["penstock-mq-client"]) < int(sizes["penstock-mq"])
