"""librdkafka with its C tests, as the npm package of Confluent's JavaScript client ships it.

`python3 -m lab.librdkafka` builds it with any Python, so that `make test` can do so while pip installs the
environment. If it fails, the tests that need librdkafka try again and say why.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.home import LabError, built, command, lab_root, require, verify

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
PACKAGE_SHA512 = (
    "29578f5019f6d44a8254ff667f1cc4b8cdd26091c7105ed7fa2882d9ee374108034b211a92c2279821a8a13df0e6af9c"
    "340764482acaef58f42027eaa12a992f"
)
SOURCE_IN_PACKAGE = "package/deps/librdkafka/"
CONFIGURE = (
    "./configure",
    "--disable-gssapi",
    "--disable-curl",
    # They are built once and run for minutes: optimising them takes longer than it saves.
    "--disable-optimization",
    "--disable-debug-symbols",
)


@dataclass(frozen=True, slots=True)
class Librdkafka:
    """A built source tree."""

    root: Path

    @property
    def test_runner(self) -> Path:
        return self.root / "tests" / "test-runner"

    @property
    def include(self) -> Path:
        return self.root / "src"

    @property
    def fixtures(self) -> Path:
        """Keys and certificates of the tests."""
        return self.root / "tests" / "fixtures"

    @property
    def library_path(self) -> str:
        return f"{self.root / 'src'}:{self.root / 'src-cpp'}"

    @property
    def has_zstd(self) -> bool:
        return "#define WITH_ZSTD 1" in (self.root / "config.h").read_text()

    def path_with(self, folder: Path, *, zstd: bool = False, http: bool = False) -> str:
        """The library path for a program that needs zstd, or HTTP for tokens.

        If the build lacks it, a link in `folder` leads to the library of confluent-kafka, which has both.
        """
        if not http and (self.has_zstd or not zstd):
            return self.library_path
        folder.mkdir(exist_ok=True)
        link = folder / "librdkafka.so.1"
        if not link.exists():
            link.symlink_to(bundled_library())
        return f"{folder}:{self.library_path}"


def bundled_library() -> Path:
    """The shared library in the package of confluent-kafka."""
    import confluent_kafka

    (library,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    return library


def librdkafka() -> Librdkafka:
    """The library and its tests, built on first use (a few minutes on two cores)."""
    recipe = (PACKAGE, PACKAGE_SHA512, *CONFIGURE)
    folder = lab_root() / "librdkafka"
    return Librdkafka(built(folder, recipe, _build))


def _build(folder: Path) -> None:
    require("npm", "cc", "c++", "make")
    print(f"building librdkafka and its tests from {PACKAGE} (once)", flush=True)
    downloads = folder / "npm"
    downloads.mkdir()
    command(["npm", "pack", "--silent", PACKAGE], downloads)
    archive = next(downloads.glob("*.tgz"))
    verify(archive, "sha512", PACKAGE_SHA512)
    _unpack_source(archive, folder)
    shutil.rmtree(downloads)
    jobs = f"-j{os.cpu_count() or 1}"
    command(CONFIGURE, folder)
    command(["make", jobs, "libs"], folder)
    command(["make", jobs, "-C", "tests", "build"], folder)


def _unpack_source(archive: Path, folder: Path) -> None:
    """Only librdkafka's part of the package, moved up to the folder itself."""
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            if member.name.startswith(SOURCE_IN_PACKAGE):
                member.name = member.name.removeprefix(SOURCE_IN_PACKAGE)
                package.extract(member, folder, filter="data")


if __name__ == "__main__":
    with suppress(LabError):
        librdkafka()
