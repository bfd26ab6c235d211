"""Decides whether a request of a browser is one of our own pages, and the headers of every response.

Why on loopback too: any web page can send requests to 127.0.0.1, and a name of its own can resolve to it (DNS
rebinding). Pure: headers in, a reason to refuse out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from penstock.security.hosts import host_name, is_local_host

__all__ = ["CSRF_HEADER", "SECURITY_HEADERS", "refusal"]

#: A page of another origin cannot set it without a CORS preflight, which is never granted.
CSRF_HEADER: Final = "x-penstock-console"
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE: Final = ("GET", "HEAD")


def refusal(
    method: str, path: str, headers: Mapping[str, str], hosts: Collection[str], scheme: str
) -> str | None:
    """Why a request is refused; None if it may pass. `headers` have lower-case names."""
    host = headers.get("host", "")
    if not host or (not is_local_host(host) and host_name(host) not in hosts):
        return f"this console does not serve the host {host_name(host)!r}: allow it with --allow-host"
    if not path.startswith("/api/"):
        return None if method in _SAFE else "only GET is supported here"
    origin = headers.get("origin")
    if origin is not None and origin != f"{scheme}://{host}":
        return "the request comes from a page of another origin"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "the request comes from a page of another site"
    if method not in _SAFE and headers.get(CSRF_HEADER) != "1":
        return f"a request that changes something needs the header {CSRF_HEADER}: 1"
    return None
