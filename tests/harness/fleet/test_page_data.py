"""What the page of a fleet report counts, against figures that were worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.harness.fleet.mastership import nearest_rank
from shalott.harness.fleet.page_data import Axes, PageData, Verdicts
from shalott.harness.matrix.cell_names import asked_of
from shalott.harness.matrix.definition import Definition, Matrix, parse
from shalott.harness.matrix.night_findings import Share
from shalott.harness.matrix.night_journal import NIGHTS, NightHead, begin_night
from shalott.harness.store.intervals import wilson
from tests.world.harness.fleet_page import (
    DAY_NS,
    FIRST_NS,
    MS,
    S,
    fault,
    gap,
    line,
    made,
    overlap,
    page_data,
    tables,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_the_interval_is_that_of_newcombes_table(k: int, n: int, low: float, high: float) -> None:
    """R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3: the score interval."""
    assert [round(end, 4) for end in wilson(k, n)] == [low, high]
    mirrored = wilson(n - k, n)
    assert [round(1 - end, 4) for end in reversed(mirrored)] == [low, high]


LOST = [{"checker": "total-queue", "kind": "lost", "count": 5, "broken": True}]
ROWS = [
    made("a/1"),
    made("a/2", valid="false", anomalies=LOST, seed=8),
    made("a/3", day=2, valid="unknown", unknown_checkers=["noticed"]),
    made("a/4", day=2, valid="true", harness_failures=["no room"], seed=9),
    made("a/5", day=2, valid="false", tags='{"turn": "again 1"}'),
    made("b/1", profile="safe", nemesis=[], acknowledged=40, lost=0, unavailable_ms_max=2500.0),
    made("b/2", profile="safe", nemesis=[], workload="lock", started_wall_ns=None),
    made("search/s/findings/seed-1", kind="finding", campaign="s", valid="false"),
    made("search/s", kind="campaign", campaign="s", valid="false", seeds_wanted=30, seeds_judged=24,
         seeds_valid=19, seeds_invalid=1, seeds_unknown=4, seeds_not_booted=2,
         anomalies=[{"checker": "", "kind": "lost", "count": 1, "broken": True}]),
]  # fmt: skip
LINES = [
    line("a/1", attempts=110, acknowledged=100),
    line("a/2", attempts=220, acknowledged=200, lost=5, lost_provably=3, seed=8, valid=False),
    line("a/3", attempts=60, acknowledged=50, valid="unknown"),
    line("a/5", attempts=60, acknowledged=50, lost=50, lost_provably=50, valid=False),
    line("b/2", profile="safe", workload="lock"),
    line("search/s/findings/seed-1", attempts=9, acknowledged=9, lost=9, lost_provably=9),
    line("c/1", system="dledger", workload="log", attempts=20, acknowledged=20),
]
FOUND = tables(
    unavailability=[
        gap("a/1", 2 * S, "q1", S), gap("a/1", 5 * S, "q2", 3 * S), gap("a/2", 3 * S),
        gap("a/5", 90 * S),
        fault("a/1", "kill", 4 * S, 6 * S, 100 * MS), fault("a/1", "kill", 9 * S, 10 * S, 300 * MS),
        fault("a/2", "kill", 0, 2 * S, None), fault("a/3", "kill", S, 2 * S, None, operations=0),
        fault("a/2", "pause", S, 2 * S, 700 * MS), fault("a/5", "kill", S, 2 * S, 80 * S),
    ],
    dual_masters=[
        overlap("a/1", "claimed", 5 * S, 7 * S), overlap("a/1", "effective", 5 * S, 6 * S),
        overlap("a/1", "claimed", 7 * S, 8 * S), overlap("a/2", "effective", None, None),
        overlap("a/3", "claimed", S // 2, S), overlap("a/5", "effective", S, 9 * S),
    ],
    lost_messages=[
        {"run": "c/1", "queue": "q1", "lost": 0, "unseen": 4},
        {"run": "c/1", "queue": "q2", "lost": 0, "unseen": 1},
    ],
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> PageData:
    return page_data(ROWS, LINES, FOUND)


def share(k: int, n: int) -> Share:
    low, high = wilson(k, n)
    return Share(k=k, n=n, low=low, high=high)


def test_only_what_nobody_chose_is_a_sample(data: PageData) -> None:
    assert data.verdicts == Verdicts(valid=4, invalid=1, unknown=1, none=1)
    assert (data.again, data.findings, data.untabled) == (1, 1, 1)
    assert (data.first_ns, data.last_ns) == (FIRST_NS, FIRST_NS + 2 * DAY_NS)
    assert data.verdicts.failing == share(1, 5)


def test_verdicts_are_by_cell_the_reddest_first(data: PageData) -> None:
    rows = data.cells.rows
    assert [row.axes for row in rows] == [
        Axes("mirrored", "upstream", "queue", "kill", "sim"),
        Axes("dledger", "upstream", "log", "?", "?"),
        Axes("mirrored", "safe", "lock", "none", "sim"),
        Axes("mirrored", "safe", "queue", "none", "sim"),
    ]
    assert rows[0].verdicts == Verdicts(valid=1, invalid=1, unknown=1, none=1)
    assert rows[0].verdicts.failing == share(1, 2)  # of four: one is unknown, one has no verdict
    assert rows[0].worst == ("a/2", "a/4", "a/3")
    first = Verdicts(valid=1, invalid=1)
    assert rows[0].days == (first, Verdicts(unknown=1, none=1))
    assert rows[3].days == (Verdicts(valid=1), None)


def test_losses_are_by_message_and_by_run_with_what_is_not_sure(data: PageData) -> None:
    losses = data.losses
    assert (losses.runs, losses.by_verdict, losses.without, losses.unknown) == (5, 1, 1, 1)
    told = {(row.system, row.profile, row.nemesis): row for row in losses.rows.rows}
    upstream = told["mirrored", "upstream", "kill"]
    assert (upstream.acknowledged, upstream.lost, upstream.unsure) == (350, 3, 2)
    assert (upstream.rate, upstream.lossy) == (share(3, 350), share(1, 3))
    assert upstream.worst == ("a/2",)
    safe = told["mirrored", "safe", "none"]  # its own verdict counts: there is no history
    assert (safe.acknowledged, safe.lost, safe.lossy) == (40, 0, share(0, 1))
    assert told["dledger", "upstream", "?"].unsure == 5
    assert losses.rows.rows[0] == upstream


def test_days_are_those_of_the_true_clock_with_gaps(data: PageData) -> None:
    days = data.days
    assert [day.day for day in days.drawn] == ["2026-03-04", "2026-03-05", "2026-03-06"]
    assert [day.verdicts.total for day in days.drawn] == [3, 0, 2]
    assert [day.day for day in days.rows.rows] == ["2026-03-06", "2026-03-04"]
    first = days.rows.rows[1]
    assert (first.counted, first.acknowledged, first.lost) == (3, 340, 3)
    assert days.undated == 2
    assert days.earlier == 0


def test_days_beyond_those_that_are_drawn_are_counted() -> None:
    data = page_data([made("a/1"), made("a/2", day=1), made("a/3", day=60)])
    assert len(data.days.drawn) == 60
    assert data.days.drawn[0].day == "2026-03-05"
    assert data.days.earlier == 1


def test_outages_are_of_each_run_its_worst(data: PageData) -> None:
    assert data.outages is not None
    assert (data.outages.measured, data.outages.runs) == (3, 7)
    rows = data.outages.rows.rows
    assert [(row.run, row.gap_ns, row.queue, row.begin_ns, row.during) for row in rows] == [
        ("a/1", 5 * S, "q2", 3 * S, ("kill",)),
        ("a/2", 3 * S, "q1", 0, ("kill", "pause")),
        ("b/1", 2_500 * MS, None, None, None),
    ]


def test_recovery_counts_never_as_longest_and_who_was_not_asked_not_at_all(data: PageData) -> None:
    assert data.recoveries is not None
    assert (data.recoveries.runs, data.recoveries.unknown) == (3, 2)
    kill, pause = data.recoveries.rows.rows
    assert (kill.fault, kill.faults, kill.runs, kill.unasked, kill.never) == ("kill", 4, 3, 1, 1)
    # Of 100 ms, 300 ms and never: by nearest rank the second, and the last twice.
    assert (kill.median_ns, kill.p95_ns, kill.worst_ns) == (300 * MS, None, None)
    assert kill.worst == ("a/2", "a/1")
    assert (pause.median_ns, pause.p95_ns, pause.worst_ns) == (700 * MS,) * 3


@pytest.mark.parametrize(
    ("values", "q", "found"),
    [([1, 2, 3, 4], 0.5, 2), ([1, 2, 3], 0.5, 2), ([*range(1, 21)], 0.95, 19),
     ([*range(1, 22)], 0.95, 20), ([7], 0.95, 7), ([7], 0.0, 7), ([], 0.5, None),
     ([*range(1, 101)], 1.0, 100)],
)  # fmt: skip
def test_quantiles_are_by_nearest_rank(values: list[float], q: float, found: int | None) -> None:
    assert nearest_rank(values, q) == found


def test_two_masters_are_told_by_what_was_in_force(data: PageData) -> None:
    assert (data.duals.runs, data.duals.unknown) == (5, 2)
    rows = {row.cause: row for row in data.duals.rows.rows}
    assert {cause: (row.claimed, row.effective) for cause, row in rows.items()} == {
        "kill": (2, 1),  # a/1 from 5 s, and a/3 half a second before its kill was proved
        "after kill": (1, 0),
        "time not known": (0, 1),
    }
    assert rows["kill"].runs == share(2, 3)  # of mirrored, upstream, ignore
    assert rows["kill"].torn == share(1, 3)
    assert rows["kill"].longest_ns == 2 * S
    assert rows["time not known"].longest_ns is None
    assert rows["kill"].worst == ("a/1", "a/3")


def test_searches_have_their_denominators(data: PageData) -> None:
    (row,) = data.campaigns.rows
    assert (row.wanted, row.judged, row.not_booted, row.unknown) == (30, 24, 2, 4)
    assert row.failing == share(1, 20)
    assert row.classes == (("lost", 1),)
    assert row.kept.rows == ("search/s/findings/seed-1",)


def test_what_sql_does_not_tell_is_unknown() -> None:
    data = page_data(ROWS, LINES, FOUND, engine="sql")
    assert data.outages is None
    assert data.recoveries is None
    assert {row.cause for row in data.duals.rows.rows} == {"faults not known"}
    told = page_data(ROWS, LINES, FOUND)
    for name in ("verdicts", "cells", "losses", "days", "changes", "campaigns"):
        assert getattr(data, name) == getattr(told, name)


def test_lists_are_cut_and_what_is_left_out_is_counted() -> None:
    rows = [made(f"r/{n:03d}", workload=f"w{n}", valid="false") for n in range(60)]
    data = page_data(rows, at_most=7)
    assert (len(data.cells.rows), data.cells.left_out) == (7, 53)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("shalott test --cluster sim --nemesis pause,kill --seed 1", "kill+pause"),
        ("shalott test --cluster sim --seed 1", "kill+partition"),  # the default is left out
        ("shalott test --plan store/plan.json --nemesis kill", ""),
        ("shalott replay x", ""), ("shalott 'test", ""), ("", ""),
    ],
)  # fmt: skip
def test_what_faults_were_asked_for_is_read_off_the_command(command: str, found: str) -> None:
    assert asked_of(command) == found


def test_a_cell_is_named_by_what_was_asked_for_and_not_by_what_was_drawn() -> None:
    asked = "shalott test --nemesis partition"
    drawn = ["partition-halves", "partition-one"]
    rows = [
        made("a/1", command=asked, nemesis=drawn),
        made("a/2", command="shalott replay x", nemesis=drawn[:1]),
        made("a/3", cell="mirrored/upstream/sim/queue/partition", nemesis=drawn[1:]),
        made("a/4", cell="mirrored/upstream/sim/queue/partition+kill@slow"),
        made("a/5", nemesis=["of-a-stranger"]),
        made("a/6", nemesis=None),
        made("a/7", command=asked, nemesis=[]),
    ]
    found = {row.axes.nemesis: row.verdicts.total for row in page_data(rows).cells.rows}
    assert found == {
        "partition": 3, "kill+partition@slow": 1, "of-a-stranger": 1, "?": 1, "none": 1,
    }  # fmt: skip


def broken(*kinds: str) -> dict[str, Any]:
    told = [{"checker": "c", "kind": kind, "count": 1, "broken": True} for kind in kinds]
    return {"valid": "false", "anomalies": told}


def findings_of(data: PageData) -> set[tuple[str, str, str]]:
    assert data.changes is not None
    return {
        (one.status, one.cell.partition("@")[0].rpartition("/")[2], one.kind)
        for one in data.changes.findings.rows
    }


def test_the_newest_day_is_held_against_those_before() -> None:
    rows = [
        made("0/kill", 0, **broken("lost", "phantom")),
        made("0/pause", 0, nemesis=["pause"]),
        made("0/gone", 0, nemesis=["drift"], **broken("lost")),
        made("1/kill", 1, **broken("lost", "order")),
        made("1/pause", 1, nemesis=["pause"], valid="unknown", unknown_checkers=["rates"]),
        made("1/pause-2", 1, nemesis=["pause"], seed=8, **broken("lost")),
        made("1/pause-3", 1, nemesis=["pause"], seed=8),
    ]
    data = page_data(rows)
    assert data.changes is not None
    assert (data.changes.night, data.changes.matrix) == ("2026-03-05", "")
    assert data.changes.compared_with == ("2026-03-04",)
    assert not data.changes.expectations
    assert findings_of(data) == {
        ("known", "kill", "lost"), ("new", "kill", "order"), ("fixed", "kill", "phantom"),
        ("new", "pause", "unknown rates"), ("flaky", "pause", "lost"),
    }  # fmt: skip
    lost = next(one for one in data.changes.findings.rows if one.status == "flaky")
    assert lost.shown is not None
    assert (lost.shown.k, lost.shown.n, lost.run) == (1, 3, "1/pause-2")


def test_runs_of_other_settings_are_no_repetition() -> None:
    """One seed at two rates: the second is no proof that the first was flaky, or is fixed."""
    fast = made("1/fast", 1, rate_asked_hz=900.0)
    data = page_data([made("0/slow", 0, rate_asked_hz=9.0, **broken("lost")), fast])
    assert findings_of(data) == set()
    data = page_data([made("1/slow", 1, rate_asked_hz=9.0, **broken("lost")), fast])
    assert findings_of(data) == {("new", "kill", "lost")}


FILE = {
    "name": "nightly",
    "night": {"compare_with": 1},
    "cells": [{"system": "mirrored", "profile": ["safe", "upstream"], "nemesis": "kill"}],
    "rule": [{"of": {"profile": "upstream"}, "expect": ["valid", "invalid"],
              "anomalies": ["lost"]}],
}  # fmt: skip


def night_row(run: str, night: int, profile: str, turn: str = "first", **said: Any) -> Any:
    tags = {"matrix": "nightly", "turn": turn}
    return made(
        run, night, night=f"n{night}", cell=f"mirrored/{profile}/sim/queue/kill", profile=profile,
        tags=msgspec.json.encode(tags).decode(), seed=1, **said,
    )  # fmt: skip


def test_a_matrixs_night_is_told_by_what_it_expects(tmp_path: Path) -> None:
    definition: Definition = parse(FILE, "nightly.toml")
    begin_night(
        tmp_path, NightHead(name="n2", matrix=Matrix(definition=definition, digest="d"))
    ).close()
    assert (tmp_path / NIGHTS / "n2").is_dir()
    rows = [
        night_row("0/safe", 0, "safe", **broken("order")),
        night_row("1/safe", 1, "safe"),
        night_row("2/safe", 2, "safe", **broken("order")),
        night_row("2/again", 2, "safe", turn="again 1", **broken("order")),
        night_row("2/upstream", 2, "upstream", **broken("lost")),
        made("today", 2, **broken("lost")),  # by hand, some time before the newest
    ]
    rows[-1]["started_wall_ns"] -= 1
    data = page_data(rows, store=tmp_path)
    changes = data.changes
    assert changes is not None
    assert (changes.night, changes.matrix, changes.again) == ("n2", "nightly", 1)
    assert changes.compared_with == ("n1",)  # compare_with is 1, so that n0 is not seen
    assert changes.expectations
    assert findings_of(data) == {("new", "kill", "order")}  # upstream may lose
    (one,) = changes.findings.rows
    assert one.again is not None
    assert (one.again.k, one.again.n) == (1, 1)
    told = page_data(rows, store=None)
    assert findings_of(told) == {("known", "kill", "order"), ("new", "kill", "lost")}


def test_of_nothing_nothing_is_told() -> None:
    data = page_data([])
    assert data.verdicts.total == 0
    assert data.verdicts.failing is None
    assert data.changes is None
    assert data.days.drawn == ()
    assert (data.cells.rows, data.campaigns.rows, data.duals.rows.rows) == ((), (), ())
