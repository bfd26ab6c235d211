"""The site of the documentation: all pages are in the navigation, and the site works without a network."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import site
from tests.console.browser import Browser, chromium
from tools import site_screenshots
from tools.chromium import HOW_TO, find_chromium

#: what `make test-site-tools` installs
TOOLS = Path(sys.prefix) / "docs"
_ATTRIBUTE = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="(https?:[^"]+)"')


def test_every_page_is_in_the_navigation_once() -> None:
    shown = list(site.named(site.navigation()))
    assert sorted(shown) == sorted(site.place(page) for page in site.sources())


def test_pages_are_sorted_by_purpose() -> None:
    titles = [next(iter(entry)) for entry in site.navigation()]
    assert titles == ["Home", "Tutorials", "How-to", "Reference", "Explanation"]


@pytest.mark.parametrize(
    ("page", "link", "expected", "linked"),
    [
        ("README.md", "[x](docs/cli.md#topics)", "[x](cli.md#topics)", {"docs/cli.md"}),
        ("README.md", "[x](docs/adr/)", "[x](adr/README.md)", {"docs/adr/README.md"}),
        ("docs/cli.md", "[x](../README.md)", "[x](index.md)", {"README.md"}),
        ("docs/adr/0001-own-wire-codec.md", "[x](../cli.md)", "[x](../cli.md)", {"docs/cli.md"}),
        (
            "docs/clients.md",
            "![x](../examples/node/events.js)",
            "![x](examples/node/events.js)",
            {"examples/node/events.js"},
        ),
        ("docs/cli.md", "[x](#topics)", "[x](#topics)", set()),
        ("docs/cli.md", "[x](https://kafka.apache.org/a.md)", "[x](https://kafka.apache.org/a.md)", set()),
        ("README.md", "```sh\n[x](docs/cli.md)\n```\n", "```sh\n[x](docs/cli.md)\n```\n", set()),
        ("README.md", "a <!-- measured: b -->7<!-- measured: end --> c", "a 7 c", set()),
        ("README.md", "[docs/groups.md](docs/groups.md)", "[Consumer groups](groups.md)", {"docs/groups.md"}),
    ],
)
def test_links_lead_to_the_place_on_the_site(page: str, link: str, expected: str, linked: set[str]) -> None:
    assert site.relinked(link, page) == (expected, linked)


def build(config: Path) -> subprocess.CompletedProcess[str]:
    """MkDocs with warnings as errors, as `make docs` calls it."""
    if not (TOOLS / ".ready").exists():
        pytest.skip("the tools of the site are not installed: make test-site-tools")
    command = [
        str(TOOLS / "bin" / "python"),
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("docs")
    site.stage(folder)
    done = build(folder / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.process
def test_the_site_loads_nothing_from_a_network(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > 100
    assert {each for page in pages for each in _ATTRIBUTE.findall(page.read_text(encoding="utf-8"))} == set()


@pytest.mark.process
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    broken = {
        "[x](b.md#none)": "'#none'",
        "[x](none.md)": "'none.md'",
        "![x](none.png)": "'none.png'",
    }
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("\n\n".join(["# A", *broken]))
    (pages / "b.md").write_text("# B\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {site.ROOT / 'mkdocs.yml'}\ndocs_dir: {pages}\nsite_dir: {tmp_path / 'site'}\n"
    )
    done = build(config)
    assert done.returncode == 1
    # A build with one warning fails.
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(broken)
    for name in broken.values():
        assert any(name in warning for warning in warnings), warnings


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(HOW_TO)
    with chromium(path) as running:
        yield running


@pytest.mark.process
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_pages_fit_and_have_no_errors(built: Path, browser: Browser, width: int, dark: bool) -> None:
    page = browser.page(width, 900, dark=dark)
    for name in ("index.html", "cluster.html", "cli-reference.html"):
        page.open((built / name).as_uri())
        scheme = page.js("document.body.getAttribute('data-md-color-scheme')")
        assert scheme == ("slate" if dark else "default")
        assert page.js("document.documentElement.scrollWidth") <= width, name
        broken = page.js("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        assert broken == [], name
    assert page.errors() == []
    page.close()


@pytest.mark.process
def test_the_search_works_in_a_folder(built: Path, browser: Browser) -> None:
    page = browser.page()
    page.open((built / "index.html").as_uri() + "?q=rebalance")
    page.until("document.querySelector('.md-search-result__article h1')")
    titles = "[...document.querySelectorAll('.md-search-result__article h1')].map(e => e.innerText)"
    assert "Consumer groups" in page.js(titles)
    page.close()


@pytest.mark.process
def test_the_site_has_pictures_in_light_in_dark_and_on_a_phone(
    built: Path, browser: Browser, tmp_path: Path
) -> None:
    assert site_screenshots.main(built, tmp_path, ["index"]) == 0
    pictures = {state: (tmp_path / f"index-{state}.png").read_bytes() for state in site_screenshots.STATES}
    for state, (width, height, _) in site_screenshots.STATES.items():
        assert struct.unpack(">II", pictures[state][16:24]) == (width, height)
    assert pictures["light"] != pictures["dark"]
