"""moto, an emulator of AWS, as a server in an environment of its own. It shows semantics and no speed."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lab.foreign import ForeignServer, greets
from lab.home import built, command, lab_root
from lab.server import HOST, free_port

__all__ = ["VERSION", "moto_server"]

VERSION = "5.2.5"
_HELLO = b"GET /moto-api/ HTTP/1.0\r\n\r\n"


def moto_server(folder: Path) -> ForeignServer:
    """A server with SQS and SNS, in memory, its log in `folder`; `LabError` if it cannot be installed."""
    port = free_port()
    program = [str(_python()), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    ready = partial(greets, port, _HELLO, b"HTTP/1.")
    return ForeignServer("moto", port, program, folder / "moto.log", start_timeout=60.0, is_ready=ready)


def _python() -> Path:
    folder = built(lab_root() / "moto", (VERSION, sys.version), _install)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    print(f"installing moto {VERSION} (once)", flush=True)
    command([sys.executable, "-m", "venv", folder], folder)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    command([*pip, f"moto[server]=={VERSION}"], folder)
