"""The token endpoint answers each request of librdkafka's tests as they expect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import jwt
import pytest

from lab.token_endpoint import AUDIENCE, ISSUER, SUBJECT, TokenEndpoint

ASSERTION_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
METADATA = {"client_id": "c", "resource": "r", "api-version": "v"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenEndpoint]:
    made = TokenEndpoint(tmp_path_factory.mktemp("endpoint"))
    yield made
    made.close()


def token(url: str, form: dict[str, str] | None = None, **headers: str) -> str:
    """The token of an answer; a request without a form is a GET."""
    data = None if form is None else urlencode(form).encode()
    with urlopen(Request(url, data, headers), timeout=30) as answer:
        found: str = json.load(answer)["access_token"]
    return found


def subject(endpoint: TokenEndpoint, found: str) -> str:
    """The user of a token, after the checks of a broker."""
    with urlopen(endpoint.jwks_url, timeout=30) as answer:
        (key,) = jwt.PyJWKSet.from_dict(json.load(answer)).keys
    claims = jwt.decode(found, key, algorithms=["RS256"], audience=AUDIENCE, issuer=ISSUER)
    return str(claims["sub"])


def test_client_credentials_get_a_token(endpoint: TokenEndpoint) -> None:
    form = {"grant_type": "client_credentials", "scope": endpoint.client["sasl.oauthbearer.scope"]}
    found = token(endpoint.environment["VALID_OIDC_URL"], form, Authorization="Basic eDp5")
    assert subject(endpoint, found) == SUBJECT


def test_an_assertion_that_the_client_signed_gets_a_token(endpoint: TokenEndpoint) -> None:
    """RFC 7523."""
    key = Path(endpoint.environment["OAUTHBEARER_CLIENT_PRIVATE_KEY"]).read_text()
    assertion = jwt.encode({"sub": "testuser", "aud": "any"}, key, algorithm="RS256")
    form = {"grant_type": ASSERTION_GRANT, "assertion": assertion}
    assert subject(endpoint, token(endpoint.environment["VALID_OIDC_URL"], form)) == SUBJECT


def test_a_request_to_the_metadata_service_gets_a_token(endpoint: TokenEndpoint) -> None:
    url = f"{endpoint.environment['VALID_OIDC_URL']}?{urlencode(METADATA)}"
    assert subject(endpoint, token(url, Metadata="true")) == SUBJECT


@pytest.mark.parametrize(
    "form",
    [
        {"grant_type": "client_credentials"},
        {"grant_type": ASSERTION_GRANT, "assertion": "x"},
        {"grant_type": ASSERTION_GRANT, "scope": "invalid_scope"},
        {"grant_type": "password"},
        {},
    ],
)
def test_a_wrong_form_gets_none(endpoint: TokenEndpoint, form: dict[str, str]) -> None:
    with pytest.raises(HTTPError, match="400") as refused:
        token(endpoint.environment["VALID_OIDC_URL"], form)
    refused.value.close()


@pytest.mark.parametrize("missing", METADATA)
def test_an_incomplete_request_to_the_metadata_service_gets_none(
    endpoint: TokenEndpoint, missing: str
) -> None:
    rest = {name: value for name, value in METADATA.items() if name != missing}
    with pytest.raises(HTTPError, match="400") as refused:
        token(f"{endpoint.environment['VALID_OIDC_URL']}?{urlencode(rest)}", Metadata="true")
    refused.value.close()


def test_the_other_addresses_answer_with_bad_tokens(endpoint: TokenEndpoint) -> None:
    with pytest.raises(jwt.InvalidTokenError):
        subject(endpoint, token(endpoint.environment["INVALID_OIDC_URL"], {}))
    with pytest.raises(jwt.ExpiredSignatureError):
        subject(endpoint, token(endpoint.environment["EXPIRED_TOKEN_OIDC_URL"], {}))
