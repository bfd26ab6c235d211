"""The limit of failed authentications."""

from __future__ import annotations

from penstock.quotas import failures
from penstock.quotas.failures import FailedLogins


def test_an_address_is_refused_until_its_window_has_passed() -> None:
    logins = FailedLogins(2, 1000)
    logins.failed("a", 0)
    assert not logins.refuses("a", 1)
    logins.failed("a", 10)
    assert logins.refuses("a", 999) and not logins.refuses("b", 999)
    assert not logins.refuses("a", 1000)
    logins.failed("a", 1000)
    assert not logins.refuses("a", 1001)


def test_without_a_limit_nothing_is_counted() -> None:
    logins = FailedLogins(0, 1000)
    logins.failed("a", 0)
    assert not logins.refuses("a", 0) and not logins._failures


def test_many_addresses_do_not_fill_the_memory() -> None:
    logins = FailedLogins(1, 1000)
    for n in range(5 * failures._PLACES_MIN):
        logins.failed(str(n), n * 10)
    assert len(logins._failures) <= failures._PLACES_MIN
