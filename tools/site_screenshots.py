"""Makes pictures of the site of the documentation in light, dark and on a phone, to look at before a release.

python3 -m tools.site_screenshots [SITE FOLDER]

Without arguments it takes the site that `make docs` has built, and also writes the picture in the README.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.console.browser import chromium
from tools.chromium import HOW_TO, find_chromium

__all__ = ["STATES", "main"]

_ROOT: Final = Path(__file__).parents[1]
_BUILD: Final = _ROOT / "build" / "docs"
_IN_README: Final = _ROOT / "docs" / "pictures" / "site.png"
#: width, height, dark
STATES: Final = {"light": (1280, 860, False), "dark": (1280, 860, True), "phone": (390, 800, False)}
#: the first page, a page with tables and code, a generated page, the list of tutorials
_PAGES: Final = ("index", "cluster", "cli-reference", "tutorials/index")


def main(site: Path, folder: Path, pages: Sequence[str] = _PAGES) -> int:
    path = find_chromium()
    if path is None:
        print(HOW_TO, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with chromium(path) as browser:
        for state, (width, height, dark) in STATES.items():
            page = browser.page(width, height, dark=dark)
            for name in pages:
                page.open((site / f"{name}.html").as_uri())
                page.screenshot(folder / f"{name.replace('/', '-')}-{state}.png")
            page.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    failed = main(_BUILD / "site", _BUILD / "screenshots")
    if not failed:
        shutil.copyfile(_BUILD / "screenshots" / "cluster-light.png", _IN_README)
    sys.exit(failed)
