"""``shalott pictures``: a run or a night, drawn for a talk."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.errors import UsageError
from shalott.harness.cli.options import StoreOption
from shalott.harness.run.request import STORE, one_of
from shalott.harness.run.store import PLAN, Store

FORMATS = ("svg", "png")


def add_commands(app: typer.Typer) -> None:
    app.command()(pictures)


def pictures(
    what: Annotated[
        str | None, typer.Argument(help="A run, or a store: its newest night. Else the latest run.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to.")] = Path("pictures"),
    formats: Annotated[str, typer.Option("--format", help="svg, png, or both.")] = "svg,png",
    store: StoreOption = STORE,
) -> None:
    """Draw a run (availability beside faults, what was lost) or a store (its newest night)."""
    wanted = tuple(dict.fromkeys(word.strip() for word in formats.split(",")))
    for word in wanted:
        one_of("format", word, FORMATS)
    if find_spec("matplotlib") is None:
        raise UsageError("`shalott pictures` needs matplotlib: pip install 'shalott[pictures]'")
    from shalott.harness.pictures.drawing import draw_run, draw_store  # needs the extra library

    if what is not None and Path(what).is_dir() and not (Path(what) / PLAN).exists():
        made = draw_store(Path(what), out, wanted)
    else:
        made = draw_run(Store(store).find(what), out, wanted)
    for path in made:
        typer.echo(path)
