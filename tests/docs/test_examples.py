"""The code on the pages runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.testing import BrokerThread

ROOT = Path(__file__).parents[2]


def test_the_readmes_example(penstock_broker: BrokerThread, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(code.replace("127.0.0.1:9092", penstock_broker.bootstrap), {})
    assert capsys.readouterr().out == "b'en' b'hello' 0\n"


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
