"""Versity's S3 gateway over a folder, as a server: built once by Go's tool. Each folder in it is a bucket."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lab.foreign import ForeignServer, greets
from lab.home import built, command, lab_root, require
from lab.server import HOST, free_port

__all__ = ["VERSION", "versitygw_program", "versitygw_server"]

MODULE = "github.com/versity/versitygw"
VERSION = "v1.8.0"
_HELLO = b"GET / HTTP/1.0\r\n\r\n"


def versitygw_server(folder: Path, key: str, secret: str, *buckets: str, niceness: int = 0) -> ForeignServer:
    """A server with `buckets` in `folder`; `LabError` if there is no Go or no module proxy.

    With `niceness` its priority is lower.
    """
    program, port = versitygw_program(), free_port()
    for bucket in buckets:
        (folder / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
    words = [
        "nice",
        "-n",
        str(niceness),
        str(program),
        "--port",
        f"{HOST}:{port}",
        "--quiet",
        "posix",
        str(folder / "buckets"),
    ]
    environment = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    ready = partial(greets, port, _HELLO, b"HTTP/1.")
    return ForeignServer(
        "versitygw", port, words, folder / "versitygw.log", environment, start_timeout=60.0, is_ready=ready
    )


def versitygw_program() -> Path:
    """The program, built on first use."""
    require("go")
    return built(lab_root() / "versitygw", (MODULE, VERSION), _build) / "versitygw"


def _build(folder: Path) -> None:
    print(f"building versitygw {VERSION} (once, some minutes)", flush=True)
    command(["env", f"GOBIN={folder}", "go", "install", f"{MODULE}/cmd/versitygw@{VERSION}"], folder)
