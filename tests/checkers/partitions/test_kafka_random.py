"""The judge of partitions on drawn histories: right ones are never accused, every planted anomaly
is found, and on any history the engine counts what the definitions count."""

from __future__ import annotations

import random

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.partitions.partition_cycles import CYCLE_NAMES
from shalott.checkers.partitions.partition_words import KINDS
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.partitions.partition_oracle import Graph, Oracle
from tests.checkers.partitions.simulated_logs import Operation, Setting, right_history, text_of
from tests.checkers.partitions.spoiled_logs import PLANTINGS, spoil

pytestmark = pytest.mark.unit

SETTINGS = (
    Setting(clients=2, keys=1, operations=25),
    Setting(clients=3, keys=2, operations=40, subscribes=True),
    Setting(clients=5, keys=3, operations=60, fail_rate=0.2),
    Setting(clients=4, keys=4, operations=80, subscribes=True, crash_rate=0.1),
)


def judged(operations: list[Operation], options: str = "") -> Result:
    source = EntrySource.of_text(text_of(operations))
    return make_judge(f"kafka:{options}").judge(source, Limits())


def counted(result: Result) -> dict[str, int | float]:
    counts = {kind.name: result.counts.get(f"{kind.name}-count", 0) for kind in KINDS}
    return {kind: count for kind, count in counts.items() if count}


@pytest.mark.parametrize("part", range(4))
def test_a_right_history_is_never_accused(part: int) -> None:
    for seed in range(60):
        operations = right_history(seed * 4 + part, SETTINGS[part])
        result = judged(operations)
        assert result.valid is True, (seed, [each.summary for each in result.anomalies])
        assert counted(result) == Oracle(operations).counts(), seed
        assert judged(operations, "ww_deps=true").valid is True, seed


@pytest.mark.parametrize("kind", PLANTINGS)
def test_every_planted_anomaly_is_found(kind: str) -> None:
    planted = 0
    for seed in range(24):
        operations = right_history(seed, SETTINGS[2 * (seed % 2)])
        if not PLANTINGS[kind](operations, random.Random(seed)):
            continue
        planted += 1
        result = judged(operations)
        assert result.valid is False, seed
        assert kind in result.detail["broken"], seed
        assert [each.summary for each in result.anomalies if each.kind == kind], seed
        assert counted(result) == Oracle(operations).counts(), seed
    assert planted >= 12


@pytest.mark.parametrize("part", range(4))
def test_on_any_history_the_engine_counts_what_the_definitions_count(part: int) -> None:
    for seed in range(60):
        operations = right_history(seed, SETTINGS[part])
        spoil(operations, random.Random(seed), 1 + seed % 12)
        found = counted(judged(operations, "sub_via=assign"))
        assert found == Oracle(operations).counts(), seed


@pytest.mark.parametrize("part", range(4))
def test_there_are_cycles_where_the_graph_has_them(part: int) -> None:
    found = 0
    for seed in range(40):
        operations = right_history(seed, SETTINGS[part])
        spoil(operations, random.Random(seed), 1 + seed % 6)
        graph = Graph(Oracle(operations))
        wr, ww, rw = graph.wr(), graph.ww(), graph.rw()
        process, realtime = graph.process(), graph.realtime()
        told = cycles(operations, "")
        assert ("G1c" in told) == graph.has_cycle(wr), seed
        assert bool(told & {"G1c", "G1c-process"}) == graph.has_cycle(wr, process), seed
        assert bool(told & {"G1c", "G1c-realtime"}) == graph.has_cycle(wr, realtime), seed
        told = cycles(operations, "ww_deps=true")
        assert bool(told & {"G0", "G1c"}) == graph.has_cycle(wr, ww), seed
        assert bool(told) == graph.has_cycle(wr, ww, realtime), seed
        told = cycles(operations, "ww_deps=true,rw_deps=true")
        of_data = {name for name in told if not name.endswith(("-process", "-realtime"))}
        assert bool(of_data) == graph.has_cycle(wr, ww, rw), seed
        assert bool(told) == graph.has_cycle(wr, ww, rw, realtime), seed
        found += bool(told)
    assert found > 5


def cycles(operations: list[Operation], options: str) -> set[str]:
    """The kinds of cycles, errors or not."""
    detail = judged(operations, options).detail
    return {name for name in (*detail["broken"], *detail["permitted"]) if name in CYCLE_NAMES}
