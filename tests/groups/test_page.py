"""The examples on the page about groups run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.testing import BrokerThread

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


def test_the_examples_run(penstock_broker: BrokerThread, capsys: pytest.CaptureFixture[str]) -> None:
    reading, looking = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    exec(reading.replace("127.0.0.1:9092", penstock_broker.bootstrap), {})
    assert capsys.readouterr().out == "0\n1\n2\n"
    exec(looking.replace("127.0.0.1:9092", penstock_broker.bootstrap), {})
    assert capsys.readouterr().out == "orders-0 lag 0\n"
