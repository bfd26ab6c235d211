from __future__ import annotations

from pathlib import Path

import pytest

from penstock.archive.errors import ArchiveRefused
from penstock.objectstore.address import parse_address, parse_options


def test_addresses() -> None:
    assert parse_address("s3://bucket/a/b") == ("s3", "s3://bucket/a/b", None)
    assert parse_address("/var/archive").folder == Path("/var/archive")
    assert parse_address("file:///var/archive").folder == Path("/var/archive")
    assert parse_address("relative").folder == Path("relative").absolute()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("ftp://host/x", r"cannot be at ftp://: use a folder, or one of s3://"),
        ("s3:///x", "names no bucket"),
        ("file://host/x", "names no folder"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ArchiveRefused, match=reason):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    ["s3://id:sec-ret@bucket/x", "az://box/x?sig=sec-ret", "gs://bucket/x#sec-ret", "s3://sec-ret@b/x"],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ArchiveRefused, match="credentials in the environment or in a file") as refused:
        parse_address(text)
    assert "sec-ret" not in str(refused.value)


def test_options_of_a_file() -> None:
    text = "# the store\nAWS_ENDPOINT_URL = http://x:1\n\naws_secret_access_key=a=b\n"
    assert parse_options(text, "it") == {"aws_endpoint_url": "http://x:1", "aws_secret_access_key": "a=b"}
    with pytest.raises(ArchiveRefused, match="line 2 of it is not NAME=VALUE") as refused:
        parse_options("a=b\nsec-ret\n", "it")
    assert "sec-ret" not in str(refused.value)
