"""The report's section on consumers, of runs that had any: its picture, its tables, its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import Result
from shalott.checkers.history.columns import Bools, Ints
from shalott.core.history import History
from shalott.harness.report import draw
from shalott.harness.report.consumer_deliveries import (
    Cause,
    Deliveries,
    causes_of,
    dead_letters,
    deliveries_again,
    deliveries_of,
    group_dead_letters,
    lanes_of_messages,
)
from shalott.harness.report.consumer_lag import (
    LagPanel,
    WaitPicture,
    Waits,
    lag_panels,
    passages_of,
    peaks,
    wait_pictures,
    wait_tables,
)
from shalott.harness.report.consumer_picture import Block, build_blocks, pick_blocks
from shalott.harness.report.consumer_rows import Rows, read_rows
from shalott.harness.report.consumer_tenures import Tenure, of_deliveries, tenures_of
from shalott.harness.report.draw import Bar, RatePanel
from shalott.harness.report.message_outcomes import (
    LaneTable,
    explained_causes,
    outcomes_by_lane,
)
from shalott.harness.report.series import bucket_width_ms

_LANES_TOLD = 12  # in the cursor's words
_HAND_OVERS = ("rebalanced", "lock-lost", "left", "died")
HOLDERS_MAX = 300
_BAD = ("lost", "refused", "cancelled-by-server", "lock-lost", "died", "hung-up")


@dataclass(frozen=True, slots=True)
class ConsumerSection:
    """Everything that the templates draw of consumers."""

    is_group: bool
    summary: str
    rates: RatePanel  # deliveries a second: ok the first, info again with the flag, empty without
    lags: list[LagPanel]
    lags_left_out: list[str]
    waits: list[WaitPicture]
    blocks: list[Block]
    blocks_left_out: list[str]
    blocked: list[Bar]
    causes: list[Cause]
    again: int
    explained: list[tuple[str, int]]
    outcomes: LaneTable | None
    dead: list[tuple[str, str, int]]
    wait_tables: list[tuple[str, list[Waits]]]
    wait_lanes_left_out: int
    holders: list[HolderRow]
    holder_count: int
    cursor_data: dict[str, object]


def consumer_section(
    history: History, results: Sequence[Result], end_ns: int
) -> ConsumerSection | None:
    """None if the run had no consumers."""
    rows = read_rows(history)
    if rows is None:
        return None
    found = deliveries_of(rows)
    again = deliveries_again(found, lanes_of_messages(rows, found))
    tenures = tenures_of(rows, end_ns)
    which = of_deliveries(rows.kind, tenures, found)
    passages = passages_of(rows, found)
    names = pick_blocks(tenures, found)
    lags = lag_panels(passages, names, end_ns)
    blocks = build_blocks(
        rows.kind, tenures, found, which, end_ns,
        _marks(rows, tenures, end_ns), _findings(results),
    )  # fmt: skip
    is_again = np.zeros(len(found), dtype=np.bool_)
    is_again[again.row] = True
    rates, series = _rates(found, is_again, end_ns)
    return ConsumerSection(
        is_group=rows.kind == "group",
        summary=_summary(rows.kind, tenures, found, len(again.row)),
        rates=rates,
        lags=lags,
        lags_left_out=names[len(lags) :],
        waits=wait_pictures(passages, end_ns),
        blocks=blocks,
        blocks_left_out=names[len(blocks) :],
        blocked=_blocked(rows, end_ns),
        causes=causes_of(rows.kind, found, again),
        again=len(again.row),
        explained=explained_causes(results),
        outcomes=outcomes_by_lane(results),
        dead=dead_letters(rows) if rows.kind == "consume" else _dead_of_groups(rows),
        wait_tables=wait_tables(passages, names),
        wait_lanes_left_out=max(0, len(names) - len(wait_tables(passages, names)[0][1])),
        holders=holder_rows(tenures, found, which, again.row, end_ns),
        holder_count=len(tenures),
        cursor_data={
            "width": bucket_width_ms(end_ns),
            "deliveries": series,
            "lag": {panel.name: panel.values for panel in lags[:_LANES_TOLD]},
        },
    )


def _summary(kind: str, tenures: Sequence[Tenure], found: Deliveries, again: int) -> str:
    holders, lanes = len({t.holder for t in tenures}), len({t.block for t in tenures})
    who, where = ("member", "group") if kind == "group" else ("consumer", "queue")
    return (
        f"{_several(holders, who)} of {_several(lanes, where)} "
        f"{'was' if holders == 1 else 'were'} given {_several(len(found), 'message')}, "
        f"{again:,} of them again."
    )


def _several(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _rates(
    found: Deliveries, is_again: Bools, end_ns: int
) -> tuple[RatePanel, dict[str, list[float]]]:
    width = bucket_width_ms(end_ns)
    count = int(end_ns // (width * 1_000_000)) + 1
    bucket = np.minimum(found.begin_ns // (width * 1_000_000), count - 1)
    chosen = {"ok": ~is_again, "info": is_again & found.again, "empty": is_again & ~found.again}
    per_second = {
        name: np.bincount(bucket[mine], minlength=count).astype(np.float64) * (1000 / width)
        for name, mine in chosen.items()
    }
    top = draw.rate_top(per_second, slice(None))
    panel = RatePanel("deliver", draw.rate_ticks(top), draw.rate_shapes(per_second, width, top))
    words = {"ok": "first", "info": "again, flagged", "empty": "again, not flagged"}
    return panel, {
        words[name]: [round(float(value), 1) for value in values]
        for name, values in per_second.items()
    }


def _blocked(rows: Rows, end_ns: int) -> list[Bar]:
    if rows.kind == "group":
        return []
    own = rows.of("blocked")
    ends = np.minimum(rows.end_ns[own], end_ns)
    return [
        Bar(round(begin / 1e6, 1), round(end / 1e6, 1), "blocked", "", "a connection was blocked")
        for begin, end in zip(rows.begin_ns[own].tolist(), ends.tolist(), strict=True)
    ]


def _marks(rows: Rows, tenures: Sequence[Tenure], end_ns: int) -> dict[str, list[Bar]]:
    """Moments of each block: who lost what in a rebalance; resets; queues that were deleted."""
    found: dict[str, list[Bar]] = {}
    if rows.kind == "consume":
        own = rows.of("delete-queue")
        for name, at in zip(
            rows.names("key").take(own).words(), rows.begin_ns[own].tolist(), strict=True
        ):
            found.setdefault(name, []).append(_moment(at, "deleted", f"{name} was deleted"))
        return found
    for group, at, moved in _rebalances(tenures, end_ns / 400):
        queues = _several(moved, "queue")
        found.setdefault(group, []).append(
            _moment(at, "rebalance", f"rebalance: {queues} given up")
        )
    own = rows.of("reset")
    for name, at in zip(
        rows.names("x_group").take(own).words(), rows.begin_ns[own].tolist(), strict=True
    ):
        found.setdefault(name, []).append(_moment(at, "reset", "the operator set the offsets"))
    return found


def _moment(at_ns: float, kind: str, title: str) -> Bar:
    at = round(at_ns / 1e6, 1)
    return Bar(at, at, kind, "", f"{title} at {draw.seconds_label(at)}")


def _rebalances(tenures: Sequence[Tenure], apart_ns: float) -> list[tuple[str, int, int]]:
    """(group, when, queues given up): what was given up close together is one rebalance."""
    ends = sorted((t.block, t.end_ns) for t in tenures if t.ended in _HAND_OVERS)
    found: list[tuple[str, int, int]] = []
    last = 0
    for group, at in ends:
        if found and found[-1][0] == group and at - last <= apart_ns:
            found[-1] = (group, found[-1][1], found[-1][2] + 1)
        else:
            found.append((group, at, 1))
        last = at
    return found


def _findings(results: Sequence[Result]) -> Mapping[str, list[Bar]]:
    """What checkers found that lasted: two who had one queue at once, a consumer that was stuck."""
    found: dict[str, list[Bar]] = {}
    for anomaly in (a for result in results for a in result.anomalies):
        begin, end = anomaly.detail.get("begin_ns"), anomaly.detail.get("end_ns")
        if isinstance(begin, int) and isinstance(end, int):
            bar = Bar(round(begin / 1e6, 1), round(end / 1e6, 1), "finding", "", anomaly.summary)
            for name in ("group", "queue"):
                if isinstance(anomaly.detail.get(name), str):
                    found.setdefault(anomaly.detail[name], []).append(bar)
    return found


def _dead_of_groups(rows: Rows) -> list[tuple[str, str, int]]:
    """Messages that were in the groups' dead letters at the end."""
    letters = group_dead_letters(rows)
    found: dict[str, set[int]] = {}
    for group, value in zip(letters.lane.words(), letters.value.tolist(), strict=True):
        found.setdefault(group, set()).add(value)
    return sorted((group, "retries used up", len(values)) for group, values in found.items())


@dataclass(frozen=True, slots=True)
class HolderRow:
    """A tenure in words and numbers; ``span`` in ms, for the picture."""

    tenure: Tenure
    deliveries: int
    again: int
    most: int
    is_bad: bool  # it did not end as its client wanted
    span: tuple[float, float]


def holder_rows(
    tenures: Sequence[Tenure], found: Deliveries, which: Ints, again_rows: Ints, end_ns: int
) -> list[HolderRow]:
    """The first tenures, by block and begin."""
    mine = np.flatnonzero(which >= 0)
    lane = which[mine].astype(np.int32)
    ends = np.minimum(found.end_ns[mine], end_ns)
    most = peaks(lane, found.begin_ns[mine], np.maximum(ends, found.begin_ns[mine]), len(tenures))
    counts = np.bincount(lane, minlength=len(tenures))
    repeated = which[again_rows]
    again = np.bincount(repeated[repeated >= 0], minlength=len(tenures))
    return [
        HolderRow(
            tenure=one,
            deliveries=int(counts[place]),
            again=int(again[place]),
            most=int(most[place]),
            is_bad=one.ended in _BAD,
            span=(one.begin_ns / 1e6, one.end_ns / 1e6),
        )
        for place, one in enumerate(tenures[:HOLDERS_MAX])
    ]
