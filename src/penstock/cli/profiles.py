"""Profiles: clusters by name, each with its brokers and its file of client configs.

They are in one file of the user, `penstock/profiles.json` in XDG_CONFIG_HOME, or PENSTOCK_PROFILES. The file
has addresses and paths, no passwords: those stay in the files of client configs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.failure import Failure, misused

__all__ = [
    "Profile",
    "current",
    "defaults_of",
    "profiles_file",
    "read_profiles",
    "use_profile",
    "write_profiles",
]

_used: list[str] = []


class Profile(NamedTuple):
    """A cluster. `command_config` is an absolute path."""

    bootstrap: str
    command_config: str | None = None


def profiles_file() -> Path:
    """The file with the profiles of this user."""
    named = os.environ.get("PENSTOCK_PROFILES")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "penstock" / "profiles.json"


def read_profiles() -> dict[str, Profile]:
    """The profiles by name; none if there is no file."""
    import json

    path = profiles_file()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): _profile(found) for name, found in content["profiles"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failure(f"cannot read the profiles in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is not a file of profiles: mend it, or remove it ({error})") from error


def _profile(found: Mapping[str, Any]) -> Profile:
    config = found.get("command_config")
    return Profile(str(found["bootstrap"]), None if config is None else str(config))


def write_profiles(profiles: Mapping[str, Profile]) -> Path:
    """Replace the file: the old one stays if the new one cannot be written."""
    import json

    path = profiles_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {"profiles": {name: profile._asdict() for name, profile in sorted(profiles.items())}}
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2) + "\n")
    new.replace(path)
    return path


def use_profile(name: str | None) -> Profile | None:
    """Use a profile from now on, or none."""
    _used.clear()
    if not name:
        return None
    profiles = read_profiles()
    if name not in profiles:
        known = f"known are {', '.join(sorted(profiles))}" if profiles else "`penstock profile add` adds one"
        misused(f"no profile {name} in {profiles_file()}: {known}")
    if os.environ.get("PENSTOCK_BOOTSTRAP", profiles[name].bootstrap) != profiles[name].bootstrap:
        misused(f"the profile {name} and PENSTOCK_BOOTSTRAP name different brokers: unset one of them")
    _used.append(name)
    return profiles[name]


def current() -> str | None:
    """The name of the profile in use."""
    return _used[0] if _used else None


def defaults_of(command: Any, bootstrap: str) -> dict[str, Any]:
    """The defaults of a command, and of those below it, that a profile changes."""
    below = getattr(command, "commands", None)
    if below is None:
        return {"bootstrap": bootstrap}
    return {name: defaults_of(each, bootstrap) for name, each in below.items()}
