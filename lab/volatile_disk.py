"""A disk that forgets what was not synced: the failure of a machine's power, on one machine. Needs root.

The disk is an image file, mounted as ext4. A write stays in the page cache of the mounted file system until a
sync, or until the kernel writes it back half a minute later. `lose_power` copies the image as it is and
mounts the copy in its place. So everything that was not synced is gone, and ext4 replays its journal, as
after a power failure. That is the worst case: a real machine may have written more.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.home import LabError, MissingTool, command, require

__all__ = ["VolatileDisk"]

_OPTIONS = "loop,commit=300"


class VolatileDisk:
    """A mounted image in `folder`; `path` is where its files are. Use it in a `with`."""

    def __init__(self, folder: Path, megabytes: int = 2048) -> None:
        self._folder = folder
        self._images = 0
        self._megabytes = megabytes
        self.path = folder / "disk"

    def __enter__(self) -> Self:
        require("mkfs.ext4", "mount", "umount")
        if os.geteuid() != 0:
            raise MissingTool("a disk that loses unsynced writes needs root, for mount")
        self.path.mkdir()
        image = self._image()
        with image.open("wb") as created:
            created.truncate(self._megabytes << 20)
        # Without lazy initialisation the kernel writes nothing of its own later.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        command(["mkfs.ext4", "-q", "-F", "-E", lazy, image], self._folder)
        self._mount(image)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unmount()

    def sync(self) -> None:
        """Write everything to the image."""
        command(["sync", "--file-system", self.path], self._folder)

    def lose_power(self) -> None:
        """Go back to what was synced. No process may use the disk any more."""
        before = self._image()
        self._images += 1
        after = self._image()
        command(["cp", "--sparse=always", before, after], self._folder)
        self._unmount()
        before.unlink()
        self._mount(after)

    def _image(self) -> Path:
        return self._folder / f"image-{self._images}"

    def _mount(self, image: Path) -> None:
        try:
            command(["mount", "-t", "ext4", "-o", _OPTIONS, image, self.path], self._folder)
        except LabError as error:
            raise MissingTool("this machine cannot mount a disk image") from error

    def _unmount(self) -> None:
        if not self.path.is_mount():
            return
        done = subprocess.run(["umount", self.path], capture_output=True, text=True)
        if done.returncode != 0:
            # A process that was killed may hold the mount for some milliseconds.
            command(["umount", "--lazy", self.path], self._folder)
