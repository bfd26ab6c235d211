from __future__ import annotations

import subprocess
import sys

import pytest

import penstock
from penstock import client
from penstock.client import errors
from penstock.model.errors import PenstockError


@pytest.mark.process
def test_a_broker_does_not_load_the_clients() -> None:
    code = "import sys, penstock.broker.app.server; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer", "Queue"])
def test_the_package_gives_out_the_clients(name: str) -> None:
    assert getattr(penstock, name) is getattr(client, name)


def test_the_package_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        penstock.Broker  # noqa: B018


def test_what_is_promised_is_there() -> None:
    assert sorted(client.__all__) == sorted(set(client.__all__))
    assert all(hasattr(client, name) for name in client.__all__)


def test_every_error_is_in_the_one_tree() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "translated"]
    assert all(issubclass(kind, PenstockError) for kind in kinds)
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in kinds)
