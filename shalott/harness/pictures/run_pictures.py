"""Pictures of one run, for a talk: how much was served beside the faults, and what was lost.

They stand alone: what the colours mean is written in them. Words stay words in SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shalott.checkers.history.acknowledgers import host_of
from shalott.checkers.history.columns import Bools, Ints
from shalott.core.history import History
from shalott.core.plan import Plan
from shalott.harness.report.cluster_timeline import Timeline, read_timeline
from shalott.harness.report.results import RunResults
from shalott.harness.report.run_picture import fault_label
from shalott.harness.report.series import WRITES, Floats, rates, read_clients

WIDE = (10.0, 4.5)  # inches, as on a slide
TITLE_MAX = 80
INK, SOFT, OK, LOST, BAND = "#1c2029", "#5a6170", "#3d7fc4", "#b3213d", "#f0c36d"
OUTCOME_COLOURS = {"ok": OK, "info": "#ffaa26", "fail": "#d9739f", "empty": "#c3c5cb"}
COUNTED = ("lost-write-count", "lost-count")  # of checkers: what they say is lost
_EXTRA = msgspec.json.Decoder(dict[str, object])


def availability_picture(plan: Plan, history: History, results: RunResults) -> Figure:
    """Acknowledged and other operations a second over the run, with each fault as a band."""
    timeline = read_timeline(history, plan.cluster.nodes, plan.observe_interval_ms)
    series = rates(read_clients(history), timeline.end_ns)
    figure, axes = sheet(results.headline, f"{plan.name}, seed {plan.seed}")
    width_s = series.width_ms / 1000
    base = np.zeros(int(timeline.end_ns // (series.width_ms * 1_000_000)) + 1)
    at_s = np.arange(len(base)) * width_s
    for outcome, colour in OUTCOME_COLOURS.items():
        found = [each[outcome] for each in series.per_second if outcome in each]
        if found:
            height = np.sum(found, axis=0)
            axes.bar(at_s, height, width_s, bottom=base, align="edge", color=colour, label=outcome)
            base = base + height
    draw_faults(axes, timeline)
    axes.set_xlim(timeline.begin_ns / 1e9, timeline.end_ns / 1e9)
    axes.set_ylim(0, 1.3 * _tallest(timeline, base, series.width_ms))  # room for faults' names
    axes.set_xlabel("seconds since the run began")
    axes.set_ylabel("operations a second")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _tallest(timeline: Timeline, heights: Floats, width_ms: int) -> float:
    """Of the load: a drain is as fast as the cluster can, and is cut off."""
    load = next((phase for phase in timeline.phases if phase.name == "load"), None)
    if load is not None:
        end_ns = timeline.end_ns if load.end_ns is None else load.end_ns
        width_ns = width_ms * 1_000_000
        heights = heights[load.begin_ns // width_ns : end_ns // width_ns + 1]
    return float(heights.max(initial=1.0))


def draw_faults(axes: Axes, timeline: Timeline) -> None:
    """Bands from where a fault is in force to where it is healed, with their names."""
    made = [fault for fault in timeline.faults if not fault.skipped]
    for place, fault in enumerate(made):
        begin_s, end_s = fault.effective_ns / 1e9, fault.end_ns / 1e9
        label = "fault" if place == 0 else None
        axes.axvspan(begin_s, end_s, color=BAND, alpha=0.35, lw=0, zorder=0, label=label)
        axes.text(
            begin_s,
            0.98 - 0.06 * (place % 4),
            f" {fault.id} {fault_label(fault)}",
            transform=axes.get_xaxis_transform(),
            va="top",
            fontsize=8,
            color=INK,
        )


@dataclass(frozen=True, slots=True)
class Acked:
    """Acknowledged messages. ``place``: their offset in the log, or in which order they came."""

    place: Ints
    by: Sequence[str]  # the node that acknowledged, or that the client was connected to
    is_lost: Bools
    is_offset: bool


def lost_picture(plan: Plan, history: History, results: RunResults) -> Figure | None:
    """Each acknowledged message by offset and node, the lost ones in red; None if the run sent
    none, or if the checkers count otherwise."""
    acked = acknowledged(history)
    lost = int(acked.is_lost.sum())
    if not len(acked.place) or lost != counted_lost(results):
        return None
    figure, axes = sheet(
        f"{lost:,} of {len(acked.place):,} acknowledged messages were lost",
        f"{plan.name}, seed {plan.seed}",
    )
    nodes = sorted({*acked.by, *plan.cluster.nodes})
    rows = np.array([nodes.index(node) for node in acked.by])
    for is_lost, colour, label, height in (
        (False, OK, "kept", 160),
        (True, LOST, "lost", 700),
    ):
        chosen = acked.is_lost == is_lost
        axes.scatter(
            acked.place[chosen],
            rows[chosen],
            s=height,
            marker="|",
            color=colour,
            linewidths=0.8,
            label=label,
        )
    axes.set_yticks(range(len(nodes)), nodes)
    axes.set_ylim(-0.6, len(nodes) - 0.4)
    axes.invert_yaxis()
    axes.set_ylabel("acknowledged by")
    axes.set_xlabel("offset in the log" if acked.is_offset else "order of acknowledgement")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def counted_lost(results: RunResults) -> int | None:
    """What the run's checker says is lost; None if none counts that."""
    for result in results.results:
        for name in COUNTED:
            if name in result.counts:
                return int(result.counts[name])
    return None


def acknowledged(history: History) -> Acked:
    """Of queues and logs, by what clients were told and by what was there in the end."""
    rows = history.ops.sort_by("complete_ns").to_pylist()
    drain_ns = min((row["invoke_ns"] for row in rows if _is_drain(row)), default=0)
    kept = {value for row in rows for value in _read(row, drain_ns)}
    sent = [row for row in rows if row["f"] in WRITES and row["type"] == "ok"]
    offsets = [row["offset"] for row in sent]
    is_offset = bool(sent) and None not in offsets
    return Acked(
        place=np.array(offsets if is_offset else range(len(sent)), dtype=np.int64),
        by=[_who(row) for row in sent],
        is_lost=np.array([row["value"] not in kept for row in sent], dtype=bool),
        is_offset=is_offset,
    )


def _who(row: Mapping[str, object]) -> str:
    """Of logs clients write down the address that answered, ``n2:10911``."""
    address = str(_extra(row).get("broker") or "")
    return host_of(address) or address or str(row["node"])


def _is_drain(row: Mapping[str, object]) -> bool:
    return row["f"] == "phase" and _extra(row).get("phase") == "drain"


def _read(row: Mapping[str, object], drain_ns: int) -> Iterator[object]:
    """The messages that an operation got: any dequeue counts, and of logs the final polls."""
    if row["type"] != "ok":
        return
    if row["f"] == "dequeue":
        yield row["value"]
    elif row["f"] == "poll" and int(str(row["invoke_ns"])) >= drain_ns:
        records = _extra(row).get("records")
        for record in records if isinstance(records, list) else ():
            if isinstance(record, list):
                yield record[1]


def _extra(row: Mapping[str, object]) -> dict[str, object]:
    text = row["extra"]
    return _EXTRA.decode(text) if isinstance(text, str) and text else {}


def sheet(title: str, below: str) -> tuple[Figure, Axes]:
    """An empty picture with a headline."""
    figure = Figure(figsize=WIDE, layout="constrained")
    axes = figure.add_subplot()
    shown = title if len(title) <= TITLE_MAX else f"{title[:TITLE_MAX].rsplit(' ', 1)[0]} …"
    axes.set_title(f"{shown}\n", loc="left", fontsize=12, color=INK, fontweight="bold")
    axes.text(0, 1.02, below, transform=axes.transAxes, fontsize=9, color=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
