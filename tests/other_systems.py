"""NATS, RabbitMQ and SQS for the tests of the bridge and of the migration guides.

`make bridges` builds the servers, installs the clients and runs everything. Other runs use what is there, and
skip the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from lab import LabError
from lab.elasticmq import elasticmq_server
from lab.foreign import ForeignServer, started
from lab.moto import moto_built, moto_server
from lab.nats import nats_built, nats_installed, nats_server
from lab.rabbitmq import rabbitmq, rabbitmq_built

__all__ = [
    "AWS_ENVIRONMENT",
    "WITH_ALL",
    "amqp_url",
    "aws_here",
    "aws_url",
    "elasticmq_here",
    "elasticmq_url",
    "moto_url",
    "nats_here",
    "nats_url",
    "rabbitmq_here",
    "require_client",
    "sqs_url",
]

WITH_ALL: Final = bool(os.environ.get("PENSTOCK_BRIDGES"))
AWS_ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


def require_client(module: str) -> None:
    """Skip the test if a client library of the extra `bridge` is missing."""
    if find_spec(module) is None:
        pytest.skip(f"no {module}: pip install 'penstock-mq[bridge]'")


@contextmanager
def nats_here(folder: Path) -> Iterator[ForeignServer]:
    require_client("nats")
    if not WITH_ALL and not nats_built():
        pytest.skip("no nats-server in the lab: `make bridges` builds it")
    yield from _running(lambda: nats_server(folder, program=None if WITH_ALL else nats_installed()))


@contextmanager
def rabbitmq_here(folder: Path) -> Iterator[ForeignServer]:
    require_client("aio_pika")
    if not WITH_ALL and not rabbitmq_built():
        pytest.skip("no RabbitMQ in the lab: `make bridges` unpacks it")
    yield from _running(lambda: rabbitmq(folder))


@contextmanager
def aws_here(folder: Path) -> Iterator[ForeignServer]:
    """moto, for clients that have `AWS_ENVIRONMENT` and the server's address as AWS_ENDPOINT_URL."""
    require_client("boto3")
    if not WITH_ALL and not moto_built():
        pytest.skip("no moto in the lab: `make bridges` installs it")
    yield from _running(lambda: moto_server(folder))


@contextmanager
def elasticmq_here(folder: Path, *, is_durable: bool = False) -> Iterator[ForeignServer]:
    """ElasticMQ, for clients of SQS as with `aws_here`."""
    require_client("boto3")
    if not WITH_ALL:
        pytest.skip("no ElasticMQ: `make bridges` starts one")
    yield from _running(lambda: elasticmq_server(folder, is_durable=is_durable))


def _running(make: Callable[[], ForeignServer]) -> Iterator[ForeignServer]:
    try:
        server = make()
    except LabError as missing:
        pytest.skip(f"not in the lab: {_in_one_line(missing)}")
    with ExitStack() as running:
        try:
            running.enter_context(started(server))
        except LabError as failed:
            # For example RabbitMQ in a container that may not mount.
            if WITH_ALL:
                raise
            pytest.skip(f"{server.name} does not start: {_in_one_line(failed)}")
        yield server


def _in_one_line(error: LabError) -> str:
    return " ".join(str(error).split())[:200]


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_here(tmp_path_factory.mktemp("nats")) as server:
        yield f"nats://{server.bootstrap}"


@pytest.fixture(scope="session")
def amqp_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rabbitmq_here(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield f"amqp://guest:guest@{server.bootstrap}/"


@pytest.fixture(scope="session")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with aws_here(tmp_path_factory.mktemp("moto")) as server:
        yield f"http://{server.bootstrap}"


@pytest.fixture(scope="session")
def elasticmq_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with elasticmq_here(tmp_path_factory.mktemp("elasticmq")) as server:
        yield f"http://{server.bootstrap}"


@pytest.fixture
def aws_url(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of clients of SQS and SNS in moto."""
    return _aws_environment(moto_url, monkeypatch)


@pytest.fixture(params=["elasticmq", "moto"])
def sqs_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of clients of SQS, in each emulator in turn."""
    return _aws_environment(request.getfixturevalue(f"{request.param}_url"), monkeypatch)


def _aws_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**AWS_ENVIRONMENT, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)
    return url
