"""Faults of files: what is found and changed, who may be hit, and that one that does nothing is
never believed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster import data_files
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.disk.outside import Outside
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.nemesis.requirements import check_actions
from shalott.nemesis.weaker import weaker_actions
from tests.nemesis.test_simulated_faults import fault_rows, plan_of

NODES = ("n1", "n2", "n3", "n4", "n5")


# -- files on a real directory


@pytest.mark.unit
@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("**", "a/b.blk", True),
        ("jetstream/**/*.blk", "jetstream/x/y/1.blk", True),
        ("jetstream/**/*.blk", "jetstream/1.blk", True),
        ("jetstream/**/*.blk", "other/1.blk", False),
        ("*.log", "a/b.log", False),
        ("member/snap/db", "member/snap/db", True),
        ("$SYS/?.idx", "$SYS/1.idx", True),
        ("**/*.aof", "appendonlydir/x.aof", True),
    ],
)
def test_a_pattern_means_paths_as_shells_have_it(pattern: str, path: str, is_meant: bool) -> None:
    assert data_files.chosen(path, pattern, ()) is is_meant
    assert not data_files.chosen(path, pattern, (path.split("/", maxsplit=1)[0],))


@pytest.mark.unit
def test_content_ends_before_what_is_only_allocated(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with (tmp_path / "log" / "1").open("wb") as file:
        file.write(b"x" * 10 + bytes(200_000) + b"yz")
        file.truncate(64 << 20)
    (tmp_path / "zeros").write_bytes(bytes(5000))
    (tmp_path / "events.jsonl").write_text("evidence")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert data_files.find_files(tmp_path, "**", ("events.jsonl",)) == {"log/1": 200_012}


@pytest.mark.unit
def test_bits_flip_and_ends_go_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert data_files.flip_bits(tmp_path, "a", [(2, 1), (9, 128)]) == [(50, 51), (57, 185)]
    assert (tmp_path / "a").read_bytes() == b"0133456" + b"78\xb9"
    data_files.cut_file(tmp_path, "a", 4)
    data_files.cut_file(tmp_path, "a", 400)
    assert data_files.read_places(tmp_path, "a", [(0, 9), (3, 1), (9, 1)]) == [b"0133", b"3", b""]
    assert data_files.read_places(tmp_path, "gone", [(0, 9)]) == [b""]
    with pytest.raises(OSError, match="shorter"):
        data_files.flip_bits(tmp_path, "a", [(4, 1)])


# -- who is hit


def planned(nemesis: str, *told: str, nodes: str = "5", targets: str = "minority") -> Any:
    request = Request(
        nodes=nodes, nemesis=nemesis, targets=targets, fault=told, time_limit="90", cluster="sim"
    )
    return make_plan(request, backend="sim", seed=11).faults


@pytest.mark.unit
def test_a_plan_damages_one_minority_and_no_other() -> None:
    faults = planned("corrupt-files,truncate-files,disk-corrupt")
    files = [each.nodes for each in faults if each.kind.endswith("-files")]
    assert len(files) > 2 and len({*files}) == 1 and len(files[0]) == 2
    assert {each.nodes for each in faults if each.kind == "disk-corrupt"} <= {files[0][:1]}
    (one,) = {each.nodes for each in planned("corrupt-files", targets="one")}
    assert one == files[0][:1]


@pytest.mark.unit
def test_more_than_a_minority_is_damaged_only_if_it_is_named() -> None:
    named = planned("corrupt-files", "corrupt-files:target=n1+n2+n3")
    assert {each.nodes for each in named} == {("n1", "n2", "n3")}
    drawn = planned("corrupt-files", targets="all")
    assert {len(each.nodes) for each in drawn} == {2}
    one = FaultAction(id=1, at_ms=1, duration_ms=1, kind="corrupt-files", amount=1)

    def check(target: str, nodes: tuple[str, ...], among: Sequence[str] = NODES) -> None:
        action = FaultAction(
            id=1,
            at_ms=1,
            duration_ms=1,
            kind="corrupt-files",
            amount=1,
            target=target,
            nodes=nodes,
        )
        check_actions([action], among)

    check("minority", ("n1", "n2"))
    check("n1+n2+n3", ("n1", "n2", "n3"))
    with pytest.raises(UsageError, match="lasting harm to a majority"):
        check("majority", ("n1", "n2", "n3"))
    with pytest.raises(UsageError, match="lasting harm to a second node"):
        check("minority", ("n1", "n2"), NODES[:3])
    with pytest.raises(UsageError, match="needs nodes, named in the plan"):
        check_actions([one], NODES)


@pytest.mark.unit
def test_what_is_told_of_a_fault_is_what_the_plan_has() -> None:
    told = "corrupt-files:files=jetstream/**/*.blk,amount=3,down=true"
    for action in planned("corrupt-files,kill", told):
        if action.kind == "corrupt-files":
            told_files = {"files": "jetstream/**/*.blk", "down": True, "replace": False}
            assert action.parameters == told_files
            assert action.amount == 3
    for wrong, sentence in (
        ("corrupt-files", "give KIND:WORD=VALUE"),
        ("corrupt-files:size=3", "there is no parameter size: there is files, down"),
        ("corrupt-files:files=/etc/passwd", "--files /etc/passwd"),
        ("corrupt-files:amount=many", "'many' is no number"),
        ("nonsense:amount=1", "unknown fault nonsense"),
        ("pause:target=n1", "--nemesis does not name it"),
        ("corrupt-files:target=n9", "unknown target n9"),
    ):
        with pytest.raises(UsageError, match=sentence):
            planned("corrupt-files", wrong)


@pytest.mark.unit
def test_a_shrinker_flips_fewer_bits_of_a_node_that_runs() -> None:
    action = FaultAction(
        id=1,
        at_ms=1,
        duration_ms=1,
        kind="truncate-files",
        nodes=("n1",),
        amount=64,
        parameters={"files": "*.log", "down": True},
    )
    found = [*weaker_actions(action)]
    assert {each.parameters["files"] for each in found} == {"*.log"}
    assert {(each.kind, each.amount) for each in found} >= {
        *(("corrupt-files", amount) for amount in (1, 16, 256)),
        ("truncate-files", 1),
    }
    assert any(each.parameters["down"] is False for each in found)


# -- whole runs


def performed(kind: str, *, amount: float = 0, **parameters: object) -> SimOutcome:
    action = FaultAction(
        id=1,
        at_ms=2500,
        duration_ms=1000,
        kind=kind,
        target="n1",
        nodes=("n1",),
        amount=amount,
        parameters=parameters,
        seed=3,
    )
    return simulate(plan_of(action, limit_ms=4500), stop_early=False)


QUIET = [
    pytest.mark.sim,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class TestRuns:
    pytestmark = QUIET

    @pytest.mark.parametrize("down", [False, True])
    def test_every_change_is_told_with_what_stood_there(self, down: bool) -> None:
        (row,) = fault_rows(performed("corrupt-files", amount=16, files="**/journal", down=down))
        assert row["proved_effective"] and row["proved_healed"] and row["error"] is None
        assert len(row["changed"]) == 16 and row["changes_left"]["n1"] > 0
        for change in row["changed"]:
            flipped = int(change["was"], 16) ^ int(change["now"], 16)
            assert flipped.bit_count() == 1 and change["file"].endswith("journal")
        assert ("ends-processes" in row["effects"]) is down
        assert "damages-data" in row["effects"]

    def test_an_end_that_is_cut_is_told(self) -> None:
        (row,) = fault_rows(performed("truncate-files", amount=64, files="**/journal", down=True))
        (change,) = row["changed"]
        assert change["cut_bytes"] == 64 and len(change["was"]) == 128
        assert change["offset"] + 64 == change["size_before"]
        assert row["proved_effective"] and row["proved_healed"]

    def test_all_that_was_not_synced_is_lost(self) -> None:
        (row,) = fault_rows(performed("lose-unsynced"))
        assert row["proved_effective"] and row["proved_healed"] and row["error"] is None
        assert {*row["lost"]["n1"]} == {"files", "bytes", "names"}

    @pytest.mark.parametrize(
        ("kind", "where", "name", "instead"),
        [
            (
                "corrupt-files",
                Outside,
                "flip_bits",
                lambda self, path, places: [(1, 1 ^ bits) for _, bits in places],
            ),
            ("truncate-files", Outside, "cut_file", lambda self, path, size: None),
            ("lose-unsynced", SimDisk, "power_loss", lambda self, loss=None: self.kill()),
        ],
    )
    def test_a_fault_that_changes_nothing_is_not_proved_and_the_run_is_unknown(
        self, kind: str, where: Any, name: str, instead: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(where, name, instead)
        outcome = performed(kind, amount=0 if kind == "lose-unsynced" else 16)
        (row,) = fault_rows(outcome)
        assert not row["proved_effective"] and outcome.valid == "unknown"

    def test_a_pattern_that_means_no_file_is_no_fault(self) -> None:
        outcome = performed("corrupt-files", amount=1, files="*.nonsense")
        (row,) = fault_rows(outcome)
        assert row["error"] == "n1 has no file with content that *.nonsense means"
        assert not row["proved_effective"] and outcome.valid == "unknown"
