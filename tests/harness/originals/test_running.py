"""Which runs the ladder makes, when it stops, and that it goes on after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.core.errors import StoreError
from shalott.core.plan import Plan
from shalott.harness.originals.document import find_row
from shalott.harness.originals.evidence import (
    LOOKS_FILE,
    Look,
    Side,
    load_looks,
    minutes_to_first,
    save_looks,
    tally,
)
from shalott.harness.originals.row import Row
from shalott.harness.originals.running import LadderRequest, is_done, release_of, run_ladder
from shalott.harness.report.results import RunResults

pytestmark = pytest.mark.unit

ROW = find_row("KB-RKT-12")  # has a control on another release, and our broker's
SAME_RELEASE = find_row("KB-RKT-17")  # its control is settings


def a_look(side: Side, *, found: bool, void: str = "", elapsed_s: float = 60.0) -> Look:
    return Look(
        side=side, release="5.1.0", run="r", seed=1, found=found, valid=not found, void=void,
        elapsed_s=elapsed_s,
    )  # fmt: skip


class Runs:
    """Stands in for clusters: each run is found or not, by the plan's name."""

    def __init__(self, shows: Sequence[str], fail_after: int = 99) -> None:
        self.shows, self.fail_after = tuple(shows), fail_after
        self.made: list[tuple[str, int]] = []

    def __call__(self, plan: Plan) -> tuple[RunResults, Path | None]:
        if len(self.made) == self.fail_after:
            raise KeyboardInterrupt
        self.made.append((plan.name, plan.seed))
        found = any(word in plan.name for word in self.shows)
        broken = Result(
            checker="log", valid=False, anomalies=(Anomaly(kind="vanished", summary="1 vanished"),)
        )
        results = RunResults(
            name=plan.name, seed=plan.seed, system=plan.system.name, profile="upstream",
            workload="log", started_wall_ns=0, complete=True, valid=not found, headline="",
            command="", results=(broken,) if found else (),
        )  # fmt: skip
        return results, None


def run(rows: Sequence[Row], asked: LadderRequest, runs: Runs, directory: Path) -> None:
    run_ladder(rows, asked, runs, directory, lambda row, look: None)


def test_each_side_is_run_so_often_and_kept(tmp_path: Path) -> None:
    runs = Runs(["-with-", "-ours-on"])
    run([ROW], LadderRequest(repeat=2), runs, tmp_path)
    looks = load_looks(tmp_path)[ROW.id]
    assert [(look.side, look.release, look.found) for look in looks[::2]] == [
        ("with", "5.1.0", True), ("control", "5.1.1", False),
        ("ours-on", "controller", True), ("ours-off", "controller", False),
    ]  # fmt: skip
    assert [seed for name, seed in runs.made if "-with-" in name] == [18_000, 18_001]


def test_a_ladder_that_was_killed_goes_on(tmp_path: Path) -> None:
    runs = Runs(["-with-"], fail_after=3)
    with pytest.raises(KeyboardInterrupt):
        run([ROW], LadderRequest(repeat=2), runs, tmp_path)
    again = Runs(["-with-"])
    run([ROW], LadderRequest(repeat=2), again, tmp_path)
    assert again.made[0] == ("kb-rkt-12-control-5.1.1", 18_001)
    assert len(runs.made) + len(again.made) == 8
    finished = Runs([])
    run([ROW], LadderRequest(repeat=2), finished, tmp_path)
    assert finished.made == []


def test_three_finds_running_are_enough(tmp_path: Path) -> None:
    runs = Runs(["-with-"])
    run([ROW], LadderRequest(repeat=10, sides=("with",)), runs, tmp_path)
    assert len(runs.made) == 3


def test_every_run_is_made_where_numbers_are_compared(tmp_path: Path) -> None:
    runs = Runs(["-with-"])
    run([ROW], LadderRequest(repeat=5, every=True, sides=("with",)), runs, tmp_path)
    assert len(runs.made) == 5


def test_a_control_that_shows_it_stops_at_once() -> None:
    assert is_done("control", [a_look("control", found=True)], LadderRequest(repeat=10), 0)
    assert not is_done("control", [a_look("control", found=False)], LadderRequest(repeat=10), 0)


def test_void_runs_are_made_again_and_not_for_ever() -> None:
    void = a_look("with", found=False, void="stalled")
    assert not is_done("with", [void], LadderRequest(repeat=1), 1)
    assert is_done("with", [void, void], LadderRequest(repeat=1), 2)
    assert not is_done("with", [void, void], LadderRequest(repeat=1), 0)  # another command's
    assert is_done("with", [void, a_look("with", found=False)], LadderRequest(repeat=1), 1)
    assert tally([void, a_look("with", found=True)], "with").words == "1 of 1"


def test_a_version_is_run_as_what_it_is() -> None:
    assert release_of(ROW, "with", "5.0.0") == "5.0.0"
    assert release_of(ROW, "control", "5.0.0") == ""
    assert release_of(ROW, "control", "5.5.0") == "5.5.0"
    assert release_of(ROW, "ours-on", "5.0.0") == ""
    assert release_of(SAME_RELEASE, "control") == SAME_RELEASE.run_on


def test_minutes_count_every_run_up_to_the_first_find() -> None:
    looks = [
        a_look("with", found=False, void="stalled", elapsed_s=90),
        a_look("control", found=False, elapsed_s=500),
        a_look("with", found=True, elapsed_s=30),
    ]
    assert minutes_to_first(looks) == 2.0
    assert minutes_to_first(looks[:2]) is None


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    assert load_looks(tmp_path) == {}
    save_looks(tmp_path, {"KB-RKT-12": [a_look("with", found=True)]})
    assert load_looks(tmp_path)["KB-RKT-12"][0].found
    (tmp_path / LOOKS_FILE).write_text("[")
    with pytest.raises(StoreError, match=rf"^cannot read .*{LOOKS_FILE}: "):
        load_looks(tmp_path)


def test_what_an_earlier_command_found_void_is_made_again(tmp_path: Path) -> None:
    voids = [a_look("with", found=False, void="stalled") for _ in range(5)]
    save_looks(tmp_path, {ROW.id: voids})
    runs = Runs(["-with-"])
    run([ROW], LadderRequest(repeat=1, sides=("with",)), runs, tmp_path)
    assert [seed for _, seed in runs.made] == [18_005]


def test_a_side_that_stays_void_ends(tmp_path: Path) -> None:
    class Void(Runs):
        def __call__(self, plan: Plan) -> tuple[RunResults, Path | None]:
            results, where = super().__call__(plan)
            stalled = Result(checker="stalls", valid="unknown", notes=("It stood still.",))
            return msgspec.structs.replace(results, valid="unknown", results=(stalled,)), where

    runs = Void([])
    run([ROW], LadderRequest(repeat=2, sides=("with",)), runs, tmp_path)
    assert len(runs.made) == 3
