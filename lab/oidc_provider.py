"""oidc-provider-mock, an OpenID Connect provider with a login page, in an environment of its own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lab.environments import make_environment
from lab.foreign import ForeignServer, greets
from lab.home import built, lab_root
from lab.server import HOST, free_port

__all__ = ["VERSION", "oidc_python", "oidc_server"]

VERSION = "0.3.4"
_HELLO = b"GET /.well-known/openid-configuration HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"


def oidc_server(folder: Path) -> ForeignServer:
    """A provider for any client and any user, its log in `folder`; `LabError` if it cannot be installed."""
    port = free_port()
    program = [str(oidc_python()), "-m", "oidc_provider_mock", "-H", HOST, "-p", str(port)]
    program += ["--require-nonce", "true"]
    ready = partial(greets, port, _HELLO, b"HTTP/1.")
    return ForeignServer("oidc", port, program, folder / "oidc.log", start_timeout=60.0, is_ready=ready)


def oidc_python() -> Path:
    """The interpreter that has the provider, installed on first use; `LabError` if it cannot be installed."""
    return built(_folder(), (VERSION, sys.version), _install) / "bin" / "python"


def _folder() -> Path:
    return lab_root() / "oidc"


def _install(folder: Path) -> None:
    print(f"installing oidc-provider-mock {VERSION} (once)", flush=True)
    make_environment(folder, f"oidc-provider-mock=={VERSION}")
