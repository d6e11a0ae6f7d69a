"""The timeline in a real browser: ten thousand operations, painted soon, read by mouse and key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shalott.checkers.history.concurrent import NEVER, from_rows
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.timeline import write_timeline
from shalott.checkers.models import make_model
from tests.checkers.linearizability.test_explain import CASES
from tests.checkers.linearizability.timelines import made_up, register_history
from tests.world.chromium import Chromium, Page

pytestmark = pytest.mark.browser

OPERATIONS = 10_000
PAINTED_MS_MAX = 1_000
FRAME_MS_MAX = 80  # and what else a turn of the wheel costs the page's thread
LIN = "document.querySelector('.lin')"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    history = register_history(OPERATIONS, 20)
    reads = np.flatnonzero((history.f.codes == 1) & (history.ret != NEVER))
    path = tmp_path_factory.mktemp("timeline") / "big.html"
    write_timeline(path, made_up(history, int(reads[len(reads) * 6 // 10])), history)
    return path


@pytest.fixture
def page(chromium: Chromium, big: Path) -> Iterator[Page]:
    with chromium.page() as opened:
        opened.open(big)
        yield opened
        assert opened.errors == []
        assert opened.requests == [big.resolve().as_uri()]


def view(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.ask(f"{LIN}.timeline.view()")
    return found


def spot(page: Page, operation: int) -> tuple[float, float]:
    found = page.ask(f"{LIN}.timeline.spot({operation})")
    return found["x"], found["y"]


def press(page: Page, name: str) -> None:
    page.ask(f"{LIN}.querySelector('[data-do={name}]').click()")
    page.settle()


def colour_at(page: Page, x: float, y: float) -> list[int]:
    """The canvas's pixel at a place of the page."""
    pixel: list[int] = page.ask(
        f"(() => {{ const c = {LIN}.querySelector('.lin-canvas'), b = c.getBoundingClientRect();"
        f"return [...c.getContext('2d').getImageData({x} - b.left, {y} - b.top, 1, 1).data] }})()"
    )
    return pixel


def test_ten_thousand_operations_are_painted_within_a_second(chromium: Chromium, big: Path) -> None:
    """By its thread's own clock: how long a busy machine makes it wait is not the page's fault."""
    with chromium.page() as page:
        page.cpu_ms()
        page.open(big)
        assert view(page)["operations"] == OPERATIONS
        assert page.ask(f"Number({LIN}.dataset.painted)") > 0
        assert page.cpu_ms() < PAINTED_MS_MAX


def test_panning_and_zooming_out_stay_smooth(page: Page) -> None:
    page.cpu_ms()
    press(page, "all")
    whole = view(page)
    assert whole["to"] - whole["from"] > 1.9 * OPERATIONS * 0.9
    began, frames = page.cpu_ms(), 24
    for name in ("in", "out") * (frames // 2):
        press(page, name)
    assert (page.cpu_ms() - began) / frames < FRAME_MS_MAX


def test_the_stuck_operation_is_in_view_and_red(page: Page) -> None:
    x, y = spot(page, view(page)["stuck"])
    assert 0 < x < 1280
    assert 0 < y < 900
    red, green, blue, alpha = colour_at(page, x, y - 6)
    assert red > 150 > 90 > max(green, blue)
    assert alpha == 255
    shown = page.ask(f"{LIN}.querySelector('tr.stuck').textContent")
    assert "stuck" in shown


def test_hovering_tells_all_about_an_operation(page: Page) -> None:
    page.move(*spot(page, view(page)["stuck"]))
    tip = page.ask(f"{LIN}.querySelector('.lin-tip').innerText")
    assert re.search(r"read → \d+ process \d+", tip)
    for word in ("outcome", "order", "clock", "line", "no order explains its return"):
        assert word in tip
    assert "it returned 3, and the register holds 5" in tip
    page.move(3, 3)
    assert page.ask(f"{LIN}.querySelector('.lin-tip').hidden")


def test_the_mouse_zooms_and_pans(page: Page) -> None:
    at = spot(page, view(page)["stuck"])
    before = view(page)
    page.wheel(*at, -400, control=True)
    zoomed = view(page)
    assert zoomed["to"] - zoomed["from"] < 0.8 * (before["to"] - before["from"])
    page.drag(at, (at[0] - 200, at[1]))
    panned = view(page)
    assert panned["from"] > zoomed["from"]
    assert panned["to"] - panned["from"] == pytest.approx(zoomed["to"] - zoomed["from"])
    press(page, "window")
    assert view(page)["from"] == pytest.approx(before["from"])


def test_the_wheel_alone_scrolls_the_page(page: Page) -> None:
    before = view(page)
    page.wheel(*spot(page, before["stuck"]), 120)
    assert view(page)["from"] == before["from"]


def test_everything_can_be_done_with_keys(page: Page) -> None:
    page.ask(f"{LIN}.querySelector('.lin-scroll').focus()")
    page.key("s")
    stuck = view(page)["stuck"]
    assert view(page)["selected"] == stuck
    told = page.ask(f"{LIN}.querySelector('.lin-readout').innerText")
    assert "no order explains its return" in told
    page.key("ArrowRight")
    assert view(page)["selected"] == stuck + 1
    page.key("ArrowLeft")
    page.key("ArrowUp")
    assert view(page)["selected"] != stuck
    wide = view(page)
    page.key("+")
    assert view(page)["to"] - view(page)["from"] < wide["to"] - wide["from"]
    page.key("0")
    assert view(page)["to"] - view(page)["from"] > OPERATIONS
    page.key("w")
    assert view(page)["to"] - view(page)["from"] < OPERATIONS / 10
    page.key("Escape")
    assert view(page)["selected"] == -1


def test_an_order_is_stepped_through(page: Page) -> None:
    page.ask(f"{LIN}.querySelector('.lin-scroll').focus()")
    steps = page.ask(f"{LIN}.querySelectorAll('.lin-steps button').length")
    assert steps > 10
    page.key(",")
    page.key(",")
    assert view(page)["step"] == steps - 2
    assert page.ask(f"{LIN}.querySelectorAll('.lin-steps .later').length") == 2
    page.key("]")
    assert view(page)["order"] == 1
    assert "order 2 of 2" in page.ask(f"{LIN}.querySelector('.lin-which').innerText")
    page.key("]")
    assert view(page)["order"] == 0
    assert "holds 5" in page.ask(f"{LIN}.querySelector('.lin-blocked').innerText")


def test_a_value_is_searched_for(page: Page) -> None:
    page.ask(f"{LIN}.querySelector('input').focus()")
    page.write("write 6001")
    assert view(page)["found"] == 1
    page.key("Enter")
    told = page.ask(f"{LIN}.querySelector('.lin-readout').innerText")
    assert "write 6001" in told
    page.ask(f"{LIN}.querySelector('input').value = ''")
    page.write("no such thing")
    assert view(page)["found"] == 0


def test_the_clock_can_be_the_axis(page: Page) -> None:
    page.ask(f"{LIN}.querySelector('[data-axis=clock]').click()")
    page.settle()
    seen = view(page)
    assert seen["axis"] == "clock"
    x, _ = spot(page, seen["stuck"])
    assert 0 < x < 1280


def test_dark_and_narrow_pages_are_drawn_too(page: Page) -> None:
    x, y = spot(page, view(page)["stuck"])
    light = colour_at(page, x, y - 6)
    page.dark(True)
    dark = colour_at(page, x, y - 6)
    assert dark != light
    page.resize(420, 800)
    page.settle()
    assert page.ask("document.documentElement.scrollWidth") <= 420


@pytest.mark.parametrize("case", CASES, ids=[case.model for case in CASES])
def test_real_explanations_are_drawn(chromium: Chromium, tmp_path: Path, case: Any) -> None:
    history = from_rows(case.rows)
    path = tmp_path / "page.html"
    write_timeline(path, explain(history, make_model(case.model)), history)
    with chromium.page() as page:
        page.open(path)
        assert page.errors == []
        assert view(page)["operations"] == len(history)
        assert case.reason[1:] in page.ask(f"{LIN}.querySelector('.lin-reason').textContent")
        assert page.ask(f"{LIN}.querySelectorAll('.lin-steps button').length") > 0
