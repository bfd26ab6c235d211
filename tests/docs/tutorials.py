"""Runs a tutorial as a reader does, and compares what its blocks print with what the page shows.

A block of `text` that follows a block of code is its output; `…` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.docs.walkthrough import Block, Shell, blocks

__all__ = ["check", "follow", "matches", "page", "steps"]

_RUNNABLE: Final = ("sh", "python")


def steps(page: str) -> Iterator[tuple[Block, str | None]]:
    """The blocks that run, each with the output on the page."""
    before: Block | None = None
    for block in blocks(page, *_RUNNABLE, "text"):
        if block.language == "text":
            assert before is not None, f"{page} shows the output of nothing: {block.code}"
            yield before, block.code
            before = None
            continue
        if before is not None:
            yield before, None
        before = block
    if before is not None:
        yield before, None


def page(name: str) -> str:
    return f"docs/tutorials/{name}.md"


def matches(shown: str, output: str) -> bool:
    return bool(re.fullmatch(re.escape(shown).replace("…", ".*"), output, re.DOTALL))


def check(block: Block, output: str, expected: str | None) -> None:
    if expected is not None:
        assert matches(expected, output), f"{block.page} shows\n{expected}\nand this came\n{output}"


def follow(name: str, shell: Shell) -> int:
    """Run a page; the number of outputs that were compared."""
    compared = 0
    for block, expected in steps(name):
        check(block, shell.run(block), expected)
        compared += expected is not None
    return compared
