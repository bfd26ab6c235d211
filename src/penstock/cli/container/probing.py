"""Asks a broker of this machine for its health, for probes that run a command."""

from __future__ import annotations

import ssl
from http.client import HTTPConnection as PlainConnection
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from penstock.cli.failure import Failure, misused

__all__ = ["probe"]


def probe(url: str, timeout_s: float) -> str:
    """The answer of a health path, such as `/readyz`; a Failure with its text unless its status is 200."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        misused(f"--url {url!r} is not http://HOST:PORT/PATH")
    connection: PlainConnection
    if parts.scheme == "https":
        # As Kubernetes' own probes: the certificate need not have the name of this address.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
    else:
        connection = PlainConnection(parts.hostname, parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path or "/")
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        raise Failure(f"{url} does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise Failure(f"{url} answers {response.status}: {text}")
    return text
