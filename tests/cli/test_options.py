"""Options that several commands share."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e300", "0", "soon"])
def test_nobody_waits_for_what_is_no_time(seconds: str) -> None:
    done = CliRunner().invoke(app, ["cluster", "status", "--timeout", seconds])
    assert done.exit_code == 2
    assert "--timeout" in done.output
