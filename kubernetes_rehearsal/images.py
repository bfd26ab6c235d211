"""The images of the rehearsal: the one that is installed, another one to roll to, and the pause image."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lab.kubernetes.configs import PAUSE_IMAGE
from tools.image.__main__ import image_config, layers_of
from tools.image.entries import from_path
from tools.image.oci import layer, write_archive

__all__ = ["CHANGED", "FIRST", "REPOSITORY", "changed_config", "pause_config", "write_images"]

REPOSITORY: Final = "localhost/penstock"
FIRST: Final = "rehearsal-1"
CHANGED: Final = "rehearsal-2"
_CREATED: Final = "1970-01-01T00:00:00Z"
_PAUSE: Final = "pause"


def write_images(folder: Path, pause: Path) -> list[Path]:
    """Archives of all images. The second one has the content of the first, and another digest."""
    layers = [layer(entries, note) for note, entries in layers_of()]
    first = image_config(_CREATED, FIRST)
    archives = [folder / f"{name}.tar" for name in (FIRST, CHANGED, _PAUSE)]
    write_archive(archives[0], layers, first, [f"{REPOSITORY}:{FIRST}"])
    write_archive(archives[1], layers, changed_config(), [f"{REPOSITORY}:{CHANGED}"])
    alone = [layer([from_path(_PAUSE, pause)], "the program")]
    write_archive(archives[2], alone, pause_config(first["architecture"]), [PAUSE_IMAGE])
    return archives


def changed_config() -> dict[str, Any]:
    """The config of the image to roll to."""
    return image_config(_CREATED, CHANGED)


def pause_config(architecture: str) -> dict[str, Any]:
    """The config of the image that holds the namespaces of a pod."""
    settings = {"User": "65535:65535", "Entrypoint": [f"/{_PAUSE}"], "WorkingDir": "/"}
    return {"created": _CREATED, "architecture": architecture, "os": "linux", "config": settings}
