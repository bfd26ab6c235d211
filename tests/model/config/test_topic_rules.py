"""Checks of topic configs."""

from __future__ import annotations

import pytest

from penstock.model.config.topic_rules import check_gzip_level, check_throttled_replicas


@pytest.mark.parametrize(("level", "is_valid"), [(-1, True), (1, True), (9, True), (0, False), (10, False)])
def test_gzip_levels(level: int, is_valid: bool) -> None:
    assert (check_gzip_level(level) is None) == is_valid


@pytest.mark.parametrize(
    ("replicas", "is_valid"), [(("*",), True), (("0:1", "2:3"), True), ((), True), (("0",), False)]
)
def test_throttled_replicas(replicas: tuple[str, ...], is_valid: bool) -> None:
    assert (check_throttled_replicas(replicas) is None) == is_valid
