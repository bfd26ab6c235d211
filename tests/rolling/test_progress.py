"""The progress of a roll, as a file has it."""

from __future__ import annotations

import pytest

from penstock.rolling.progress import Progress, decoded, encoded


def test_progress_is_read_as_it_was_written() -> None:
    progress = Progress("restart")
    for step in (progress, progress.begin(2), progress.await_back(2), progress.finish(2)):
        assert decoded(encoded(step)) == step
    assert progress.finish(2).finish(1).left([1, 2, 3]) == [3]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"change": "x", "done": 3}', "\0", '{"change":1,"done":["x"]}']
)
def test_other_files_are_no_progress(text: str) -> None:
    assert decoded(text) is None
