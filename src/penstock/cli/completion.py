"""Shell completion: `--install-completion`, `--show-completion`, and the names of topics and groups.

To complete a command line, a shell starts `penstock` with `_PENSTOCK_COMPLETE` set. Names of topics and
groups come from the cluster that the command line names. Invariant: a cluster that cannot be reached, or is
slow, completes nothing and prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from penstock.cli.failure import Failure

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

__all__ = [
    "group_names",
    "install_completion",
    "prepare_completion",
    "share_group_names",
    "show_completion",
    "topic_names",
]

_PROGRAM: Final = "penstock"
_VARIABLE: Final = "_PENSTOCK_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
#: a longer wait at the Tab key is worse than no names
_ANSWER_S: Final = 1.0


def prepare_completion(environment: MutableMapping[str, str]) -> None:
    """If a shell requests completion: register the shells, and join words that bash has split."""
    if _VARIABLE not in environment:
        return
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
    if environment[_VARIABLE] == "complete_bash":
        words = environment.get("COMP_WORDS", "").split("\n")
        joined, current = rejoined(words, int(environment.get("COMP_CWORD", "0")))
        environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(joined), str(current)


def rejoined(words: list[str], current: int) -> tuple[list[str], int]:
    """Join HOST:PORT and KEY=VALUE, which bash splits in three; `current` is an index."""
    joined: list[str] = []
    index = current
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        after = words[number + 1] if number + 1 < len(words) else ""
        is_separator = word == "=" or (word == ":" and after.isdigit())
        follows_one = before == "=" or (before == ":" and word.isdigit())
        if joined and (is_separator or follows_one):
            joined[-1] += word
            index -= number <= current
        else:
            joined.append(word)
    return joined, index


def install_completion(wanted: bool) -> None:
    """The callback of `--install-completion`."""
    if not wanted:
        return
    from typer.completion import install  # type: ignore[attr-defined]

    try:
        shell, path = install(shell=_shell(), prog_name=_PROGRAM)
    except OSError as error:
        raise Failure(f"cannot install completion: {error}; --show-completion prints the script") from error
    print(f"installed completion for {shell} in {path}: it works in new shells")
    raise typer.Exit


def show_completion(wanted: bool) -> None:
    """The callback of `--show-completion`."""
    if not wanted:
        return
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=_shell()))
    raise typer.Exit


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics of the cluster that the command line names, for `autocompletion=`."""
    return _names(ctx, incomplete, _topics)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups of the cluster that the command line names, for `autocompletion=`."""
    return _names(ctx, incomplete, _groups)


def share_group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Share groups of the cluster that the command line names, for `autocompletion=`."""
    return _names(ctx, incomplete, _share_groups)


def _shell() -> str:
    """The shell that started the command; else the user's own, for example inside of a container."""
    import shellingham

    try:
        found = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        found = Path(os.environ.get("SHELL", "")).name
    if found not in _SHELLS:
        named = f"{found} has no completion" if found else "cannot detect the shell"
        raise Failure(f"{named}: set SHELL to one of {', '.join(_SHELLS)}")
    return str(found)


def _names(ctx: typer.Context, incomplete: str, find: Callable[[Cluster], Iterable[str]]) -> list[str]:
    from penstock.cli.cluster.broker_home import bootstrap_of
    from penstock.cli.connection import Cluster
    from penstock.cli.options import DEFAULT_BOOTSTRAP

    given = ctx.params
    bootstrap = given.get("bootstrap") or os.environ.get("PENSTOCK_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    with suppress(Exception):
        cluster = Cluster(bootstrap_of(given.get("data"), bootstrap), _ANSWER_S)
        return sorted(name for name in find(cluster) if name.startswith(incomplete))
    return []


def _topics(cluster: Cluster) -> list[str]:
    return [name for name in cluster.metadata(cluster.admin).topics if not name.startswith("__")]


def _groups(cluster: Cluster) -> list[str]:
    listed = cluster.wait(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    return [group.group_id for group in listed.valid]


def _share_groups(cluster: Cluster) -> list[str]:
    from penstock.cli.direct import DirectLine
    from penstock.cli.share_groups import ShareGroups

    with DirectLine(cluster.bootstrap, cluster.timeout_s) as line:
        return [row["group"] for row in ShareGroups(line).rows()]
