"""Apicurio Registry from Maven Central: a schema registry with Confluent's REST API, in memory."""

from __future__ import annotations

import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from lab.home import LabError, built, command, lab_root, require
from lab.server import HOST, free_port

__all__ = ["apicurio_registry"]

VERSION = "3.0.9"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_START_S = 180.0
_STOP_S = 20.0
_LOOK_S = 0.2


def _download(folder: Path) -> None:
    require("mvn", "java")
    print(f"fetching Apicurio Registry {VERSION} from Maven Central (once)", flush=True)
    copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={ARTIFACT}"]
    command([*copy, f"-DoutputDirectory={folder}"], folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    archive.unlink()


@contextmanager
def apicurio_registry(log: Path) -> Iterator[str]:
    """The address of the REST API of a running registry, as `--schema-registry` takes it."""
    folder = built(lab_root() / "apicurio", (ARTIFACT,), _download)
    port = free_port()
    options = [f"-Dquarkus.http.port={port}", f"-Dquarkus.http.host={HOST}", "-Xmx512m", "-XX:+UseSerialGC"]
    jar = folder / f"apicurio-registry-app-{VERSION}-runner.jar"
    with (
        log.open("ab") as output,
        subprocess.Popen(
            ["java", *options, "-jar", str(jar)], cwd=folder, stdout=output, stderr=output
        ) as process,
    ):
        url = f"http://{HOST}:{port}/apis/ccompat/v7"
        try:
            _await(f"{url}/subjects", process, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError) as error:
            if isinstance(error, HTTPError):
                error.close()
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"Apicurio Registry does not respond: {error} (see {log})") from error
            time.sleep(_LOOK_S)
