"""The configs of a broker's start: file, environment and flags, each overriding the one before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failure import MISUSED, Failure, misused
from penstock.cli.options import pairs
from penstock.cli.private_files import refuse_secret_arguments, refuse_secret_options

if TYPE_CHECKING:
    from penstock.model.config import ConfigFile

__all__ = ["effective", "read_config_file", "resolved_configs", "storage_options"]


def effective(
    path: Path | None, flags: Mapping[str, str], settings: Iterable[str]
) -> tuple[ConfigFile, dict[str, str]]:
    """The config file, empty if there is none, and the effective configs of all sources.

    `settings` are KEY=VALUE texts of `--set`, which overrides the other flags. Secrets are refused there.
    """
    from penstock.model.config import ConfigFile, configs_of, effective_configs, environment_configs

    file = ConfigFile({}) if path is None else read_config_file(path)
    environment = environment_configs(os.environ)
    named = configs_of(pairs(settings, "--set").items())
    refuse_secret_arguments(named)
    return file, effective_configs([file.configs, environment, flags, named])


def resolved_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs with the values of their placeholders; InvalidConfig if one refers to nothing."""
    from penstock.model.config.placeholders import resolved

    return resolved(configs, lambda path: Path(path).read_text(encoding="utf-8"), os.environ)


def storage_options(texts: Iterable[str]) -> dict[str, str]:
    """The options of an object store in KEY=VALUE texts of `--storage-option`. Secrets are refused there."""
    named = pairs(texts, "--storage-option")
    refuse_secret_options(named)
    return resolved_configs(named)


def read_config_file(path: Path) -> ConfigFile:
    """A config file; a Failure names the error in it."""
    from penstock.model.config import load_config_file
    from penstock.model.config.files import InvalidYaml
    from penstock.model.errors import InvalidConfig, InvalidTopic

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if "=" in path.name:
            misused(_meant_as_setting(path))
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        misused(f"cannot read --config {path}: {reason}")
    try:
        file = load_config_file(text, "properties" if path.suffix == ".properties" else "yaml")
        if file.topics:
            from penstock.metadata.topics import check_topic_name

            for topic in file.topics:
                check_topic_name(topic.name)
    except InvalidYaml as error:
        place = "" if error.place is None else ":{}:{}".format(*error.place)
        raise Failure(f"{path}{place}: {error}", MISUSED, error.excerpt) from error
    except (InvalidConfig, InvalidTopic) as error:
        misused(f"{path}: {error}")
    return file


def _meant_as_setting(path: Path) -> str:
    """The error for `--config KEY=VALUE`, which is the syntax of kafka-topics and `penstock topic create`."""
    from penstock.model.config import configs_of
    from penstock.model.errors import InvalidConfig

    advice = f"--config names a file; a config is set with --set {path}"
    try:
        configs_of(pairs([str(path)], "--config").items())
    except InvalidConfig as error:
        return f"{advice} ({error})"
    return advice
