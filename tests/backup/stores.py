"""S3 for tests: moto if it is installed, and with `make archive` a real server."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import LabError
from lab.foreign import ForeignServer, started
from lab.moto import moto_built, moto_server
from lab.versitygw import versitygw_server

__all__ = ["S3_ENVIRONMENT", "WITH_S3", "real_s3", "s3_here"]

#: `make archive`: tests may take minutes, and install what they need. A broker refuses names like PENSTOCK_….
WITH_S3 = bool(os.environ.get("ARCHIVE_TESTS"))
#: what the client of S3 finds in the environment, beside the address of the server
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test-id",
    "AWS_SECRET_ACCESS_KEY": "test-secret-9f3b",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def s3_here(folder: Path) -> Iterator[dict[str, str]]:
    """A server with the bucket `archive`; yields the environment of its clients."""
    if WITH_S3:
        with real_s3(folder) as (_, environment):
            yield environment
        return
    if not moto_built():
        pytest.skip("no moto in the lab: `make archive` installs it")
    try:
        server = moto_server(folder)
    except LabError as missing:
        pytest.skip(f"not in the lab: {str(missing).splitlines()[0]}")
    with started(server):
        address = f"http://{server.bootstrap}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/archive", method="PUT")).close()
        yield {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": address}


@contextmanager
def real_s3(folder: Path) -> Iterator[tuple[ForeignServer, dict[str, str]]]:
    """A real server with the bucket `archive`, and the environment of its clients."""
    key, secret = S3_ENVIRONMENT["AWS_ACCESS_KEY_ID"], S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]
    try:
        server = versitygw_server(folder, key, secret, "archive")
    except LabError as missing:
        pytest.skip(f"not in the lab: {str(missing).splitlines()[0]}")
    with started(server):
        yield server, {**S3_ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://{server.bootstrap}"}
