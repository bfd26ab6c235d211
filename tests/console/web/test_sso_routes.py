"""Single sign-on over HTTP: a strict provider, a broker with OAUTHBEARER and ACLs, and what may go wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import pytest
from starlette.testclient import TestClient

from penstock.console.sso import provider as provider_module
from penstock.console.sso.settings import SsoSettings
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.console.web.sessions import COOKIE, SECURE_COOKIE
from penstock.model.addresses import parse_bootstrap
from penstock.net.client_security import ClientSecurity, bearer_security
from penstock.security.sasl_client import BearerTokens
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.console.oidc import AUDIENCE, CLIENT, SECRET, OidcProvider
from tests.waiting import eventually

pytest.importorskip("cryptography")
CONSOLE = "http://127.0.0.1:8088"
PLAIN = {"security.protocol": "SASL_PLAINTEXT"}


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    found = OidcProvider()
    found.redirect_uris.add(f"{CONSOLE}/sso/callback")
    yield found
    found.close()


@pytest.fixture
def running(provider: OidcProvider) -> Iterator[BrokerThread]:
    """A broker that takes tokens of the provider; alice is a super user, bob has no rights."""
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}jwks.endpoint.url": provider.jwks_url,
        f"{prefix}expected.issuer": provider.issuer,
        f"{prefix}expected.audience": f"{AUDIENCE},{CLIENT}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
        "connection.failed.authentication.delay.ms": "0",
        "penstock.insecure.listeners.allow": "true",
    }
    with broker(config=config) as found:
        yield found


def settings_of(provider: OidcProvider, **changes: Any) -> SsoSettings:
    given = {"issuer": provider.issuer, "client_id": CLIENT, "client_secret": SECRET, "console_url": CONSOLE}
    return SsoSettings(**{**given, **changes})


def bearer(user: str, tokens: BearerTokens) -> ClientSecurity:
    return bearer_security("SASL_PLAINTEXT", PLAIN.get, user, tokens, asyncio.to_thread)


def client_of(running: BrokerThread, sso: SsoSettings) -> TestClient:
    bootstrap = parse_bootstrap(running.bootstrap)
    settings = ConsoleSettings(bootstrap=bootstrap, sso=sso, bearer=bearer, timeout_s=20.0)
    headers = {"x-penstock-console": "1"}
    return TestClient(build_app(settings), base_url=sso.console_url, headers=headers, follow_redirects=False)


@pytest.fixture
def client(running: BrokerThread, provider: OidcProvider) -> Iterator[TestClient]:
    with client_of(running, settings_of(provider)) as found:
        yield found


def to_provider(client: TestClient, page: str = "") -> str:
    """The address to which the console sends a browser."""
    response = client.get("/sso/login", params={"page": page})
    assert response.status_code == 303, response.text
    return str(response.headers["location"])


def answered(url: str) -> str:
    """The address to which the provider sends the browser back."""
    try:
        build_opener(_NoRedirect).open(Request(url), timeout=30).close()
    except HTTPError as redirect:
        with redirect:
            return str(redirect.headers["Location"])
    raise AssertionError("the provider has not redirected")


def log_in(client: TestClient, page: str = "") -> Any:
    return client.get(answered(to_provider(client, page)))


def is_logged_in(client: TestClient) -> bool:
    return bool(client.get("/api/session").json()["logged_in"])


def failed(response: Any) -> str:
    """The reason on the login page after a login that has failed."""
    assert response.status_code == 303
    assert COOKIE not in response.headers.get("set-cookie", "")
    place = urlsplit(response.headers["location"])
    assert (place.scheme, place.netloc, place.path) == ("", "", "/")
    return str(parse_qs(place.query)["sso"][0])


def test_a_user_logs_in_and_acls_apply_to_the_person(client: TestClient, provider: OidcProvider) -> None:
    session = client.get("/api/session").json()
    assert (session["needs_login"], session["passwords"], session["sso"]) == (True, False, "Single sign-on")
    response = log_in(client, "#/topics/orders/messages?from=oldest")
    assert response.status_code == 303
    assert response.headers["location"] == "/#/topics/orders/messages?from=oldest"
    assert client.get("/api/session").json()["user"] == "alice"
    assert client.post("/api/topics", json={"name": "mine", "replicas": 1}).status_code == 200
    client.post("/api/logout")
    provider.user = "bob"
    assert log_in(client).headers["location"] == "/"
    assert client.get("/api/session").json()["user"] == "bob"
    assert client.get("/api/topics/mine/messages").status_code == 403
    assert client.post("/api/topics", json={"name": "other", "replicas": 1}).status_code == 403


def test_cookies_are_protected(client: TestClient) -> None:
    begun = client.get("/sso/login").headers["set-cookie"].lower()
    assert "httponly" in begun and "samesite=lax" in begun and "max-age=600" in begun
    response = log_in(client)
    session = [each.lower() for each in response.headers.get_list("set-cookie") if COOKIE in each]
    assert "httponly" in session[0] and "samesite=strict" in session[0]
    assert "no-store" in response.headers["cache-control"]


def test_cookies_need_tls_behind_tls(running: BrokerThread, provider: OidcProvider) -> None:
    sso = settings_of(provider, console_url="https://localhost")
    provider.redirect_uris.add(sso.redirect_uri)
    with client_of(running, sso) as client:
        begun = client.get("/sso/login").headers["set-cookie"]
        assert begun.startswith("__Host-penstock_sso=")
        assert "; Secure" in begun and "Path=/" in begun and "Domain" not in begun
        response = log_in(client)
        cookies = response.headers.get_list("set-cookie")
        assert all("; Secure" in each for each in cookies)
        (session,) = [each for each in cookies if each.startswith(f"{SECURE_COOKIE}=")]
        assert SECURE_COOKIE.startswith("__Host-") and "Path=/" in session and "Domain" not in session
        assert is_logged_in(client)
        client.cookies[COOKIE] = client.cookies[SECURE_COOKIE]
        del client.cookies[SECURE_COOKIE]
        assert not is_logged_in(client), "a page without TLS could have set it"


def test_the_id_token_may_be_for_brokers(running: BrokerThread, provider: OidcProvider) -> None:
    provider.tokens = {"access_token": "opaque"}
    with client_of(running, settings_of(provider, token="id")) as client:
        log_in(client)
        assert is_logged_in(client)
        assert client.get("/api/topics").status_code == 200
    with client_of(running, settings_of(provider)) as client:
        assert failed(log_in(client)) == "rejected"


@pytest.mark.parametrize(
    "page",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "#//evil",
        "javascript:alert(1)",
        "#/\r\nX: y",
    ],
)
def test_a_login_never_leads_to_another_site(client: TestClient, page: str) -> None:
    place = log_in(client, page).headers["location"]
    assert place in ("/", "/#//evil")
    assert urlsplit(place).netloc == ""


def test_an_answer_needs_the_browser_that_has_asked(client: TestClient, running: BrokerThread) -> None:
    """An attacker's own answer, opened in another browser, must not log that browser in."""
    place = answered(to_provider(client))
    client.cookies.clear()
    assert failed(client.get(place)) == "expired"
    to_provider(client)
    assert failed(client.get(place)) == "expired", "the state is that of another login"
    assert not is_logged_in(client)


def test_an_answer_counts_once(client: TestClient) -> None:
    place = answered(to_provider(client))
    cookies = dict(client.cookies)
    assert client.get(place).headers["location"] == "/"
    client.cookies = cookies
    assert failed(client.get(place)) == "provider"


@pytest.mark.parametrize(
    "cookie", ["", "x", "x.y", "W10.", ".".join(["eyJ4IjoxfQ==", "0" * 64]), "\u00e4.b", "a" * 4000]
)
def test_a_forged_cookie_is_refused(client: TestClient, cookie: str) -> None:
    place = answered(to_provider(client))
    client.cookies.clear()
    headers = {b"cookie": f"penstock_sso={cookie}".encode()}
    assert failed(client.get(place, headers=headers)) == "expired"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": [CLIENT, "another"]},
        {"azp": "another-client"},
        {"iss": "http://evil.example"},
        {"exp": time.time() - 120},
        {"exp": None},
        {"iat": time.time() + 86_400},
        {"sub": None},
        {"sub": ""},
        {"preferred_username": 7, "sub": 7},
    ],
)
def test_an_id_token_that_is_wrong_is_refused(
    client: TestClient, provider: OidcProvider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    assert failed(log_in(client)) == "provider"
    assert not is_logged_in(client)


def test_a_proxy_gets_no_secret_in_plain_text(
    running: BrokerThread, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with client_of(running, settings_of(provider)) as client:
        assert to_provider(client).startswith(provider.issuer)


def test_clocks_may_differ_by_a_minute(client: TestClient, provider: OidcProvider) -> None:
    provider.claims = {"iat": time.time() + 30, "exp": time.time() - 30}
    log_in(client)
    assert is_logged_in(client)


def test_an_id_token_of_another_key_is_refused(client: TestClient, provider: OidcProvider) -> None:
    provider.signing_key = provider.other_key
    assert failed(log_in(client)) == "provider"


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_an_unsigned_id_token_is_refused(client: TestClient, provider: OidcProvider, algorithm: str) -> None:
    """HS256 is signed with the client's secret, which other parties may know."""
    provider.algorithm, provider.signing_key = algorithm, None if algorithm == "none" else SECRET * 4
    assert failed(log_in(client)) == "provider"


def test_new_keys_of_the_provider_are_fetched(
    client: TestClient, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client)
    provider.rotate_keys()
    assert failed(log_in(client)) == "provider", "keys are fetched again after a pause only"
    assert provider.requested.count("/jwks") >= 1
    monkeypatch.setattr(provider_module, "_KEYS_AGAIN_S", 0.0)
    provider.requested.clear()
    log_in(client)
    assert "/jwks" in provider.requested


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "http://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "ftp://127.0.0.1/jwks"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"end_session_endpoint": "http://evil.example/logout"},
        {"token_endpoint": 7},
    ],
)
def test_metadata_of_another_place_is_refused(
    client: TestClient, provider: OidcProvider, changes: dict[str, Any]
) -> None:
    provider.changes = changes
    assert failed(client.get("/sso/login")) == "provider"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/token"])
def test_redirects_of_the_provider_are_not_followed(
    client: TestClient, provider: OidcProvider, path: str
) -> None:
    provider.redirected[path] = f"{provider.issuer}/elsewhere"
    response = client.get("/sso/login")
    if path != "/.well-known/openid-configuration":
        response = client.get(answered(response.headers["location"]))
    assert failed(response) == "provider"
    assert "/elsewhere" not in provider.requested


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"iss": "http://evil.example"}, "provider"),
        ({"state": "another"}, "expired"),
        ({"error": "access_denied", "error_description": "<script>"}, "refused"),
        ({"code": "guess"}, "provider"),
        ({"code": ""}, "provider"),
    ],
)
def test_an_answer_that_is_wrong_is_refused(
    client: TestClient, provider: OidcProvider, answers: dict[str, str], reason: str
) -> None:
    provider.answers = answers
    assert failed(log_in(client)) == reason


def test_nested_json_of_the_provider_is_an_error(client: TestClient, provider: OidcProvider) -> None:
    nested: Any = json.loads("[" * 900 + "]" * 900)
    provider.changes = {"more": [nested, nested]}
    client.get("/sso/login")
    provider.changes = {}
    provider.tokens = {"access_token": [nested]}
    assert failed(log_in(client)) == "provider"


def test_failed_logins_are_limited(client: TestClient, provider: OidcProvider) -> None:
    provider.answers = {"code": "guess"}
    assert [failed(log_in(client)) for _ in range(12)] == ["provider"] * 10 + ["limit"] * 2


def test_pages_of_other_sites_cannot_lock_out_the_address_of_a_browser(client: TestClient) -> None:
    """They can make it send requests, without its cookie or with an answer that it has not asked for."""
    for _ in range(12):
        assert failed(client.get("/sso/callback?code=x&state=y")) == "expired"
        to_provider(client)
        assert failed(client.get("/sso/callback?code=x&state=y")) == "expired"
        to_provider(client)
        assert failed(client.get("/sso/callback?error=access_denied")) == "refused"
    assert log_in(client).headers["location"] == "/"


def test_tokens_are_renewed_before_they_expire(client: TestClient, provider: OidcProvider) -> None:
    provider.lasts_s = 4.0
    log_in(client)
    provider.requested.clear()
    began = time.monotonic()

    def has_renewed_twice() -> bool:
        assert client.get("/api/overview").status_code == 200
        return provider.requested.count("/token") >= 2

    eventually(has_renewed_twice)
    assert time.monotonic() - began > 3.0
    assert is_logged_in(client)


def test_a_login_that_cannot_be_renewed_asks_for_another_one(
    client: TestClient, provider: OidcProvider
) -> None:
    provider.lasts_s = 4.0
    log_in(client)
    assert is_logged_in(client)
    provider.end_logins()

    def has_ended() -> bool:
        client.get("/api/overview")
        return not is_logged_in(client)

    eventually(has_ended)
    assert client.get("/api/topics").status_code == 401


def test_without_refresh_tokens_a_session_ends_with_its_token(
    client: TestClient, provider: OidcProvider
) -> None:
    provider.lasts_s, provider.issues_refresh_tokens = 3.0, False
    log_in(client)
    assert is_logged_in(client)
    eventually(lambda: not is_logged_in(client))


def test_a_renewed_login_of_another_user_is_refused(client: TestClient, provider: OidcProvider) -> None:
    provider.lasts_s = 4.0
    log_in(client)
    provider.claims = {"sub": "mallory"}
    eventually(lambda: client.get("/api/overview").status_code != 200 or not is_logged_in(client))
    eventually(lambda: not is_logged_in(client))


def test_a_logout_ends_the_session_at_the_provider_too(client: TestClient, provider: OidcProvider) -> None:
    log_in(client)
    response = client.post("/api/logout")
    place = urlsplit(response.json()["url"])
    query = {name: values[0] for name, values in parse_qs(place.query).items()}
    assert f"{place.scheme}://{place.netloc}{place.path}" == f"{provider.issuer}/logout"
    assert query["post_logout_redirect_uri"] == f"{CONSOLE}/"
    assert query["client_id"] == CLIENT and query["id_token_hint"].count(".") == 2
    assert not is_logged_in(client)
    assert client.post("/api/logout").json()["url"] is None


def test_a_provider_that_does_not_answer(client: TestClient, provider: OidcProvider) -> None:
    provider.redirected["/.well-known/openid-configuration"] = "http://127.0.0.1:1/"
    assert failed(client.get("/sso/login")) == "provider"
    assert client.post("/api/login", json={"user": "a", "password": "b"}).status_code == 401
