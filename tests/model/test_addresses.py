"""Addresses of brokers as text."""

from __future__ import annotations

import pytest

from penstock.model.addresses import address_text, parse_address, parse_bootstrap


@pytest.mark.parametrize(("host", "text"), [("::1", "[::1]:9092"), ("host", "host:9092")])
def test_an_address_survives_its_text(host: str, text: str) -> None:
    assert address_text(host, 9092) == text
    assert parse_address(f" {text} ") == (host, 9092)


def test_a_bootstrap_string_has_several_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == [("a", 1), ("::1", 2)]


@pytest.mark.parametrize(
    "text", ["", "nowhere", ":9092", "host:", "host:port", "host:0", "host:65536", "a:1,"]
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_bootstrap(text)
