"""A red night, a green one and a flaky one, in a row, by the steps of the GitHub example; then what
its reader sees of them in the morning, in a real browser.

The runs are real ones in the simulation. A bug of the broker is planted in the first night and gone
in the second; in the third a checker fails every other run of one cell (benchmarks/night_coin.py).
With SHALOTT_PICTURES=DIRECTORY the pictures of docs/how-to/run-a-night.md are made.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shalott.harness.store.runs_table import refresh
from tests.docs.test_ci_nights import Nights
from tests.harness.serve.test_serve_browser import (
    opened,
    path_of,
    serving,
    show,
    text_of,
)
from tests.world.chromium import Chromium, Page
from tests.world.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.nightly("three nights of real runs take some minutes"),
]

MATRIX = """
name = "nightly"
[night]
deflake = 3

[[cells]]
system = "mirrored"
nemesis = ["kill", "partition", "power-all"]
seeds = 2

[cells.flags]
time-limit = "8s"
rate = 20
nemesis-interval = "2s"
nemesis-duration = "1s"
min-acked = 5
{bug}

[[cells]]
system = "dledger"
label = "coin"
flags = {{ name = "coin", time-limit = "5s", rate = 20, min-acked = 5 }}

[[cells]]
system = "controller"
profile = "upstream"
nemesis = "partition-isolate-master"
seeds = [2]

[cells.flags]
time-limit = "15s"
rate = 40
nemesis-interval = "6s"
nemesis-duration = "3s"

[[rule]]
of = {{ profile = "upstream" }}
expect = ["valid", "invalid"]
"""
RED, FLAKY = "mirrored/safe/sim/queue/power-all", "dledger/safe/sim/log/none@coin"
EXPECTED = "controller/upstream/sim/log/partition-isolate-master"
SIZE = (1180, 900)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def told() -> list[Any]:
    """The summaries of the three nights, filled by ``store``."""
    return []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, told: list[Any]) -> Path:
    """All shards' stores of the third night, as its artifacts have them, in one."""
    scratch = tmp_path_factory.mktemp("nights")
    nights = Nights(scratch, stub="", matrix="")
    nights.runner.env["SHALOTT_COIN_LOAD"] = "1"
    for run_id, bug in ((1, 'bug = "OUR-03"'), (2, ""), (3, "")):
        (nights.runner.checkout / "nightly.toml").write_text(MATRIX.format(bug=bug))
        if run_id == 3:
            nights.runner.env["SHALOTT_COIN"] = str(scratch / "coin")
        _, last, found = nights.run(run_id)
        told.append((found, last.failed, last.summary))
    whole = scratch / "whole"
    whole.mkdir()
    for (run_id, name), artifact in nights.runner.artifacts.items():
        if run_id == 3 and name.startswith("store-"):
            subprocess.run(["cp", "-R", f"{artifact}/.", str(whole)], check=True)
    refresh(whole)
    return whole


def statuses(found: Any) -> dict[str, str]:
    return {one["cell"]: one["status"] for one in reversed(found["findings"])}


def test_the_nights_are_red_green_and_flaky(store: Path, told: list[Any]) -> None:
    (red, red_failed, text), (green, green_failed, _), (flaky, flaky_failed, _) = told
    assert (statuses(red), red_failed) == ({RED: "new"}, True)
    assert (statuses(green), green_failed) == ({RED: "fixed"}, False)
    assert (statuses(flaky), flaky_failed) == ({FLAKY: "flaky"}, True)
    assert red["compared_with"] == [] and green["compared_with"] == ["nightly-1"]
    assert red["planned"] == red["ran"] == 8
    assert text.count(f"  {RED}: ") == 1, "a cell is one block"
    assert "Expected: 1 run that" in text and EXPECTED in text


def photograph(page: Page, name: str, height: int = SIZE[1]) -> None:
    folder = os.environ.get("SHALOTT_PICTURES")
    if folder:
        page.resize(SIZE[0], height)
        page.settle()
        page.screenshot(Path(folder, name))
        page.resize(*SIZE)


def click(page: Page, selector: str, wanted: str) -> None:
    page.ask(f"document.querySelector({selector!r}).click()")
    until(lambda: path_of(page).startswith(wanted), wanted)
    until(lambda: page.ask("document.readyState") == "complete", "it is loaded")


def test_a_reader_comes_from_the_night_to_the_proof(chromium: Chromium, store: Path) -> None:
    with serving(store) as address, opened(chromium, address, "nights") as page:
        rows = text_of(page, "table")
        assert rows.index("nightly-3") < rows.index("nightly-2") < rows.index("nightly-1")
        show(page, address, "night?night=nightly-1")
        text = text_of(page)
        assert "8 of 8 done" in text and "1 not valid, as expected" in text
        assert page.ask("document.querySelectorAll('article.found').length") == 1
        heads = page.ask("[...document.querySelectorAll('.matrix thead th')].map(e => e.innerText)")
        assert heads[1:] == [
            "power-all",
            "kill",
            "no fault",
            "partition",
            "partition-isolate-master",
        ]
        photograph(page, "night-red.png")
        for to, wanted in (
            ("messages", "/run/history?run="), ("fault", "/run/history?run="),
            ("log", "/run/text?run="),
        ):  # fmt: skip
            show(page, address, "night?night=nightly-1")
            click(page, f"article.found a[href*='to={to}']:not(.quiet)", wanted)
            assert text_of(page, "table" if to != "log" else "pre.text")
            if to == "log":
                assert page.ask("document.querySelector('mark#here') !== null")
        show(page, address, "night?night=nightly-1")
        click(page, "article.found a[href^='/run?']", "/run?run=")
        text = text_of(page)
        assert text.index("Why:") < text.index("Go on from here")
        assert "may change nothing" not in text
        photograph(page, "night-run.png")
        show(page, address, "night?night=nightly-2")
        assert "fixed" in text_of(page, "article.found")
        assert page.ask("document.querySelectorAll('a.cell.invalid').length") == 0
        photograph(page, "night-green.png")
        show(page, address, "night?night=nightly-3")
        assert "flaky" in text_of(page, "article.found")
        photograph(page, "night-flaky.png")
        show(page, address, "findings")
        text = text_of(page)
        assert "OUR-03" not in text and RED in text and FLAKY in text
        photograph(page, "night-findings.png")
