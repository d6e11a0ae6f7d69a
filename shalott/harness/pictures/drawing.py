"""Which pictures there are of what, and writing them as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from shalott.core.errors import StoreError, UsageError
from shalott.harness.pictures.night_picture import night_picture
from shalott.harness.pictures.run_pictures import availability_picture, lost_picture
from shalott.harness.report.results import read_results
from shalott.harness.run.store import RESULTS, RunDirectory
from shalott.harness.store.runs_table import refresh

DPI = 160
# Words as words, and the same bytes for the same run.


def draw_run(directory: RunDirectory, out: Path, formats: Sequence[str]) -> list[Path]:
    """The pictures of a run. Raises UsageError and StoreError."""
    plan, history = directory.load_plan(), directory.load_history()
    results = read_results(directory.path / RESULTS)
    drawn = [("availability", availability_picture(plan, history, results))]
    if (lost := lost_picture(plan, history, results)) is not None:
        drawn.append(("lost", lost))
    return [path for name, figure in drawn for path in _saved(figure, out / name, formats)]


def draw_store(store: Path, out: Path, formats: Sequence[str]) -> list[Path]:
    """The picture of a store's newest night. Raises UsageError and StoreError."""
    figure = night_picture(refresh(store).table)
    if figure is None:
        raise UsageError(f"no run in {store} has a verdict: there is nothing to draw")
    return list(_saved(figure, out / "night", formats))


def _saved(figure: Figure, stem: Path, formats: Sequence[str]) -> Iterator[Path]:
    for name in formats:
        path = stem.with_suffix(f".{name}")
        stable = {"Date": None} if name == "svg" else {"Software": None}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shalott"}):
                figure.savefig(path, format=name, dpi=DPI, metadata=stable)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        yield path
