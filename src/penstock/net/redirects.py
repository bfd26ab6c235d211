"""Opens the URLs of issuers of tokens, and follows no redirection that leaves TLS.

Python's `urllib` follows a redirection from https to http: the network could then replace the keys that
verify tokens.
"""

from __future__ import annotations

from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

__all__ = ["opener"]


class _SameProtection(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        schemes = ("https:",) if req.full_url.lower().startswith("https:") else ("http:", "https:")
        if not newurl.lower().startswith(schemes):
            fp.close()
            raise ValueError(f"{req.full_url} redirects to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener(url: str, ca_file: str | None) -> OpenerDirector:
    """Opens `url`; a redirection to an address without TLS raises ValueError. `ca_file` verifies servers."""
    handlers: list[Any] = [_SameProtection]
    if url.lower().startswith("https:"):
        import ssl  # a broker without TLS does not need OpenSSL

        handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    return build_opener(*handlers)
