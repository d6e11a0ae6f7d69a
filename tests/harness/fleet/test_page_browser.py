"""The page of a fleet report in a real browser: on a phone, in the dark, by keys, on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shalott.harness.fleet.index_page import Leads, Source, render_page
from tests.world.chromium import Chromium, Page
from tests.world.harness.fleet_page import S, fault, gap, line, made, overlap, page_data, tables
from tests.world.waiting import until

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1180, 1320), (390, 844)
LONG = "a-name-of-one-word-" * 12


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with all sections, and names that are wider than a phone."""
    place = tmp_path_factory.mktemp("page") / "index.html"
    lost = [{"checker": "c", "kind": LONG, "count": 1, "broken": True}]
    rows = [
        made(f"{LONG}/{day}", day, valid="false" if day % 3 == 0 else "true", anomalies=lost,
             workload=LONG if day % 2 else "queue", headline=LONG * 3)
        for day in range(9)
    ]  # fmt: skip
    rows.append(made(f"s/{LONG}", kind="campaign", campaign=LONG, seeds_judged=3, seeds_valid=2,
                     seeds_invalid=1, seeds_unknown=0, anomalies=lost))  # fmt: skip
    run = f"{LONG}/0"
    found = tables(
        unavailability=[gap(run, S, LONG), fault(run, LONG, 0, S, S)],
        dual_masters=[overlap(run, "effective", 0, S)],
    )
    told = line(run, attempts=9, acknowledged=9, lost=1, lost_provably=1, differs={"lost": (1, 2)})
    place.write_bytes(render_page(page_data(rows, [told], found), Leads(None, place.parent),
                                  Source("local", 1)))  # fmt: skip
    with Chromium() as started, started.page() as made_page:
        made_page.resize(*DESKTOP)
        show(made_page, place)
        yield made_page


def show(page: Page, place: Path) -> None:
    before = page.loaded
    page.send("Page.navigate", url=place.as_uri())
    until(lambda: page.ask("document.readyState") == "complete" and page.loaded > before, "it")
    page.settle()


def test_nothing_is_wider_than_its_window_and_nobody_complains(page: Page) -> None:
    for size in (PHONE, (320, 600), (820, 1000), DESKTOP):
        page.resize(*size)
        page.settle()
        assert page.ask("document.documentElement.scrollWidth") <= size[0], size
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_it_is_dark_where_that_is_wanted(page: Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    page.dark(True)
    assert page.ask(colour) == "rgb(20, 22, 27)"
    page.dark(False)
    assert page.ask(colour) == "rgb(251, 250, 247)"


def test_the_keyboard_reaches_the_content_and_every_table(page: Page) -> None:
    for kind in ("keyDown", "keyUp"):
        page.send("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
    assert page.ask("document.activeElement.textContent") == "Skip to the content"
    tables_of = "[...document.querySelectorAll('.table')]"
    assert page.ask(f"{tables_of}.length") >= 8
    assert page.ask(f"{tables_of}.every(e => (e.focus(), document.activeElement === e))")


def test_on_paper_the_tables_are_whole(page: Page) -> None:
    page.resize(1040, 720)  # A4, upright on its side, as a printer sees it
    page.send("Emulation.setEmulatedMedia", media="print")
    page.settle()
    assert page.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    wide = "[...document.querySelectorAll('.table')].filter(e => e.scrollWidth > 1040).length"
    assert page.ask(wide) == 0
    page.send("Emulation.setEmulatedMedia", media="")
