"""Valkey, the successor of Redis under a free licence: the installed server, or Debian's package unpacked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from lab.debian import codename, unpack
from lab.foreign import ForeignServer, greets
from lab.home import LabError, built, command, lab_root
from lab.server import HOST, free_port

__all__ = ["valkey", "valkey_built", "valkey_server_path", "valkey_version"]

#: the server, and the libraries that few machines have
PACKAGES = ("valkey-server", "valkey-tools", "libjemalloc2", "liblzf1", "libatomic1")
#: the suites that have the package, by the suite of this machine; others have it themselves
BACKPORTS = {"bookworm": "bookworm-backports"}
#: these are not in the backports, which only add to the suite
FROM_SUITE = ("libjemalloc2", "liblzf1", "libatomic1")


def valkey_server_path() -> Path:
    """The program, unpacked on first use; `LabError` if that cannot be."""
    installed = shutil.which("valkey-server")
    if installed is not None:
        return Path(installed)
    suite = codename()
    recipe = (suite, BACKPORTS.get(suite, suite), *PACKAGES)
    return built(_folder(), recipe, _unpack) / "usr" / "bin" / "valkey-server"


def valkey_built() -> bool:
    """Returns true if the program need not be downloaded first."""
    return shutil.which("valkey-server") is not None or _folder().with_name("valkey.stamp").is_file()


def valkey_version() -> str:
    program = valkey_server_path()
    libraries = _libraries(program).get("LD_LIBRARY_PATH", "")
    text = command(["env", f"LD_LIBRARY_PATH={libraries}", program, "--version"], program.parent)
    found = re.search(r"v=([0-9.]+)", text)
    if found is None:
        raise LabError(f"valkey-server --version printed {text!r}")
    return found[1]


def valkey(folder: Path, settings: Mapping[str, str]) -> ForeignServer:
    """One server, its data and log in `folder`. `settings` are lines of valkey.conf.

    Snapshots are off: the append-only file, if `appendonly` is set, is the only copy on disk.
    """
    program = valkey_server_path()
    port = free_port()
    data = folder / "data"
    data.mkdir(exist_ok=True)
    lines = {"bind": HOST, "port": str(port), "dir": str(data), "save": '""', **settings}
    configuration = folder / "valkey.conf"
    configuration.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
    return ForeignServer(
        "valkey",
        port,
        [str(program), str(configuration)],
        folder / "valkey.log",
        _libraries(program),
        start_timeout=30.0,
        is_ready=partial(greets, port, b"PING\r\n", b"+PONG"),
    )


def _folder() -> Path:
    return lab_root() / "valkey"


def _libraries(program: Path) -> dict[str, str]:
    """The environment of an unpacked program, which finds its libraries beside it."""
    found = sorted({str(path.parent) for path in program.parents[1].glob("lib/*/*.so*")})
    return {"LD_LIBRARY_PATH": ":".join(found)} if program.is_relative_to(_folder()) else {}


def _unpack(folder: Path) -> None:
    suite = codename()
    print(f"unpacking Valkey of Debian {BACKPORTS.get(suite, suite)} (once)", flush=True)
    libraries = [name for name in PACKAGES if name in FROM_SUITE]
    unpack(folder, suite, libraries)
    unpack(folder, BACKPORTS.get(suite, suite), [name for name in PACKAGES if name not in FROM_SUITE])
