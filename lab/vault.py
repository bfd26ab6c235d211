"""The transit engine of Vault, in memory: Vault's Go package behind a small server of ours, built once.

Vault's own server does not build against the published versions of its libraries. The build downloads for
minutes, so tests that must be quick skip if there is none (`make vault` builds it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

from lab.foreign import ForeignServer, greets
from lab.home import built, command, lab_root, require
from lab.server import HOST, free_port

__all__ = ["VERSION", "Vault", "vault_built", "vault_program"]

MODULE = "github.com/hashicorp/vault"
VERSION = "v1.21.4"
#: the version whose functions that one uses; the module itself refers to a folder beside it
SDK_VERSION = "v0.24.0"
_SOURCE = Path(__file__).parent / "vault_server" / "main.go"
_HELLO = b"GET /v1/sys/health HTTP/1.0\r\n\r\n"


def vault_program() -> Path:
    """The program, built on first use; `LabError` if there is no Go or no module proxy."""
    require("go")
    return built(_folder(), (MODULE, VERSION, SDK_VERSION, _SOURCE.read_text()), _build) / "vault"


def vault_built() -> bool:
    """Returns true if there is a program."""
    return (_folder() / "vault").is_file()


def _folder() -> Path:
    return lab_root() / "vault"


def _build(folder: Path) -> None:
    print(f"building vault {VERSION} (once, some minutes)", flush=True)
    (folder / "main.go").write_text(_SOURCE.read_text())
    requirements = f"require {MODULE} {VERSION}\nrequire {MODULE}/sdk {SDK_VERSION}\n"
    (folder / "go.mod").write_text(f"module penstock/lab/vault\n\ngo 1.25\n\n{requirements}")
    command(["go", "mod", "tidy"], folder)
    command(["go", "build", "-o", "vault", "."], folder)


class Vault:
    """A server whose transit engine is mounted at `transit`, with requests of its token."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.port = free_port()
        self.address = f"http://{HOST}:{self.port}"
        self._token = folder / "vault-token"
        words = [str(program), f"{HOST}:{self.port}", str(self._token)]
        ready = partial(greets, self.port, _HELLO, b"HTTP/1.")
        self.server = ForeignServer(
            "vault", self.port, words, folder / "vault.log", start_timeout=60.0, is_ready=ready
        )

    @property
    def token(self) -> str:
        return self._token.read_text()

    def write(self, path: str, body: Mapping[str, object]) -> None:
        """A request with the token, as `vault write` sends it."""
        headers = {"X-Vault-Token": self.token, "Content-Type": "application/json"}
        request = Request(f"{self.address}/v1/{path}", json.dumps(body).encode(), headers, method="POST")
        with urlopen(request, timeout=10) as response:
            response.read()
