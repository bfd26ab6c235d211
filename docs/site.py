"""The site of the documentation: stages the pages as MkDocs reads them, with the navigation.

`python -m docs.site` writes `build/docs/pages` and `build/docs/mkdocs.yml`; `make docs` builds the site from
them. The pages in the repository link to each other as GitHub shows them. On the site `docs/` is the root,
`README.md` is the first page, and files that pages link to are beside them.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["BUILD", "NAVIGATION", "ROOT", "named", "navigation", "place", "relinked", "sources", "stage"]

ROOT: Final = Path(__file__).resolve().parent.parent
NAVIGATION: Final = ROOT / "docs" / "navigation.yml"
BUILD: Final = ROOT / "build" / "docs"
#: pages at the root of the repository
_ROOT_PAGES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
#: comments mark rendered numbers; a line that begins with one would end its paragraph
_COMMENT: Final = re.compile(r"<!--.*?-->")
_FENCE: Final = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
#: a folder is shown by its index
_INDEX: Final = "README.md"
#: pages with long tables and old decisions come last in the results of a search
_LAST_FOUND: Final = re.compile(r"CHANGELOG|(benchmarks|comparison|conformance|security-matrix)\.md|adr/")
_LOW_RANK: Final = "---\nsearch:\n  boost: 0.3\n---\n\n"


def sources() -> list[str]:
    """The pages of the site, as paths in the repository."""
    below = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*_ROOT_PAGES, *sorted(below)]


def place(path: str) -> str:
    """Where a file of the repository is on the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def relinked(text: str, page: str) -> tuple[str, set[str]]:
    """A page with the links of the site, and the files of the repository that it links to."""
    linked: set[str] = set()

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if (ROOT / path).is_dir():
            path = posixpath.join(path, _INDEX)
        linked.add(path)
        staged = posixpath.relpath(place(path), posixpath.dirname(place(page)) or ".")
        text = _title(path) if found["text"] in (target, path) and path.endswith(".md") else found["text"]
        return f"[{text}]({staged}{'#' + anchor if anchor else ''})"

    parts = _FENCE.split(text)
    # Every second part is a block of code.
    staged = (part if part.startswith("```") else _LINK.sub(link, _COMMENT.sub("", part)) for part in parts)
    return "".join(staged), linked


def _title(path: str) -> str:
    """The heading of a page. The site shows no file names."""
    heading = re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else path


def navigation() -> list[Any]:
    """The navigation with the pages that `*` stands for."""
    declared = yaml.safe_load(NAVIGATION.read_text(encoding="utf-8"))
    by_name = set(named(declared))
    found: list[Any] = _expanded(declared, by_name)
    return found


def named(entries: Any) -> Iterator[str]:
    """The pages that a navigation names, in order."""
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries.values() if isinstance(entries, Mapping) else entries:
        yield from named(entry)


def _expanded(entries: Any, by_name: set[str]) -> Any:
    if isinstance(entries, Mapping):
        return {title: _expanded(each, by_name) for title, each in entries.items()}
    if isinstance(entries, str):
        return entries
    expanded: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            pages = (place(page) for page in sources())
            expanded += [page for page in pages if page.startswith(entry[:-1]) and page not in by_name]
        else:
            expanded.append(_expanded(entry, by_name))
    return expanded


def stage(folder: Path) -> None:
    """Write the pages, the files that they link to, and the config of MkDocs."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "theme").iterdir()}
    listed = sources()
    for page in listed:
        text, linked = relinked((ROOT / page).read_text(encoding="utf-8"), page)
        target = pages / place(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        head = _LOW_RANK if _LAST_FOUND.match(place(page)) else ""
        target.write_text(head + text, encoding="utf-8")
        files |= linked
    for path in sorted(files - set(listed)):
        target = pages / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    config = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(pages),
        "site_dir": str(folder / "site"),
        "nav": navigation(),
    }
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    stage(BUILD)
