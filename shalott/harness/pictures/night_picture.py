"""A night, or any store, as a heat map: what ran against what broke it.

A run of a night stands in its cell, by the cell's name; runs that only repeat one that failed are
not counted.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from shalott.harness.matrix.run_outcomes import AGAIN
from shalott.harness.pictures.run_pictures import INK, sheet
from shalott.harness.store.columns import RUN, Row

# From the best to the worst; a cell has the colour of its worst run.
VERDICTS = ("true", "unknown", "false")
WORDS = ("valid", "unknown", "invalid")
COLOURS = ("#3f9a74", "#f2b84b", "#b3213d")
NONE = "none"
AXES = 5


def night_picture(runs: pa.Table) -> Figure | None:
    """The newest night's runs, or all where there is no night; None of no run with a verdict.

    ``runs``: the store's table of runs, the oldest first.
    """
    rows: list[Row] = [row for row in runs.to_pylist() if row["kind"] == RUN and row["valid"]]
    if not rows:
        return None
    night = next((row["night"] for row in reversed(rows) if row["night"]), "")
    rows = [row for row in rows if row["night"] == night and not _is_again(row)]
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        cells.setdefault(_place(row), []).append(row["valid"])
    what = sorted({key[0] for key in cells})
    faults = sorted({key[1] for key in cells})
    invalid = sum(row["valid"] == "false" for row in rows)
    title = f"{invalid} of {len(rows)} runs were invalid"
    figure, axes = sheet(title, f"the night {night}" if night else "all runs of the store")
    figure.set_size_inches(max(7.0, 3.5 + 0.9 * len(faults)), 2.6 + 0.5 * len(what))
    worst = np.full((len(what), len(faults)), np.nan)
    for (row_name, column_name), verdicts in cells.items():
        at = what.index(row_name), faults.index(column_name)
        worst[at] = max(VERDICTS.index(verdict) for verdict in verdicts)
        told = f"{verdicts.count('false')}/{len(verdicts)}"
        axes.text(at[1], at[0], told, ha="center", va="center", color="white", fontsize=9)
    axes.imshow(worst, cmap=ListedColormap(COLOURS), vmin=0, vmax=len(COLOURS) - 1, aspect="auto")
    axes.set_xticks(range(len(faults)), faults, rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(len(what)), what, fontsize=8)
    axes.set_xlabel("faults; in each cell: invalid runs of all", color=INK)
    axes.legend(
        handles=[Patch(color=c, label=w) for c, w in zip(COLOURS, WORDS, strict=True)],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
    )
    return figure


def _place(row: Row) -> tuple[str, str]:
    """The row and the column of the map: the nemesis is the last word of the axes in a cell's name
    (system/profile/cluster/workload/nemesis, and a label)."""
    axes = str(row["cell"]).split("/")
    if len(axes) >= AXES:
        return " ".join(axes[: AXES - 1]), "/".join(axes[AXES - 1 :])
    parts = (row["system"], row["profile"], row["cluster"], row["workload"])
    return " ".join(str(part) for part in parts if part), ", ".join(row["nemesis"] or ()) or NONE


def _is_again(row: Row) -> bool:
    tags = msgspec.json.decode(row["tags"], type=dict[str, str]) if row["tags"] else {}
    return tags.get("turn", "").startswith(AGAIN)
