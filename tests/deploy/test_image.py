"""The container image: what is in it, its bytes, and that its command runs on its root file system alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from penstock import __version__
from tests.deploy.command_lines import parsed
from tools.image.__main__ import image_config, layers_of, write_root
from tools.image.bytecode import compiled
from tools.image.entries import Entry, directory, file, link
from tools.image.interpreter import PYTHON, USER, linked
from tools.image.oci import layer, write_archive
from tools.image.packages import dependencies, project

CONTAINERFILE: Final = Path(__file__).parents[2] / "deploy/image/Containerfile"
CONFIG: Final = image_config("2026-01-01T00:00:00Z", "")
#: programs that an image without a shell does not have
SHELLS: Final = re.compile(r"(^|/)(sh|bash|dash|busybox|pip3?|apt|apt-get)$")


def entries() -> list[Entry]:
    return [
        directory("data", 0o750, USER),
        file("bin/program", b"#!/x\n", 0o755),
        link("bin/alias", "program"),
        *compiled([file("lib/module.py", b"ANSWER = 42\n"), file("lib/other.py", b"syntax error here\n")]),
    ]


def test_the_same_entries_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        layers = [layer(entries(), "a layer")]
        digest = write_archive(tmp_path / name, layers, CONFIG, ["localhost/penstock:1"])
        written.append((digest, (tmp_path / name).read_bytes()))
    assert written[0] == written[1]


def test_an_archive_names_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    digest = write_archive(path, [layer(entries(), "one")], CONFIG, ["localhost/penstock:1"])
    with tarfile.open(path) as tar:
        found = {each.name: tar.extractfile(each).read() for each in tar.getmembers()}  # type: ignore[union-attr]
    index = json.loads(found["index.json"])
    assert index["manifests"][0]["digest"] == digest
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "localhost/penstock:1"

    def blob(reference: dict[str, Any]) -> bytes:
        data = found["blobs/" + reference["digest"].replace(":", "/")]
        assert len(data) == reference["size"]
        assert "sha256:" + hashlib.sha256(data).hexdigest() == reference["digest"]
        return data

    manifest = json.loads(blob(index["manifests"][0]))
    settings = json.loads(blob(manifest["config"]))
    plain = gzip.decompress(blob(manifest["layers"][0]))
    assert settings["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    assert settings["config"]["User"] == f"{USER}:{USER}"
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        members = {each.name: each for each in tar.getmembers()}
    assert {each.mtime for each in members.values()} == {0}
    assert members["bin"].isdir()
    assert members["data"].uid == USER
    assert members["bin/alias"].linkname == "program"
    assert members["bin/program"].mode == 0o755
    assert f"lib/__pycache__/module.cpython-{sys.version_info.major}{sys.version_info.minor}.pyc" in members
    (docker,) = json.loads(found["manifest.json"])
    assert set(docker["Layers"]) | {docker["Config"]} <= found.keys()


def test_the_output_of_ldd() -> None:
    text = (
        "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f36)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f36)\n\tstatically linked\n"
    )
    assert linked(text) == {
        "libc.so.6": Path("/lib/x86_64-linux-gnu/libc.so.6"),
        "ld-linux-x86-64.so.2": Path("/lib64/ld-linux-x86-64.so.2"),
    }


def test_packages_are_those_of_brokers() -> None:
    names = {each.path.split("/")[5] for each in dependencies() if each.path.count("/") > 4}
    assert {"confluent_kafka", "uvloop", "obstore", "cryptography", "starlette"} <= names
    assert not {"pyspark", "pyarrow", "pytest", "mypy", "pandas", "pip"} & names


def test_the_containerfile_says_the_same() -> None:
    text = CONTAINERFILE.read_text().replace("\\\n", " ")
    last = text.rpartition("\nFROM ")[2]
    config = CONFIG["config"]
    instructions = dict(line.split(" ", 1) for line in last.splitlines()[1:] if line)
    assert json.loads(instructions["ENTRYPOINT"]) == config["Entrypoint"]
    assert json.loads(instructions["CMD"]) == config["Cmd"]
    assert instructions["USER"] == config["User"]
    assert instructions["WORKDIR"] == config["WorkingDir"]
    assert set(shlex.split(instructions["ENV"])) == set(config["Env"])
    health = instructions["HEALTHCHECK"].partition("CMD ")[2]
    assert ["CMD", *json.loads(health)] == config["Healthcheck"]["Test"]


def test_the_commands_of_the_image_exist() -> None:
    config = CONFIG["config"]
    assert config["Entrypoint"][1:] == ["-m", "penstock"]
    parsed(config["Cmd"])
    assert parsed(config["Healthcheck"]["Test"][4:])["url"].endswith("/healthz")
    assert config["Labels"]["org.opencontainers.image.version"] == __version__


@pytest.mark.process
@pytest.mark.slow
def test_the_root_file_system_is_enough(tmp_path: Path) -> None:
    """A command runs with nothing but the files of the image, if this user may change the root."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root file system: run the tests of the image as root")
    chroot = shutil.which("chroot")
    assert chroot is not None
    found = [entry for _, each in layers_of_without_bytecode() for entry in each]
    assert [each.path for each in found if SHELLS.search(each.path)] == []
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    write_root(root, found)
    done = subprocess.run(
        [chroot, "--userspec", f"{USER}:{USER}", str(root), f"/{PYTHON}", "-m", "penstock", "version"],
        capture_output=True,
        text=True,
        env=dict(each.split("=", 1) for each in CONFIG["config"]["Env"]),
    )
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    modules = "ssl, sqlite3, zlib, confluent_kafka, uvloop, re2, obstore, cryptography.x509, penstock.console"
    done = subprocess.run(
        [chroot, str(root), f"/{PYTHON}", "-c", f"import {modules}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def layers_of_without_bytecode() -> list[tuple[str, list[Entry]]]:
    """The layers as they are built, but for bytecode, which takes the longest."""
    return layers_of(lambda entries: entries)


def test_the_project_is_in_its_layer() -> None:
    paths = {each.path.partition("site-packages/")[2] for each in project()}
    assert "penstock/cli/commands/up.py" in paths
    assert "penstock/observability/alerts.yml" in paths
    assert not any("__pycache__" in path for path in paths)
