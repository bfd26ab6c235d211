"""Configs with their sources, and the difference before a change is saved."""

from __future__ import annotations

from penstock.console.views.configs import config_diff, config_rows
from penstock.wire.apis.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def rows() -> list[dict[str, object]]:
    return config_rows(
        DescribeConfigsResult(
            configs=[
                DescribeConfigsResourceResult(
                    name="retention.ms",
                    value="1000",
                    config_source=1,
                    config_type=5,
                    synonyms=[
                        DescribeConfigsSynonym(name="retention.ms", value="1000", source=1),
                        DescribeConfigsSynonym(name="log.retention.ms", value="7000", source=5),
                    ],
                ),
                DescribeConfigsResourceResult(name="cleanup.policy", value="delete", config_source=5),
                DescribeConfigsResourceResult(name="secret", value="x", is_sensitive=True, config_source=4),
            ]
        )
    )


def test_rows_have_sources_and_inherited_values() -> None:
    found = {row["name"]: row for row in rows()}
    assert found["retention.ms"]["source"] == "topic"
    assert found["retention.ms"]["set"]
    assert found["retention.ms"]["inherited"] == "7000"
    assert found["cleanup.policy"]["source"] == "default"
    assert found["secret"]["value"] is None


def test_a_difference_has_only_changed_configs() -> None:
    wanted = {"retention.ms": "1000", "cleanup.policy": "compact", "flush.ms": None}
    lines, effective = config_diff(rows(), wanted)
    assert lines == [{"name": "cleanup.policy", "before": "delete", "after": "compact", "note": ""}]
    assert effective == {"cleanup.policy": "compact"}


def test_none_returns_a_config_to_its_inherited_value() -> None:
    lines, effective = config_diff(rows(), {"retention.ms": None})
    assert lines[0]["after"] == "7000"
    assert effective == {"retention.ms": None}


def test_setting_the_default_value_explicitly_is_a_change() -> None:
    assert config_diff(rows(), {"cleanup.policy": "delete"})[1] == {"cleanup.policy": "delete"}
