"""Latency and rate of a run's client operations, aggregated so that a report stays small.

Up to ``POINTS_MAX`` operations are drawn one by one; beyond that they are counted in tiles of time
x log latency (a density), so that a million operations cost what a few thousand do. Quantiles are
exact and per bucket; they are of ``ok`` operations alone, for a timeout's length says nothing about
the broker's speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.columns import NEVER, client_operations
from shalott.core.history import History

POINTS_MAX = 4000
TILE_COLUMNS = 240
TILE_ROWS = 44
BUCKETS_MAX = 160
QUANTILES = (0.5, 0.95, 0.99)

# A dequeue that found nothing is a certain no, but no failure of the broker: it is counted apart.
WRITES = ("enqueue", "send")  # shown first
OUTCOMES = ("ok", "info", "fail", "empty")

_BUCKET_WIDTHS_MS = (
    *(100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000),
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clients:
    """The client operations as columns. ``outcome`` indexes OUTCOMES, ``f`` indexes ``names``."""

    names: tuple[str, ...]
    f: Ints
    outcome: Ints
    invoke_ns: Ints
    end_ns: Ints  # the invocation's time where there is no completion
    completed: npt.NDArray[np.bool_]

    @property
    def latency_ns(self) -> Ints:
        return np.asarray(np.maximum(self.end_ns - self.invoke_ns, 1), dtype=np.int64)

    def only(self, names: Sequence[str]) -> Clients:
        kept = tuple(name for name in self.names if name in names)
        place = np.array([kept.index(n) if n in kept else -1 for n in self.names], dtype=np.int64)
        f = place[self.f] if len(self.f) else self.f
        rows = f >= 0
        return Clients(
            kept,
            f[rows],
            self.outcome[rows],
            self.invoke_ns[rows],
            self.end_ns[rows],
            self.completed[rows],
        )


@dataclass(frozen=True, slots=True)
class Rates:
    names: tuple[str, ...]
    width_ms: int
    per_second: tuple[dict[str, Floats], ...]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latency against time: points or tiles, and quantiles per bucket (nan: no ok operation)."""

    low_ns: float  # the axis: whole decades
    high_ns: float
    points: dict[str, tuple[Floats, Floats]]  # outcome -> (ms from the start, height 0..1)
    tiles: dict[str, list[tuple[int, int, int]]]  # outcome -> (column, row from the bottom, count)
    width_ms: int
    quantiles_ns: dict[float, Floats]


def read_clients(history: History) -> Clients:
    ops = client_operations(history)
    outcome = np.full(len(ops), OUTCOMES.index("info"), dtype=np.int64)
    outcome[ops.type.equal("ok")] = OUTCOMES.index("ok")
    failed = ops.type.equal("fail")
    outcome[failed] = OUTCOMES.index("fail")
    outcome[failed & ops.error.equal("empty")] = OUTCOMES.index("empty")
    completed = ops.complete_ns != NEVER
    return Clients(
        names=ops.f.names,
        f=ops.f.codes.astype(np.int64),
        outcome=outcome,
        invoke_ns=ops.invoke_ns,
        end_ns=np.where(completed, ops.complete_ns, ops.invoke_ns),
        completed=completed,
    )


def bucket_width_ms(end_ns: int) -> int:
    """The narrowest round bucket of which at most BUCKETS_MAX make up the run."""
    for width in _BUCKET_WIDTHS_MS:
        if end_ns / 1e6 / width <= BUCKETS_MAX:
            return width
    return int(end_ns / 1e6 / BUCKETS_MAX) + 1


def rates(clients: Clients, end_ns: int) -> Rates:
    """How many operations completed in each bucket, per second, by f and outcome."""
    width = bucket_width_ms(end_ns)
    count = int(end_ns // (width * 1_000_000)) + 1
    bucket = clients.end_ns // (width * 1_000_000)
    order = sorted(range(len(clients.names)), key=lambda f: (clients.names[f] not in WRITES, f))
    series = []
    for f in order:
        by_outcome: dict[str, Floats] = {}
        for outcome, name in enumerate(OUTCOMES):
            chosen = bucket[(clients.f == f) & (clients.outcome == outcome)]
            if len(chosen):
                by_outcome[name] = np.bincount(chosen, minlength=count).astype(np.float64)
                by_outcome[name] *= 1000 / width
        series.append(by_outcome)
    return Rates(tuple(clients.names[f] for f in order), width, tuple(series))


def latencies(clients: Clients, end_ns: int) -> Latencies:
    done = clients.completed
    latency = clients.latency_ns[done].astype(np.float64)
    at_ms = clients.end_ns[done] / 1e6
    outcome = clients.outcome[done]
    low, high = _decades(latency)
    height = np.log10(latency / low) / np.log10(high / low)
    few = len(latency) <= POINTS_MAX
    width = bucket_width_ms(end_ns)
    return Latencies(
        low_ns=low,
        high_ns=high,
        points=_points(outcome, at_ms, height) if few else {},
        tiles={} if few else _tiles(outcome, at_ms * 1e6 / end_ns, height),
        width_ms=width,
        quantiles_ns=_quantiles(at_ms[outcome == 0], latency[outcome == 0], width, end_ns),
    )


def _decades(latency: Floats) -> tuple[float, float]:
    if not len(latency):
        return 1e6, 1e9
    low = 10.0 ** np.floor(np.log10(max(1e3, latency.min())))
    high = 10.0 ** np.ceil(np.log10(max(1e3, latency.max()) * 1.001))
    return float(low), float(max(high, low * 100))


def _points(outcome: Ints, at_ms: Floats, height: Floats) -> dict[str, tuple[Floats, Floats]]:
    return {
        name: (at_ms[outcome == index], np.clip(height[outcome == index], 0, 1))
        for index, name in enumerate(OUTCOMES)
        if (outcome == index).any()
    }


def _tiles(outcome: Ints, across: Floats, height: Floats) -> dict[str, list[tuple[int, int, int]]]:
    column = np.clip((across * TILE_COLUMNS).astype(np.int64), 0, TILE_COLUMNS - 1)
    row = np.clip((height * TILE_ROWS).astype(np.int64), 0, TILE_ROWS - 1)
    found = {}
    for index, name in enumerate(OUTCOMES):
        cells, counts = np.unique((column * TILE_ROWS + row)[outcome == index], return_counts=True)
        if len(cells):
            found[name] = [
                (int(cell) // TILE_ROWS, int(cell) % TILE_ROWS, int(n))
                for cell, n in zip(cells, counts, strict=True)
            ]
    return found


def _quantiles(at_ms: Floats, latency: Floats, width_ms: int, end_ns: int) -> dict[float, Floats]:
    count = int(end_ns // (width_ms * 1_000_000)) + 1
    bucket = (at_ms // width_ms).astype(np.int64)
    order = np.lexsort((latency, bucket))
    ordered, starts = latency[order], np.searchsorted(bucket[order], np.arange(count + 1))
    sizes = np.diff(starts)
    found = {}
    for quantile in QUANTILES:
        values = np.full(count, np.nan)
        some = sizes > 0
        rank = np.ceil(sizes[some] * quantile).astype(np.int64) - 1  # nearest rank: a real latency
        values[some] = ordered[starts[:-1][some] + np.maximum(rank, 0)]
        found[quantile] = values
    return found
