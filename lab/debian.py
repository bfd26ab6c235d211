"""Packages of a Debian suite, unpacked into a folder of the lab; nothing is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.home import LabError, MissingTool, command, require

__all__ = ["codename", "private_apt", "unpack"]

_RELEASE = Path("/etc/os-release")
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def codename() -> str:
    """The suite of this machine, such as bookworm; `MissingTool` if this is not Debian."""
    lines = _RELEASE.read_text().splitlines() if _RELEASE.is_file() else []
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    if fields.get("ID") != "debian" or not fields.get("VERSION_CODENAME"):
        raise MissingTool("this machine does not run Debian")
    return fields["VERSION_CODENAME"].strip('"')


def unpack(folder: Path, suite: str, packages: Sequence[str]) -> None:
    """Download packages of a suite and unpack them into `folder`."""
    require("apt-get", "dpkg-deb")
    home = folder.with_name(f"{folder.name}-apt")
    apt = private_apt(home, suite)
    command([*apt, "update"], home)
    debs = home / "debs"
    debs.mkdir(exist_ok=True)
    command([*apt, "download", *packages], debs)
    for deb in sorted(debs.glob("*.deb")):
        command(["dpkg-deb", "-x", deb, folder], debs)
        deb.unlink()


def private_apt(home: Path, suite: str) -> list[str]:
    """`apt-get` with the machine's own mirror and another suite. The machine's state stays as it is."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "status").write_text("")
    targets = command(["apt-get", "indextargets", "--format", "$(REPO_URI)"], home).splitlines()
    mirrors = [each for each in targets if each.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise LabError("apt has no package lists: run `apt-get update` first")
    signed = f"[signed-by={_KEYS}] " if _KEYS.is_file() else ""
    (home / "sources.list").write_text(f"deb {signed}{mirrors[0]} {suite} main\n")
    options = {
        "Dir::Etc::sourcelist": home / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": home / "state",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", "-q", *(word for pair in options.items() for word in ("-o", f"{pair[0]}={pair[1]}"))]
