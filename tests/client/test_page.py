"""The examples on the page about the clients run as they are printed, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.testing import BrokerThread

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
PRINTED = [
    "0\nb'en' {'hello': 'world'}\n",
    "2\n",
    "True\n0\n",
    "booked 1\nbooked 2\nb'many' b'builtins.ValueError'\n",
    "Topic(name='orders', partitions=6, replicas=1)\n6 True\n"
    "1 [1] PartitionDescription(id=0, leader=1, replicas=(1,), isr=(1,))\nTrue\n",
]


def test_the_examples_run(penstock_broker: BrokerThread, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    printed = []
    for example in examples:
        exec(example.replace("127.0.0.1:9092", penstock_broker.bootstrap), {})
        printed.append(capsys.readouterr().out)
    assert printed == PRINTED
