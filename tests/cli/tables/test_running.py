"""Errors of a table's query name the options of the command."""

from __future__ import annotations

from penstock.cli.tables.running import _with_own_option
from penstock.jobs.supervision import QueryFailed


def test_lost_messages_are_skipped_by_an_option_of_the_command() -> None:
    text = "orders-0: offsets 0 to 5 are gone: deleted by retention. Set failOnDataLoss=false to skip them"
    shown = _with_own_option(QueryFailed(text))
    assert isinstance(shown, QueryFailed)
    assert str(shown).endswith("retention. Use `penstock table run --skip-lost` to skip them")
