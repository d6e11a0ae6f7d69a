"""Makes the pictures of pages of stores: python -m benchmarks.pictures STORE [REPORTED].

For docs/how-to/browse-a-store.md: lists and a night of STORE (benchmarks/serve_store.py makes one
that is large), a run of a store that is made here. For docs/how-to/report-on-many-runs.md: the
report on REPORTED, a store of simulated runs. Needs chromium; scripts/pictures makes all pictures.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from rich.console import Console

from shalott.harness.fleet.page_builder import page_writer
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.report import run_report
from tests.harness.fleet import test_page_browser as fleet
from tests.harness.serve import test_serve_browser as serve
from tests.world.chromium import Chromium, Page
from tests.world.harness.served_store import RED, make_store

SERVED_HEIGHT, NIGHT_HEIGHT = 820, 1500
SERVED = (
    ("serve-runs.png", ""),
    ("serve-night.png", "night"),
    ("serve-night-dark.png", "night"),
    ("serve-findings.png", "findings"),
)
REPORTED = (
    ("fleet-report.png", fleet.DESKTOP, False),
    ("fleet-report-dark.png", fleet.DESKTOP, True),
    ("fleet-report-phone.png", fleet.PHONE, False),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("reported", type=Path, nargs="?")
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    asked = parser.parse_args()
    with Chromium() as chromium, tempfile.TemporaryDirectory() as scratch:
        with serve.serving(asked.store) as address:
            for name, place in SERVED:
                picture_served(chromium, address, place, asked.into / name)
        with serve.serving(make_store(Path(scratch) / "store")) as address:
            picture_served(chromium, address, f"run?run={RED}", asked.into / "serve-run.png")
        if asked.reported is not None:
            with chromium.page() as page:
                picture_report(page, asked.reported, Path(scratch), asked.into)


def picture_served(chromium: Chromium, address: str, place: str, into: Path) -> None:
    with serve.opened(chromium, address) as page:
        page.dark(into.stem.endswith("dark"))
        page.resize(serve.DESKTOP[0], NIGHT_HEIGHT if place == "night" else SERVED_HEIGHT)
        serve.show(page, address, place)
        assert serve.text_of(page, "h1")
        page.screenshot(into)


def picture_report(page: Page, store: Path, scratch: Path, into: Path) -> None:
    quiet = Console(file=io.StringIO())
    run_report(str(store), scratch, quiet, Wanted(engine="local"), page_writer(8))
    for name, size, is_dark in REPORTED:
        page.dark(is_dark)
        page.resize(*size)
        fleet.show(page, scratch / "index.html")
        page.screenshot(into / name)


if __name__ == "__main__":
    main()
