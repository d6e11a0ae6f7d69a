"""A run's timeline for the page that shows two of them: the same figures as in its report, drawn as
plain SVG, so that both stand on one axis of time."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shalott.checkers.checker import Result
from shalott.core.errors import StoreError, UsageError
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History, read_history
from shalott.core.op import NEMESIS
from shalott.harness.fleet.serve.asked import Refused
from shalott.harness.fleet.serve.places import Places, RunPlace
from shalott.harness.report.data import read_timeline
from shalott.harness.report.findings import double_tenure_bars
from shalott.harness.report.losses import loss_lanes
from shalott.harness.report.plots.series import latencies, rates, read_clients
from shalott.harness.report.run_picture import Stage, build_stage
from shalott.harness.run.store import EVENTS, HISTORY

CLIENT_ROWS_MAX = 2_000_000  # of longer histories only what the nemesis did is drawn
OBSERVE_INTERVAL_MS = 500


@dataclass(frozen=True, slots=True)
class Drawn:
    """``note``: why it is not whole, or (without a stage) why there is none."""

    stage: Stage | None
    note: str = ""


def draw_timeline(
    places: Places, place: RunPlace, nodes: tuple[str, ...], results: tuple[Result, ...]
) -> Drawn:
    try:
        with places.opened(place, HISTORY) as file:
            rows = pq.ParquetFile(file).metadata.num_rows
        events = place.path / EVENTS
        if events.is_symlink():
            return Drawn(None, "Its events are a link, which is not followed.")
        note = ""
        if rows > CLIENT_ROWS_MAX:
            history = _nemesis_only(places, place)
            note = f"It has {rows:,} operations: rates and latencies are in its report."
        else:
            history = read_history(place.path / HISTORY, events, complete=True)
        timeline = read_timeline(history, nodes, OBSERVE_INTERVAL_MS)
        clients = read_clients(history)
        stage = build_stage(
            timeline,
            rates(clients, timeline.end_ns),
            latencies(clients, timeline.end_ns),
            loss_lanes(results),
            double_tenure_bars(results),
        )
        return Drawn(stage, note)
    except Refused:
        return Drawn(None, "It has no stored history.")
    except (OSError, pa.ArrowException, StoreError, UsageError) as error:
        return Drawn(None, f"Its history can't be read: {str(error).partition(chr(10))[0][-200:]}")


def _nemesis_only(places: Places, place: RunPlace) -> History:
    with places.opened(place, HISTORY) as file:
        found = pq.read_table(file, filters=[("process", "=", NEMESIS)])
    columns = [
        found[field.name] if field.name in found.column_names else pa.nulls(len(found), field.type)
        for field in HISTORY_SCHEMA
    ]
    table = pa.table(columns, schema=HISTORY_SCHEMA)
    renumbered = table.set_column(0, "index", pa.array(range(len(table)), pa.int64()))
    return History(ops=renumbered.filter(pc.is_valid(renumbered["invoke_ns"])), events=EMPTY_EVENTS)
