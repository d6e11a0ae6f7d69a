"""How far consumers were behind, and how long each message was on its way.

A passage is a message in a lane: (queue, value) in ``consume``, (group, value) in ``group``, where
a message is every group's whose topics and tags it has. It begins as its publish begins, for a
consumer may have it before the confirm comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.harness.report import draw
from shalott.harness.report.consumer_deliveries import Deliveries, group_dead_letters
from shalott.harness.report.consumer_rows import Floats, Names, Rows, common, names_of, pairs
from shalott.harness.report.draw import Shape, Tick
from shalott.harness.report.series import Clients, Latencies, bucket_width_ms, latencies

LANES_MAX = 8  # with a lag panel of their own
TABLE_MAX = 40  # lanes in the table of times

_QUANTILES = (0.5, 0.95, 0.99, 1.0)
_Part = tuple[Names, Ints, Ints]  # lane, value, time


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
        for times, title in ((passages.first_ns, "to delivery"), (passages.done_ns, "to consumed"))
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


@dataclass(frozen=True, slots=True)
class Passages:
    """Every message that was sent to a lane and not refused. Times that never came are NEVER."""

    lane: Names
    is_acknowledged: Bools  # by the broker, to its sender
    is_delayed: Bools  # on purpose
    published_ns: Ints
    first_ns: Ints
    done_ns: Ints

    def __len__(self) -> int:
        return len(self.published_ns)


def passages_of(rows: Rows, found: Deliveries) -> Passages:
    lane, sent, delayed = _sent_to_groups(rows) if rows.kind == "group" else _sent_to_queues(rows)
    accepted = ~rows.names_equal("type", "fail")[sent]
    lane, sent, delayed = lane.take(np.flatnonzero(accepted)), sent[accepted], delayed[accepted]
    ends = list(_ends(rows, found))
    firsts = [(found.lane, found.value, found.begin_ns), *_dequeues(rows)]
    names = (lane, *(part[0] for part in firsts), *(part[0] for part in ends))
    codes, lanes = common(*names)
    values = [rows.value[sent], *(p[1] for p in firsts), *(p[1] for p in ends)]
    mine, *others = pairs(*zip(codes, values, strict=True))
    count = len(firsts)
    return Passages(
        lane=Names(codes[0], lanes),
        is_acknowledged=rows.names_equal("type", "ok")[sent],
        is_delayed=delayed,
        published_ns=rows.begin_ns[sent],
        first_ns=_earliest(mine, others[:count], [part[2] for part in firsts]),
        done_ns=_earliest(mine, others[count:], [part[2] for part in ends]),
    )


def _earliest(mine: Ints, others: list[Ints], times: list[Ints]) -> Ints:
    """For each of mine the earliest time of the same among the others; NEVER if there is none."""
    other = np.concatenate([np.zeros(0, dtype=np.int64), *others])
    at_ns = np.concatenate([np.zeros(0, dtype=np.int64), *times])
    if not len(other):
        return np.full(len(mine), NEVER, dtype=np.int64)
    order = np.lexsort((at_ns, other))
    keys, first = np.unique(other[order], return_index=True)
    place = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
    return np.where(keys[place] == mine, at_ns[order][first[place]], NEVER)


def _dequeues(rows: Rows) -> Iterator[_Part]:
    taken = rows.of("dequeue")
    taken = taken[rows.has_value[taken] & ~rows.names_equal("type", "fail")[taken]]
    ended = np.where(rows.end_ns[taken] == NEVER, rows.begin_ns[taken], rows.end_ns[taken])
    yield rows.names("key").take(taken), rows.value[taken], ended


def _ends(rows: Rows, found: Deliveries) -> Iterator[_Part]:
    """What took a message off its lane for good."""
    done = np.flatnonzero(found.is_last & (found.end_ns < NEVER))
    yield found.lane.take(done), found.value[done], found.end_ns[done]
    if rows.kind == "group":
        letters = group_dead_letters(rows)
        yield letters.lane, letters.value, letters.at_ns
        return
    yield from _dequeues(rows)
    carriers = rows.of("deliver", "dequeue")
    carriers = carriers[rows.has_value[carriers]]
    deaths = rows.table["x_deaths"].combine_chunks().take(pa.array(carriers))
    bearer = carriers[pc.list_parent_indices(deaths).to_numpy()]
    queues = names_of(pc.list_flatten(deaths).field("queue"))
    yield queues, rows.value[bearer], rows.begin_ns[bearer]


def _sent_to_queues(rows: Rows) -> tuple[Names, Ints, Bools]:
    """Each publish once for each queue that it is routed to; none is delayed."""
    sent = rows.of("enqueue")
    sent = sent[rows.has_value[sent]]
    to = rows.table["x_to"].combine_chunks().take(pa.array(sent))
    routed = pc.list_parent_indices(to).to_numpy()
    alone = np.flatnonzero(~np.asarray(pc.is_valid(to).to_numpy(zero_copy_only=False)))
    (there, here), lanes = common(
        names_of(pc.list_flatten(to)), rows.names("key").take(sent[alone])
    )
    which = sent[np.concatenate([routed, alone]).astype(np.int64)]
    lane = Names(np.concatenate([there, here]).astype(np.int32), lanes)
    return lane, which, np.zeros(len(which), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a group subscribes to, by what its members had and said. No tags: all."""

    topics: frozenset[str]
    tags: frozenset[str]


def _sent_to_groups(rows: Rows) -> tuple[Names, Ints, Bools]:
    sent = rows.of("send")
    sent = sent[rows.has_value[sent]]
    key, tag = rows.names("key").take(sent), rows.names("x_tag").take(sent)
    delayed = rows.integers("x_delay", 0)[sent] > 0
    groups = _subscriptions(rows)
    lanes, which, late = [], [], []
    for place, wanted in enumerate(groups.values()):
        topics = np.array([*(_topic(name) in wanted.topics for name in key.names), False])
        tags = np.array(
            [*(not wanted.tags or n in wanted.tags for n in tag.names), not wanted.tags]
        )
        mine = np.flatnonzero(topics[key.codes] & tags[tag.codes])
        lanes.append(np.full(len(mine), place, dtype=np.int32))
        which.append(sent[mine])
        late.append(delayed[mine])
    none = np.zeros(0, dtype=np.int64)
    return (
        Names(np.concatenate([none, *lanes]).astype(np.int32), tuple(groups)),
        np.concatenate([none, *which]),
        np.concatenate([none.astype(np.bool_), *late]),
    )


def _topic(key: str) -> str:
    return key.rpartition("/")[0]


def _subscriptions(rows: Rows) -> dict[str, _Wanted]:
    topics: dict[str, set[str]] = {}
    tags: dict[str, set[str]] = {}
    assigned = rows.of("assignment")
    for group, key in zip(
        rows.names("x_group").take(assigned).words(),
        rows.names("key").take(assigned).words(),
        strict=True,
    ):
        topics.setdefault(group, set()).add(_topic(key))
    members = rows.table.take(pa.array(rows.of("member"))).select(["x_group", "x_tags"])
    for row in members.to_pylist():
        tags.setdefault(row["x_group"] or "", set()).update(row["x_tags"] or ())
    return {
        group: _Wanted(frozenset(topics[group]), frozenset(tags.get(group, ())))
        for group in sorted(topics)
    }


def occupancy(lane: Codes, begin_ns: Ints, end_ns: Ints, lanes: int, edges: Floats) -> Floats:
    """How many intervals of each lane held, as the mean over each bin: an array lanes x bins.

    The integral of a count of intervals up to t is the sum of (t - begin) over those begun less the
    sum of (t - end) over those ended, so bins cost nothing a message.
    """
    bins = len(edges) - 1
    total = np.zeros((lanes, bins + 1))
    for at_ns, sign in ((begin_ns, 1), (end_ns, -1)):
        at = np.minimum(at_ns.astype(np.float64), edges[-1])
        place = np.clip(np.searchsorted(edges, at, side="left"), 0, bins)
        cell = lane.astype(np.int64) * (bins + 1) + place
        size = lanes * (bins + 1)
        counts = np.bincount(cell, minlength=size).reshape(lanes, bins + 1)
        sums = np.bincount(cell, weights=at, minlength=size).reshape(lanes, bins + 1)
        total += sign * (np.cumsum(counts, axis=1) * edges - np.cumsum(sums, axis=1))
    # Float64 sums of nanoseconds are off by less than a microsecond; what is less is nothing.
    held = np.diff(total, axis=1) / np.diff(edges)
    return np.where(held < 1e-6, 0.0, held)


def peaks(lane: Codes, begin_ns: Ints, end_ns: Ints, lanes: int) -> Ints:
    """The most intervals of each lane that held at once; an end goes before a begin."""
    lane2 = np.concatenate([lane, lane])
    at_ns = np.concatenate([begin_ns, end_ns])
    step = np.concatenate([np.ones(len(lane), np.int64), -np.ones(len(lane), np.int64)])
    order = np.lexsort((step, at_ns, lane2))
    level = np.cumsum(step[order])  # of each lane it ends at nothing
    found = np.zeros(lanes, dtype=np.int64)
    np.maximum.at(found, lane2[order], level)
    return found
