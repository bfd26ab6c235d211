"""The rendered pages are the ones in the repository."""

from __future__ import annotations

from docs import decisions
from docs.commands import PAGE as COMMANDS_PAGE
from docs.commands import render_commands
from docs.render import EXAMPLE, METRICS_PAGE, PAGE, render, render_metrics
from penstock.model.config import BrokerConfig, effective_configs, load_config_file


def test_the_configuration_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make pages`"


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert METRICS_PAGE.read_text(encoding="utf-8") == render_metrics(), "run `make pages`"


def test_the_page_of_commands_is_up_to_date() -> None:
    assert COMMANDS_PAGE.read_text(encoding="utf-8") == render_commands(), "run `make pages`"


def test_the_index_of_decisions_is_up_to_date() -> None:
    page = decisions.PAGE.read_text(encoding="utf-8")
    assert page == decisions.rendered(page), "run `make pages`"
    assert page.count("\n| [") == len(list(decisions.PAGE.parent.glob("[0-9]*.md")))


def test_the_example_of_a_config_file_is_one() -> None:
    file = load_config_file(EXAMPLE, "yaml")
    config = BrokerConfig(effective_configs([file.configs]))
    assert (config.node_id, list(config.quorum_voters)) == (1, [1, 2, 3])
    assert [topic.name for topic in file.topics] == ["gpu-telemetry", "system-metrics"]
    assert not file.refused
