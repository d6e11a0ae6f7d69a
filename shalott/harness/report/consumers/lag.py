"""How far consumers were behind, and how long each message was on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.harness.report.consumers.passages import Passages, occupancy
from shalott.harness.report.consumers.rows import Floats
from shalott.harness.report.plots import draw
from shalott.harness.report.plots.draw import Shape, Tick
from shalott.harness.report.plots.series import Clients, Latencies, bucket_width_ms, latencies

LANES_MAX = 8  # with a lag panel of their own
TABLE_MAX = 40  # lanes in the table of times

_QUANTILES = (0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class LagPanel:
    """Messages of a lane that were published and not consumed yet; ``values``: of each bucket."""

    name: str
    ticks: list[Tick]
    shapes: list[Shape]
    most: int
    left: int  # at the end
    values: list[float]


@dataclass(frozen=True, slots=True)
class WaitPicture:
    """Times against when they were over, as the stage draws latencies."""

    title: str
    label: str
    ticks: list[Tick]
    shapes: list[Shape]
    is_tiled: bool
    quantiles: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Waits:
    """A lane's times from publish to something; ``quantiles`` as words."""

    lane: str
    messages: int
    reached: int
    quantiles: list[str]


def lag_panels(passages: Passages, names: Sequence[str], end_ns: int) -> list[LagPanel]:
    """A panel for each of ``names``, of which only the first few are drawn.

    Messages that never came out are told apart: they expired, were dropped, or were lost. One that
    its sender has no answer for counts only if it came out. What is delayed on purpose is left out.
    """
    width_ns = bucket_width_ms(end_ns) * 1_000_000
    edges = np.arange(0, end_ns + width_ns + 1, width_ns, dtype=np.float64)
    shown = sorted(names[:LANES_MAX])
    codes = _codes(passages, shown)
    came = passages.done_ns < NEVER
    held = []
    for chosen in (came, ~came & passages.is_acknowledged):
        mine = np.flatnonzero(chosen & (codes >= 0) & ~passages.is_delayed)
        begin, end = passages.published_ns[mine], passages.done_ns[mine]
        held.append(occupancy(codes[mine].astype(np.int32), begin, end, len(shown), edges))
    gone = np.bincount(codes[(codes >= 0) & ~came & passages.is_acknowledged], minlength=len(shown))
    return [
        _panel(name, held[0][place], held[1][place], int(gone[place]), width_ns // 1_000_000)
        for place, name in enumerate(shown)
    ]


def _codes(passages: Passages, shown: Sequence[str]) -> Ints:
    table = np.full(len(passages.lane.names) + 1, -1, dtype=np.int64)
    for place, name in enumerate(shown):
        if name in passages.lane.names:
            table[passages.lane.names.index(name)] = place
    return np.asarray(table[passages.lane.codes])


def _panel(name: str, waiting: Floats, gone: Floats, left: int, width_ms: int) -> LagPanel:
    both = {"ok": waiting, "fail": gone}
    top = draw.rate_top(both, slice(None))
    return LagPanel(
        name=name,
        ticks=draw.rate_ticks(top),
        shapes=draw.rate_shapes(both, width_ms, top),
        most=int(np.ceil((waiting + gone).max(initial=0))),
        left=left,
        values=[round(float(value), 1) for value in waiting + gone],
    )


def wait_pictures(passages: Passages, end_ns: int) -> list[WaitPicture]:
    """To the first delivery and until consumed; what was delayed on purpose is left out."""
    return [
        _picture(passages, times, title, end_ns)
        for times, title in (
            (passages.first_ns, "to delivery"),
            (passages.done_ns, "to consumed"),
        )
    ]


def _picture(passages: Passages, until_ns: Ints, title: str, end_ns: int) -> WaitPicture:
    reached = _reached(passages, until_ns)
    rows = np.flatnonzero(reached)
    series = latencies(
        Clients(
            names=("",),
            f=np.zeros(len(rows), dtype=np.int64),
            outcome=np.where(passages.is_acknowledged[rows], 0, 1),
            invoke_ns=passages.published_ns[rows],
            end_ns=np.maximum(until_ns[rows], passages.published_ns[rows]),
            completed=np.ones(len(rows), dtype=np.bool_),
        ),
        end_ns,
    )
    return WaitPicture(
        title=title,
        label=f"time from publish {title} of every message against time, logarithmic",
        ticks=draw.latency_ticks(series),
        shapes=draw.point_shapes(series) or draw.tile_shapes(series, end_ns / 1e6),
        is_tiled=bool(series.tiles),
        quantiles=_lines(series),
    )


def _lines(series: Latencies) -> list[tuple[str, str]]:
    return [(f"p{100 * q:.0f}", draw.quantile_path(series, q)) for q in series.quantiles_ns]


def _reached(passages: Passages, until_ns: Ints) -> Bools:
    return (until_ns < NEVER) & ~passages.is_delayed


def wait_tables(passages: Passages, names: Sequence[str]) -> list[tuple[str, list[Waits]]]:
    """(until when, a row a lane) of the acknowledged messages; all lanes together come first."""
    shown = list(names[:TABLE_MAX])
    codes = _codes(passages, shown)
    judged = passages.is_acknowledged & ~passages.is_delayed
    tables = []
    for title, until in (
        ("to the first delivery", passages.first_ns),
        ("until consumed", passages.done_ns),
    ):
        rows = [_waits("all", passages, until, judged)] if len(shown) != 1 else []
        rows += [
            _waits(name, passages, until, judged & (codes == place))
            for place, name in enumerate(shown)
        ]
        tables.append((title, rows))
    return tables


def _waits(lane: str, passages: Passages, until_ns: Ints, judged: Bools) -> Waits:
    reached = judged & (until_ns < NEVER)
    times = np.sort(np.maximum(until_ns[reached] - passages.published_ns[reached], 0))
    ranks = [max(0, int(np.ceil(q * len(times))) - 1) for q in _QUANTILES]
    words = [draw.duration_label(float(times[rank])) if len(times) else "–" for rank in ranks]
    return Waits(lane, int(judged.sum()), len(times), words)
