"""The site of the documents in a real browser: nothing is wider than its window, on a phone or off.

With SHALOTT_PICTURES=DIRECTORY a few pages are pictured there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT
from tests.world.chromium import Chromium, Page

pytestmark = pytest.mark.browser

WIDTHS = (400, 1200)
BUILD_S = 300
PICTURED = (
    "index.html",
    "reference/faults.html",
    "evidence/loss-windows.html",
    "architecture.html",
)


def builder() -> list[str]:
    """How MkDocs is started. Skips where it is missing, unless browsers are required."""
    if importlib.util.find_spec("mkdocs") is not None:
        return [sys.executable, "-m", "mkdocs"]
    if found := shutil.which("mkdocs"):
        return [found]
    reason = "no mkdocs; install it with: .venv/bin/pip install -e '.[docs]'"
    if os.environ.get("SHALOTT_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built strictly: a link or anchor that leads nowhere fails."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*builder(), "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Chromium() as started, started.page() as made:
        yield made


def test_no_page_is_wider_than_its_window(site: Path, page: Page, tmp_path: Path) -> None:
    built = sorted(site.rglob("*.html"))
    assert len(built) > 40
    wide = []
    for path in built:
        for width in WIDTHS:
            page.open(path, width, 900)
            over, room = page.ask(
                "(e => [e.scrollWidth, e.clientWidth])(document.scrollingElement)"
            )
            if over > room:
                wide.append(f"{path.relative_to(site)} at {width}: {over}")
    assert wide == []


def test_nothing_is_fetched_from_elsewhere(site: Path, page: Page) -> None:
    page.requests.clear()
    page.open(site / "index.html", 1200, 900)
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "partition-isolate-master" in index and "reference/faults.html" in index


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PICTURED)
def test_what_a_page_looks_like(site: Path, page: Page, name: str, width: int) -> None:
    page.open(site / name, width, 900)
    assert page.ask("document.querySelector('article h1').textContent.length") > 3
    if folder := os.environ.get("SHALOTT_PICTURES"):
        page.screenshot(Path(folder, f"site-{name.replace('/', '-')}-{width}.png"))
