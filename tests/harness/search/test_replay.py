"""Replay: the same run again and the digest compared, or the same faults in another world."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.sim.loop.trace import DIGEST_VERSION
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import FaultAction, Plan, canonical, dump_plan, load_plan
from shalott.harness.cli.main import run_command
from shalott.harness.report.results import classes, read_results, violations
from shalott.harness.run.run import RunContext
from shalott.harness.run.simulate import SimOutcome
from shalott.harness.run.simulation_record import (
    SimulationRecord,
    code_fingerprint,
    load_record,
    plan_digest,
    record_path,
    save_record,
)
from shalott.harness.run.store import RunDirectory
from shalott.harness.scenarios.swarm import Subject, draw_plan
from shalott.harness.search import replay as replay_module
from shalott.harness.search.door import Simulate
from shalott.harness.search.findings import evidence_of, save_evidence
from shalott.harness.search.replay import replay
from tests.world.harness.toy_simulation import loses, simulate_toy

pytestmark = pytest.mark.unit

replace = msgspec.structs.replace
DOCKER = frozenset({"kill", "stop", "pause", "cut", "cut-one-way", "delay", "throttle", "wipe"})


@pytest.fixture
def finding(tmp_path: Path) -> Path:
    """A failing plan, kept as a search keeps it."""
    plans = (draw_plan(Subject(profile="upstream"), seed) for seed in range(1, 99))
    plan = next(plan for plan in plans if loses(plan))
    evidence = evidence_of(plan, simulate_toy(plan), code=code_fingerprint())
    place = RunDirectory(tmp_path / "found")
    save_evidence(evidence, place, "shalott replay it")
    return place.path / "plan.json"


def again(
    path: Path,
    simulate: Simulate = simulate_toy,
    *,
    cluster: str = "",
    drop_unsupported: bool = False,
    trials: int = 1,
) -> int:
    return replay(
        path,
        cluster=cluster,
        drop_unsupported=drop_unsupported,
        trials=trials,
        store_root=path.parent.parent / "store",
        simulate=simulate,
    )


def edit_record(path: Path, **changes: object) -> SimulationRecord:
    record = load_record(path)
    assert record is not None
    changed = replace(record, **changes)
    save_record(path, changed)
    return changed


# -- in the simulation -----------------------------------------------------------------------------


def test_the_same_run_has_the_same_digest_and_is_stored(
    finding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(finding) == 1
    told = capsys.readouterr().out
    assert "The digest is the one that was stored." in told
    (run,) = (finding.parent.parent / "store" / load_plan(finding).name).glob("2*")
    results = read_results(run / "results.json")
    assert results.valid is False
    assert results.results[0].anomalies[0].kind == "lost"


def test_a_plan_without_a_record_runs_and_tells_its_digest(
    finding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_path(finding).unlink()
    assert again(finding) == 1
    told = capsys.readouterr().out
    assert f"Digest: {simulate_toy(load_plan(finding)).digest}" in told
    assert "stored" not in told


def test_the_plan_is_run_as_it_was_before_its_targets_were_found(tmp_path: Path) -> None:
    action = FaultAction(id=1, at_ms=5000, duration_ms=900, kind="kill", target="master")
    plan = canonical(replace(draw_plan(Subject(), 1), faults=(action,)))
    ran: list[Plan] = []

    def resolving(
        plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
    ) -> SimOutcome:
        ran.append(plan)
        faults = tuple(replace(fault, nodes=("n2",)) for fault in plan.faults)
        return dataclasses.replace(simulate_toy(plan), plan=replace(plan, faults=faults))

    place = RunDirectory(tmp_path / "found")
    save_evidence(evidence_of(plan, resolving(plan), code=code_fingerprint()), place, "")
    path = place.path / "plan.json"
    assert load_plan(path).faults[0].nodes == ("n2",)
    assert again(path, resolving) == 0
    assert ran[0] == ran[1] == plan


def mismatch(path: Path, simulate: Simulate = simulate_toy) -> str:
    with pytest.raises(HarnessError) as raised:
        again(path, simulate)
    sentence = str(raised.value)
    assert sentence.startswith(f"{path} did not replay: the digest is ")
    assert "\n" not in sentence
    return sentence


def with_cost(plan: Plan) -> Plan:
    """The plan in a world in which a callback takes a microsecond."""
    assert plan.sim is not None
    return replace(plan, sim=replace(plan.sim, callback_cost_ns=1000))


@pytest.mark.explore
def test_another_digest_is_one_sentence_that_says_why(finding: Path) -> None:
    kept = load_record(finding)
    assert kept is not None
    edit_record(finding, digest="0" * 32)
    assert mismatch(finding).endswith(
        "two runs of now are alike, and the stored one went another way"
    )
    edit_record(finding, checkpoints=("00",))
    assert mismatch(finding).endswith("went another way in chunk 0 of its trace")
    edit_record(finding, python="3.9.1")
    assert "; it was stored by Python 3.9.1, this is " in mismatch(finding)
    finding.write_bytes(dump_plan(with_cost(load_plan(finding))))
    edit_record(finding, plan=plan_digest(load_plan(finding)))
    assert "in this plan callbacks take time, and Python " in mismatch(finding)
    edit_record(finding, code="elsewhere")
    assert mismatch(finding).endswith("the code has changed since it was stored")
    plan = load_plan(finding)
    finding.write_bytes(dump_plan(replace(plan, time_limit_ms=plan.time_limit_ms - 1)))
    assert mismatch(finding).endswith("the plan has been edited since it was stored")


def test_a_digest_of_an_older_kind_is_told_and_not_compared(
    finding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = record_path(finding)
    fields = msgspec.json.decode(place.read_bytes())
    assert fields.pop("digest_version") == DIGEST_VERSION  # as records were before it was kept
    place.write_bytes(msgspec.json.encode(fields | {"digest": "0" * 32}))
    assert again(finding) == 1
    told = capsys.readouterr().out
    assert (
        "The stored digest is of an older kind (version 1, this Shalott makes version"
        f" {DIGEST_VERSION}), so it does not say whether the runs are equal." in told
    )
    assert "The digest is the one that was stored." not in told
    edit_record(finding, digest_version=DIGEST_VERSION + 1)
    assert again(finding) == 1
    assert "is of a newer kind (version " in capsys.readouterr().out


def test_two_runs_of_now_that_differ_are_the_simulations_fault(finding: Path) -> None:
    calls = iter(range(1, 99))

    def wobbling(
        plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None, order: bool = False
    ) -> SimOutcome:
        number = next(calls)
        outcome = simulate_toy(plan, label_chunk=label_chunk)
        assert outcome.trace is not None
        outcome.trace.words.append(number)
        outcome.trace.digest()
        outcome.trace.checkpoints[:] = [bytes([number])]
        label = f"t=0.5s n1:1 -> n2:2 segment of {number} B"
        outcome.trace.labels.append(label)
        return dataclasses.replace(outcome, digest=f"{number:032x}")

    sentence = mismatch(finding, wobbling)
    assert "two runs of now differ too, and that is a fault of the simulation" in sentence
    assert "t=0.5s n1:1 -> n2:2 segment of 3 B" in sentence


def test_a_mismatch_ends_the_command_with_255(
    finding: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shalott.harness.cli.search.simulate", simulate_toy)
    edit_record(finding, digest="0" * 32)
    store = str(finding.parent.parent / "store")
    assert run_command(["replay", str(finding), "--store", store]) == 255
    told = capsys.readouterr().err
    assert told.startswith(f"shalott: the harness failed: {finding} did not replay: the digest is ")
    assert told.count("\n") == 1


# -- elsewhere -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Another world, which can do what docker can; the plans that ran there. All but the first are
    invalid."""
    ran: list[Plan] = []

    def run_once(plan: Plan, store_root: Path, context: RunContext) -> int:
        ran.append(plan)
        return 0 if len(ran) == 1 else 1

    monkeypatch.setattr(replay_module, "_capabilities", lambda plan: DOCKER)
    monkeypatch.setattr(replay_module, "run_once", run_once)
    return ran


def with_faults(path: Path, kinds: Sequence[str]) -> Path:
    """The finding with one fault of each kind."""
    faults = tuple(
        FaultAction(
            id=number, at_ms=1000 * number, duration_ms=500, kind=kind, target="n1", nodes=("n1",)
        )
        for number, kind in enumerate(kinds, start=1)
    )
    path.write_bytes(dump_plan(replace(load_plan(path), faults=faults)))
    return path


def test_faults_that_another_world_lacks_are_refused_in_one_sentence(
    finding: Path, elsewhere: list[Plan]
) -> None:
    path = with_faults(finding, ("kill", "power", "disk-error", "power"))
    with pytest.raises(UsageError) as raised:
        again(path, cluster="docker")
    assert str(raised.value) == (
        "the docker cluster can't make 3 of the plan's 4 faults (disk-error, power): leave them"
        " out with --drop-unsupported, or replay with --cluster sim"
    )
    assert elsewhere == []


def test_or_are_left_out(
    finding: Path, elsewhere: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_faults(finding, ("kill", "power", "pause"))
    assert again(path, cluster="docker", drop_unsupported=True) == 0
    (plan,) = elsewhere
    assert [action.kind for action in plan.faults] == ["kill", "pause"]
    assert plan.cluster.backend == "docker"
    assert "Left out, for docker can't do it: power at 2 s." in capsys.readouterr().err


def test_elsewhere_the_oracle_is_how_many_of_some_runs(
    finding: Path, elsewhere: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(with_faults(finding, ("kill",)), cluster="local", trials=4) == 1
    assert len(elsewhere) == 4
    assert "Invalid in 3 of 4 runs." in capsys.readouterr().out


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["replay", "shrink"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"version": 7, "novelty": 1}', "is a plan of version 7; this is version 2"),
        (b'{"version": 0}', "is a plan of version 0; this is version 2"),
        (b'{"version": 1}', "is not a plan: Object missing required field"),
        (b"{", "is not a plan: "),
        (None, "cannot read the plan "),
    ],
)
def test_what_is_no_plan_of_this_version_is_refused(
    command: str,
    content: bytes | None,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    assert run_command([command, str(path)]) == 254
    told = capsys.readouterr().err
    assert told.startswith("shalott: ")
    assert sentence in told
    assert told.count("\n") == 1


def test_unknown_bugs_clusters_and_trials_are_refused(finding: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^unknown cluster moon: choose one of sim, docker, local"
    ):
        again(finding, cluster="moon")
    with pytest.raises(UsageError, match=r"^--trials 0: give 1 or more"):
        again(finding, trials=0)
    plan = load_plan(finding)
    finding.write_bytes(dump_plan(replace(plan, system=replace(plan.system, bugs=("KB-X",)))))
    with pytest.raises(UsageError, match=r"^there is no known bug KB-X"):
        again(finding)


def test_a_broken_record_is_one_sentence(finding: Path) -> None:
    record_path(finding).write_bytes(b"{}")
    with pytest.raises(UsageError, match=r"simulation.json is no record of a simulation"):
        again(finding)


def test_a_violation_is_what_a_checker_said_no_for(finding: Path) -> None:
    found = violations(simulate_toy(load_plan(finding)).results)
    assert classes(found) == ("lost",)
