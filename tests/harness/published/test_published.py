"""`shalott bugs --published`: what is found again, what is gone, and what can't be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.core.doors import load_module
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, decode_plan, load_plan
from shalott.core.published import PublishedFinding, Seen
from shalott.harness.cli.main import run_command
from shalott.harness.cli.published import exit_code, plan_of
from shalott.harness.originals.evidence import Look
from shalott.harness.published.document import memory_of, render
from shalott.harness.published.evidence import (
    Published,
    keep,
    load_published,
    look_at,
    on_newest,
    tally_on,
)
from shalott.harness.published.minimal import anomaly_of
from shalott.harness.published.running import SEED, FindingsRequest, run_findings
from shalott.harness.report.meta import Usage
from shalott.harness.report.results import RunResults, classes, violations
from shalott.harness.run.simulate import simulate
from shalott.harness.shrinking.candidates import measure
from tests.plug_ins import forget
from tests.world.harness.releases import finding

LOAD = ("--load", "tests.world.harness.releases")
STALE = finding("stale-reads")


def results(*found: Result, valid: bool | str = True, failures: Sequence[str] = ()) -> RunResults:
    return RunResults(
        name="n", seed=1, system="released", profile="safe", workload="register",
        started_wall_ns=0, complete=True, valid=valid, headline="", command="",
        failures=tuple(failures), results=found,
    )  # fmt: skip


STALE_READ = Result(
    checker="linearizability",
    valid=False,
    counts={"not-linearizable-count": 3, "acknowledged-count": 90},
    anomalies=(Anomaly(kind="not-linearizable", summary="old"),),
)


@dataclass
class Runs:
    """What runs on each release show, one after the other; the last one stays."""

    shows: dict[str, list[RunResults]]
    directory: Path
    seeds: list[int] = field(default_factory=list)

    def plan(self, finding: PublishedFinding, release: str, seed: int) -> Plan:
        return plan_of(finding, release, seed)

    def run(self, plan: Plan) -> tuple[RunResults, Path]:
        self.seeds.append(plan.seed)
        left = self.shows[str(plan.system.parameters["version"])]
        return (left.pop(0) if len(left) > 1 else left[0]), self.directory


def run(runs: Runs, *findings: PublishedFinding, repeat: int = 2, **asked: bool) -> Published:
    request = FindingsRequest(repeat=repeat, **asked)
    return run_findings(
        findings, request, runs.plan, runs.run, runs.directory, lambda finding, look: None
    )


@pytest.fixture(autouse=True)
def releases() -> Iterator[None]:
    load_module("tests.world.harness.releases")
    yield
    forget()


# -- what was run ----------------------------------------------------------------------------------


@pytest.mark.unit
def test_each_release_is_run_so_often_and_a_killed_command_goes_on(tmp_path: Path) -> None:
    runs = Runs({"1.0": [results(STALE_READ, valid=False)], "1.1": [results()]}, tmp_path)
    run(runs, STALE)
    assert runs.seeds == [SEED, SEED + 1] * 2
    kept = run(runs, STALE, repeat=3)
    assert runs.seeds[4:] == [SEED + 2] * 2
    looks = kept.looks["stale-reads"]
    assert [tally_on(looks, each).words for each in ("1.0", "1.1")] == ["3 of 3", "0 of 3"]
    assert on_newest(STALE, looks) == "gone"
    assert exit_code((STALE,), FindingsRequest(repeat=3), kept) == 0
    assert "not-linearizable 3, of 90 acknowledged" in render(kept)
    assert "## What was promised" in (tmp_path / "upstream.md").read_text()


@pytest.mark.unit
def test_the_newest_alone_and_what_it_still_shows(tmp_path: Path) -> None:
    runs = Runs({"1.1": [results(STALE_READ, valid=False)]}, tmp_path)
    kept = run(runs, STALE, repeat=1, newest=True)
    assert len(runs.seeds) == 1
    assert on_newest(STALE, kept.looks["stale-reads"]) == "still there"
    asked = FindingsRequest(repeat=1, newest=True)
    assert exit_code((STALE,), asked, kept) == 1


@pytest.mark.unit
def test_runs_that_proved_nothing_are_made_again_and_do_not_count(tmp_path: Path) -> None:
    blind = results(Result(checker="linearizability", valid="unknown"), valid="unknown")
    failed = results(failures=["the engine is gone"])
    runs = Runs({"1.0": [failed, results()], "1.1": [blind]}, tmp_path)
    kept = run(runs, STALE, repeat=1)
    looks = kept.looks["stale-reads"]
    assert tally_on(looks, "1.0").words == "0 of 1" and tally_on(looks, "1.1").words == "-"
    assert len([look for look in looks if look.void]) == 3
    assert on_newest(STALE, looks) == "unknown"
    assert exit_code((STALE,), FindingsRequest(repeat=1), kept) == 2


def looks(there: int, runs: int, newest: int, newest_runs: int) -> list[Look]:
    return [
        Look(side="published", release=release, run="r", seed=1, found=number < found, valid=True)
        for release, found, count in (("1.0", there, runs), ("1.1", newest, newest_runs))
        for number in range(count)
    ]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ((5, 5, 0, 5), "gone"),
        ((3, 5, 0, 5), "gone"),
        ((1, 5, 0, 5), "unknown"),  # as rare as that, five runs may miss it
        ((1, 5, 0, 20), "gone"),
        ((0, 5, 0, 5), "unknown"),
        ((5, 5, 0, 0), "unknown"),
        ((0, 5, 1, 5), "still there"),
    ],
)
def test_gone_is_said_only_where_chance_explains_it_badly(
    counts: tuple[int, int, int, int], word: str
) -> None:
    assert on_newest(STALE, looks(*counts)) == word


@pytest.mark.unit
def test_a_newest_release_that_can_not_be_had_stays_unknown(tmp_path: Path) -> None:
    told = finding("stale-reads", newest="2.0")
    runs = Runs({"1.0": [results(STALE_READ, valid=False)]}, tmp_path)
    kept = run(runs, told, repeat=1)
    assert tally_on(kept.looks["stale-reads"], "1.0").words == "1 of 1"
    assert on_newest(told, kept.looks["stale-reads"]) == "unknown"
    assert exit_code((told,), FindingsRequest(repeat=1), kept) == 2
    with pytest.raises(UsageError, match=r"stale-reads on 2\.0"):
        run(runs, told, repeat=1, newest=True)


# -- what a run must show --------------------------------------------------------------------------


@pytest.mark.unit
@pytest.mark.parametrize(
    ("seen", "is_found"),
    [
        (Seen(kinds=("not-linearizable",)), True),
        (Seen(checker="kafka", kinds=("not-linearizable",)), False),
        (Seen(checker="linearizability", count="not-linearizable-count", least=3), True),
        (Seen(checker="linearizability", count="not-linearizable-count", least=4), False),
        (Seen(line="stream .* is gone", least=2), True),
        (Seen(line="stream .* is gone", least=3), False),
        (Seen(kinds=("not-linearizable",), line="no such line"), False),
    ],
)
def test_what_must_be_seen(seen: Seen, is_found: bool, tmp_path: Path) -> None:
    (tmp_path / "nodes" / "n1").mkdir(parents=True)
    (tmp_path / "nodes" / "n1" / "output.log").write_text("stream A is gone\nstream B is gone\n")
    (tmp_path / "nodes" / "n1" / "data").write_bytes(b"\0stream C is gone\n")
    (tmp_path / "nodes" / "n2").mkdir()
    (tmp_path / "nodes" / "n2" / "output.log").write_text("stream A is gone\n")
    told = finding("f", seen=(seen,))
    look = look_at(told, "1.0", results(STALE_READ, valid=False), tmp_path, load=0, harness_cpu_s=0)
    assert look.found is is_found and not look.void


@pytest.mark.unit
def test_a_finding_says_something() -> None:
    with pytest.raises(ValueError, match="nothing that a run must show"):
        Seen(checker="kafka")
    with pytest.raises(ValueError, match="names no release"):
        finding("f", releases=())


@pytest.mark.unit
def test_what_a_plug_in_that_is_not_here_found_stays(tmp_path: Path) -> None:
    keep(tmp_path, (finding("other", system="elsewhere"),), (("other", looks(1, 1, 0, 0)[0]),))
    keep(tmp_path, (STALE,))
    kept = load_published(tmp_path)
    assert set(kept.findings) == {"other", "stale-reads"}
    assert "## elsewhere" in render(kept) and tally_on(kept.looks["other"], "1.0").words == "1 of 1"


# -- what a run took -------------------------------------------------------------------------------


@pytest.mark.unit
def test_what_a_run_took_is_its_harness_s_and_its_nodes_own_or_is_not_known(
    tmp_path: Path,
) -> None:
    told = msgspec.structs.replace(
        results(STALE_READ, valid=False), usage=Usage(nodes=3, cpu_s=7.5, memory_mib=90.0)
    )
    runs = Runs({"1.0": [told], "1.1": [results()]}, tmp_path)
    kept = run(runs, STALE, repeat=1)
    known, unknown = kept.looks["stale-reads"]
    assert known.own_cpu_s >= 7.5 and (known.nodes, known.memory_mib) == (3, 90.0)
    assert (unknown.own_cpu_s, unknown.memory_mib) == (0.0, 0.0)
    assert list(memory_of(kept, "released")) == ["3 nodes took 90 MiB together (median of 1 run)."]
    lines = render(kept).splitlines()
    assert any(f" {known.own_cpu_s:.0f} CPU s, 90 MiB," in line for line in lines)
    assert not any("0 MiB" in line and "90 MiB" not in line for line in lines)


# -- minimal plans ---------------------------------------------------------------------------------


@pytest.mark.unit
@pytest.mark.parametrize(
    ("seen", "classes", "kept"),
    [
        (Seen(kinds=("diverged", "lost-write")), ("stuck", "lost-write"), "lost-write"),
        (Seen(checker="total-queue", count="lost-count"), ("lost", "stuck"), "lost"),
    ],
)
def test_a_smaller_plan_keeps_the_finding_s_own_anomaly(
    seen: Seen, classes: tuple[str, ...], kept: str
) -> None:
    look = Look(
        side="published", release="1.0", run="r", seed=1, found=True, valid=False, classes=classes
    )
    assert anomaly_of(finding("f", seen=(seen,)), look) == kept


@pytest.mark.unit
def test_what_is_known_by_a_line_alone_can_not_be_shrunk() -> None:
    look = Look(
        side="published", release="1.0", run="r", seed=1, found=True, valid=False,
        classes=("stuck",),
    )  # fmt: skip
    with pytest.raises(UsageError, match="by no anomaly of a checker"):
        anomaly_of(finding("f", seen=(Seen(line="orphaned stream"),)), look)


@pytest.mark.sim
def test_a_minimal_plan_is_reported_with_the_plan_itself(tmp_path: Path) -> None:
    assert bugs(tmp_path, "stale-reads", "--repeat", "1", "--version", "1.0", "--shrink") == 0
    [found] = (tmp_path / "store").glob("stale-reads-1.0/2*/plan.json")
    [report] = (tmp_path / "store").glob("stale-reads-1.0-minimal/2*/upstream.md")
    text = report.read_text()
    plan = decode_plan(text.partition("```json\n")[2].partition("\n```")[0].encode(), "report")
    assert measure(plan) < measure(load_plan(found))
    assert f"({len(load_plan(found).faults)}) {len(plan.faults)} " in text
    outcome = simulate(plan)  # what is in the report is what shows it
    assert "not-linearizable" in classes(violations(outcome.results))
    assert "shalott test --plan plan.json" in text and "--nemesis-interval" not in text


@pytest.mark.sim
def test_without_a_run_in_the_store_there_is_nothing_to_shrink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bugs(tmp_path, "never", "--repeat", "1", "--version", "1.1", "--shrink") == 254
    assert "no run that showed it" in capsys.readouterr().err


# -- the command -----------------------------------------------------------------------------------


def bugs(directory: Path, *words: str) -> int:
    out = ("--out", str(directory / "docs"), "--store", str(directory / "store"))
    return run_command(["bugs", "--published", *words, *LOAD, *out])


@pytest.mark.sim
def test_one_command_finds_it_again_and_says_that_the_newest_release_is_without_it(
    tmp_path: Path,
) -> None:
    assert bugs(tmp_path, "stale-reads", "--repeat", "1") == 0
    [row] = [
        line
        for line in (tmp_path / "docs/evidence/published.md").read_text().splitlines()
        if line.startswith("| stale-reads")
    ]
    assert "| 1.0 | 1 of 1 |" in row and row.endswith("| 1.1 | 0 of 1 | gone |")
    page = (tmp_path / "docs/evidence/systems/released.md").read_text()
    assert "1.0 1 of 1, 1.1 0 of 1" in page and "- Members are not changed." in page
    [report] = (tmp_path / "store").glob("stale-reads-1.0/2*/upstream.md")
    assert "--system released --version 1.0" in report.read_text()
    assert not list((tmp_path / "store").glob("stale-reads-1.1/2*/upstream.md"))


@pytest.mark.sim
def test_what_the_newest_release_shows_is_invalid_and_what_never_comes_is_not_found(
    tmp_path: Path,
) -> None:
    assert bugs(tmp_path, "there-yet", "--repeat", "1", "--newest") == 1
    assert bugs(tmp_path, "never", "--repeat", "1", "--version", "1.1") == 0
    kept = load_published(tmp_path / "docs")
    assert tally_on(kept.looks["never"], "1.1").words == "0 of 1"
    assert on_newest(kept.findings["never"], kept.looks["never"]) == "unknown"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing-so",), "unknown finding nothing-so"),
        (("stale-reads", "--version", "3.0"), "stale-reads on 3.0"),
        (("stale-reads", "--repeat", "0"), "--repeat 0: give 1 or more"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    words: Sequence[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bugs(tmp_path, *words) == 254
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
