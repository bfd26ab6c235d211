"""Single sign-on in a browser, from the login page over the page of a provider by others to the logout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lab import LabError
from lab.foreign import started
from lab.oidc_provider import oidc_server
from lab.server import free_port
from penstock.console.sso.settings import SsoSettings
from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.net.client_security import ClientSecurity, bearer_security
from penstock.security.sasl_client import BearerTokens
from penstock.testing import broker
from tests.console.browser import Browser, Page
from tests.console.logins import password_login
from tests.console.serving import serving

pytestmark = pytest.mark.process
CLIENT = "penstock-console"
PASSWORD = "adm1n-pw"


class Site(NamedTuple):
    console: str
    provider: str


def bearer(user: str, tokens: BearerTokens) -> ClientSecurity:
    return bearer_security("SASL_PLAINTEXT", lambda name: None, user, tokens, asyncio.to_thread)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """A provider, a broker that takes its ID tokens and passwords, and a console in front of both."""
    pytest.importorskip("cryptography")
    try:
        provider = oidc_server(tmp_path_factory.mktemp("oidc"))
    except LabError as missing:
        pytest.skip(str(missing).splitlines()[-1])
    issuer, port = f"http://localhost:{provider.port}", free_port()
    with started(provider):
        prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
        users = f'ScramLoginModule required user_admin="{PASSWORD}";'
        config = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": users,
            f"{prefix}jwks.endpoint.url": f"{issuer}/jwks",
            f"{prefix}expected.issuer": issuer,
            f"{prefix}expected.audience": CLIENT,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:alice;User:admin",
        }
        sso = SsoSettings(
            issuer=issuer,
            client_id=CLIENT,
            client_secret="secret",
            console_url=f"http://127.0.0.1:{port}",
            token="id",
            label="Example Login",
        )
        with broker(config=config) as running:
            settings = ConsoleSettings(
                bootstrap=parse_bootstrap(running.bootstrap),
                login=password_login("SASL_PLAINTEXT"),
                sso=sso,
                bearer=bearer,
                timeout_s=30.0,
            )
            with serving(settings, port) as url:
                yield Site(url, issuer)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.page()
    yield opened
    opened.close()


def authorize(page: Page, user: str) -> None:
    """Log in at the provider's own page."""
    page.until_text("Authorize Client")
    page.js(f"document.querySelector('input[name=sub]').value = '{user}'")
    page.click("Authorize")


def picture(page: Page, name: str) -> None:
    folder = os.environ.get("PENSTOCK_SCREENSHOTS")
    if folder:
        page.screenshot(Path(folder) / f"{name}.png")


def test_a_user_logs_in_at_the_provider_and_out_again(page: Page, site: Site) -> None:
    page.open(f"{site.console}/#/topics")
    page.until_text("Log in with Example Login", "form")
    page.until_text("or with a password", "form")
    assert page.nameless() == []
    picture(page, "login")
    page.click("Log in with Example Login")
    authorize(page, "alice")
    page.until_text("alice", "header")
    page.until("location.hash === '#/topics'")
    assert page.js("location.origin + location.pathname + location.search") == f"{site.console}/"
    page.click("Create topic")
    page.type("Name", "orders")
    page.click("Create")
    page.until_text("no message matches", "main")
    assert page.js("document.cookie") == "", "no script can read a cookie"
    page.click("Log out alice")
    page.until_text("end", "body")
    assert page.js("location.origin") == site.provider
    page.open(site.console)
    page.until_text("Log in with Example Login", "form")


def test_acls_decide_the_rights_of_a_user_of_the_provider(page: Page, site: Site) -> None:
    page.open(site.console)
    page.click("Log in with Example Login")
    authorize(page, "bob")
    page.until_text("bob", "header")
    answer = page.js("fetch('/api/topics/orders/messages').then(r => r.status)")
    assert answer in (403, 404)


def test_a_refusal_of_the_provider_is_shown(page: Page, site: Site) -> None:
    page.open(site.console)
    page.click("Log in with Example Login")
    page.until_text("Authorize Client")
    page.click("Deny")
    page.until_text("The provider has refused the login.", "form")
    assert page.js("location.search") == ""
    picture(page, "refused")


def test_passwords_work_beside_single_sign_on(page: Page, site: Site) -> None:
    page.open(site.console)
    page.type("User", "admin")
    page.type("Password", "wrong")
    page.click("Log in")
    page.until_text("have not accepted the login", "form")
    page.type("Password", PASSWORD)
    page.click("Log in")
    page.until_text("admin", "header")
