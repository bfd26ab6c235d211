"""The browser behind a console: believed only of connections from the addresses of consoles."""

from __future__ import annotations

import pytest

from penstock.model.config.broker import BrokerConfig
from penstock.model.errors import InvalidConfig
from penstock.security.console_visitors import ConsoleVisitors

KNOWN = ConsoleVisitors(["10.0.0.5", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("address", "client_id", "visitor"),
    [
        ("10.0.0.5", "penstock-console/203.0.113.7", "203.0.113.7"),
        ("2001:db8::9", "penstock-console/2001:DB8:0::7", "2001:db8::7"),
        ("10.0.0.5", "penstock-console/::ffff:203.0.113.7", "203.0.113.7"),
        ("10.0.0.6", "penstock-console/203.0.113.7", ""),
        ("10.0.0.5", "penstock-console", ""),
        ("10.0.0.5", "penstock-console/", ""),
        ("10.0.0.5", "penstock-console/localhost", ""),
        ("10.0.0.5", "other/203.0.113.7", ""),
        ("10.0.0.5", None, ""),
        ("somewhere", "penstock-console/203.0.113.7", ""),
    ],
)
def test_the_browser_behind_a_connection(address: str, client_id: str | None, visitor: str) -> None:
    assert KNOWN.of(address, client_id) == visitor


def test_no_console_is_trusted_by_default() -> None:
    assert ConsoleVisitors(()).of("127.0.0.1", "penstock-console/203.0.113.7") == ""


def test_addresses_are_checked() -> None:
    with pytest.raises(InvalidConfig, match=r"penstock.console.addresses.*addresses or networks"):
        BrokerConfig({"penstock.console.addresses": "10.0.0.5,nowhere"})
