"""One short run for each nemesis, and what must be true of it.

What every run owes: faults that were proved, files that can be read, an exit code that agrees with
its verdict. Beyond that only what theory makes certain. A partition under ``ignore`` that outlasts
the net tick makes both sides masters, both take writes, and the side that the operator restarts
loses its own. Under ``safe`` a kill or an orderly stop of one node at a time loses nothing. Where
the outcome is open (who wins where links are cut in one direction only, or where each node sees
another majority) the run must still come to a verdict.

An empty queue has nothing to lose, so every queue holds messages when a fault comes, and clients
hold some that they have not acknowledged. Nodes are taken away where they are masters, and three
times in a run. tests/planted/mutants.py has the broken brokers that runs like these must find.
"""

from __future__ import annotations

import html
import xml.etree.ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from shalott.harness.report.results import read_results
from tests.end_to_end.runs import Done, shalott

Judge = Callable[[Done], None]
DEPTH = 30  # messages that each queue is to hold
# About eight messages are with clients at any time, and so two or three with those of one node.
LOADED = (
    *("--depth", str(DEPTH), "--ack-after", "200ms"),
    *("--concurrency", "4n", "--rate", "100"),
    # Shorter than by default: clients that wait for the dead are no load.
    *("--op-timeout", "2s"),
)


@dataclass(frozen=True)
class Scenario:
    """What to run beside ``--nemesis``, and what must have come out."""

    judge: Judge
    profile: str = "upstream"
    nodes: int = 3
    time_limit_s: int = 10
    interval_s: int = 7  # long enough that only one fault fits into the time limit
    duration_s: int = 5
    net_tick_ms: int = 1000
    targets: str = "one"
    faults_min: int = 1
    seed: int = 11  # for which partitions last at least 4 s
    by_night: tuple[str, ...] = ()  # backends on which submissions do not run it


def valid(run: Done) -> None:
    assert run.exit_code == 0, run
    assert run.counts("total-queue")["lost-count"] == 0
    assert run.counts("mastership")["dual-master-effective-count"] == 0


def loses_on_one_side(run: Done) -> None:
    """Messages are lost in a row, on the side that was restarted: there were two masters."""
    assert run.exit_code == 1, run
    assert run.counts("mastership")["dual-master-claimed-count"] > 0
    assert run.counts("mastership")["dual-master-effective-count"] > 0
    assert run.counts("total-queue")["lost-count"] > 0
    (restarted,) = [row["extra"]["restarted"] for row in run.rows("operator")]
    assert restarted, "the operator restarted nobody"
    (total,) = [each for each in run.results.results if each.checker == "total-queue"]
    lost = [each.detail for each in total.anomalies if each.kind == "lost"]
    by_partition = [each for each in lost if each["cause"] == "L3"]
    assert by_partition, lost
    assert {each["node"] for each in by_partition} <= set(restarted)
    assert max(each["length"] for each in by_partition) > 1, "a row of one is no row"


def conclusive(run: Done) -> None:
    assert run.exit_code in (0, 1), run


def one_at_a_time(targets: str = "master") -> Scenario:
    """Taking one node after the other away, each once the mirrors are synchronised again."""
    return Scenario(
        valid,
        profile="safe",
        net_tick_ms=2000,
        time_limit_s=18,  # a node of a busy machine is back after half of it
        interval_s=2,
        duration_s=1,
        targets=targets,
        faults_min=2,
    )


def valid_for_all(run: Done) -> None:
    """And every node had its turn."""
    valid(run)
    assert run.rows("rolling-restart")[0]["extra"]["rolled"] == list(run.plan.cluster.nodes)


def in_turn(interval_s: int, judge: Judge = valid) -> Scenario:
    """Nodes go and come back one after the other, each once the mirrors are synchronised again."""
    return Scenario(
        judge,
        profile="safe",
        net_tick_ms=2000,
        time_limit_s=25,
        interval_s=interval_s,
        duration_s=2,
    )


# Submissions run each on one backend or both: partitions differ in who is cut off, not in how.
SCENARIOS: Mapping[str, Scenario] = {
    "partition-halves": Scenario(loses_on_one_side, by_night=("docker",)),
    "partition-random-halves": Scenario(loses_on_one_side, by_night=("docker", "local")),
    "partition-one": Scenario(loses_on_one_side, by_night=("docker", "local")),
    "partition-majorities-ring": Scenario(conclusive, nodes=5, by_night=("docker", "local")),
    "partition-bridge": Scenario(conclusive, nodes=5, by_night=("docker", "local")),
    "partition-one-way": Scenario(conclusive, by_night=("docker", "local")),
    "partition-isolate-master": Scenario(loses_on_one_side, by_night=("docker",)),
    "kill": replace(one_at_a_time(), by_night=("local",)),
    "stop": replace(one_at_a_time(), by_night=("docker",)),
    "pause": Scenario(
        conclusive, profile="safe", duration_s=4, targets="master", by_night=("local",)
    ),
    "rolling-restart": replace(in_turn(25, valid_for_all), by_night=("docker",)),
    "replace-node": replace(in_turn(12), by_night=("local",)),
    "restart-all": Scenario(
        conclusive, profile="safe", net_tick_ms=2000, duration_s=2, by_night=("docker",)
    ),
}
# Names as they are typed: pytest -m docker -k partition_halves
NAMES = {name.replace("-", "_"): name for name in SCENARIOS}


def names_on(backend: str) -> list[ParameterSet]:
    """A case for each scenario; those of the night are marked."""
    night = pytest.mark.nightly(f"submissions run it, or its like, elsewhere than on {backend}")
    return [
        pytest.param(name, marks=night if backend in SCENARIOS[full].by_night else ())
        for name, full in NAMES.items()
    ]


def arguments(nemesis: str, scenario: Scenario) -> list[str]:
    """The command line, but for the cluster."""
    return [
        "test",
        *("--nodes", str(scenario.nodes)),
        *("--profile", scenario.profile),
        *("--nemesis", nemesis),
        *("--targets", scenario.targets),
        *("--time-limit", str(scenario.time_limit_s)),
        *("--nemesis-interval", str(scenario.interval_s)),
        *("--nemesis-duration", str(scenario.duration_s)),
        *("--net-tick", f"{scenario.net_tick_ms}ms"),
        *("--seed", str(scenario.seed)),
        *LOADED,
    ]


def perform(nemesis: str, cluster: str, cwd: Path, more: Sequence[str] = ()) -> Done:
    """Run it and hold it to what every run owes, and to what this one does. ``more``: flags."""
    scenario = SCENARIOS[nemesis]
    run = shalott([*arguments(nemesis, scenario), "--cluster", cluster, *more], cwd)
    assert run.exit_code in (0, 1, 2), run
    assert_faults_proved(run, nemesis)
    assert len(faults_made(run, nemesis)) >= scenario.faults_min, run
    assert_something_to_lose(run, nemesis)
    assert_phases(run)
    assert_watched(run)
    assert_files(run)
    scenario.judge(run)
    return run


def assert_faults_proved(run: Done, nemesis: str) -> None:
    faults, planned = run.rows(nemesis), run.plan.faults
    # The end of the load may find one that still waits for mirrors to be synchronised.
    assert 0 < len(faults) <= len(planned), run
    assert len(faults) == len(planned) or planned[-1].settle, run
    made = faults_made(run, nemesis)
    assert made, [fault["extra"] for fault in faults]
    for fault in made:
        extra = fault["extra"]
        assert fault["error"] is None, fault
        assert extra["proved_effective"] and extra["proved_healed"], (fault, run.rows("probe"))
        assert extra["effective_ns"] < extra["healed_ns"]
        assert bool(extra["links"]) == nemesis.startswith("partition")
        probes = [row for row in run.rows("probe") if row["extra"]["fault"] == extra["fault"]]
        for phase in ("effective", "healed"):
            seen = [row["extra"] for row in probes if row["extra"]["phase"] == phase]
            assert seen and all(probe["seen"] == probe["expected"] for probe in seen), seen


def faults_made(run: Done, nemesis: str) -> list[dict[str, Any]]:
    return [fault for fault in run.rows(nemesis) if "skipped" not in fault["extra"]]


def assert_something_to_lose(run: Done, nemesis: str) -> None:
    """When a fault began, each queue held messages that had been acknowledged to their senders."""
    for fault in faults_made(run, nemesis):
        done = [
            row
            for row in run.rows("enqueue") + run.rows("dequeue")
            if row["type"] == "ok" and row["complete_ns"] < fault["extra"]["effective_ns"]
        ]
        for queue in {row["key"] for row in run.rows("enqueue")}:
            came = sum(row["key"] == queue and row["f"] == "enqueue" for row in done)
            went = sum(row["key"] == queue and row["f"] == "dequeue" for row in done)
            assert came - went >= DEPTH // 2, (queue, came, went, fault["extra"])


def assert_phases(run: Done) -> None:
    phases = [row["extra"]["phase"] for row in run.rows("phase")]
    assert phases == ["boot", "load", "heal", "settle", "drain", "end"]
    assert not [note for note in run.results.notes if "had not settled" in note], run
    drained = {row["node"] for row in run.rows("dequeue") if row["error"] == "empty"}
    assert drained == set(run.plan.cluster.nodes), "the drain goes on until every node says empty"


def assert_watched(run: Done) -> None:
    """Every node was asked, and wrote down, who is master."""
    nodes = set(run.plan.cluster.nodes)
    assert {row["node"] for row in run.rows("observe") if row["type"] == "ok"} == nodes
    roles = [row for row in run.history.events.to_pylist() if row["kind"] == "role"]
    assert {row["node"] for row in roles} == nodes
    queues = {row["group"] for row in roles if row["role"] == "master"}
    assert len(queues) == run.plan.workload.parameters["queues"]
    confirmed = {row["group"] for row in run.history.events.to_pylist() if row["kind"] == "acked"}
    assert confirmed == queues


def assert_files(run: Done) -> None:
    path = run.directory.path
    left = {each.name for each in path.iterdir()}
    assert left == {
        "plan.json",
        "SHA256SUMS",
        "history.parquet",
        "events.parquet",
        "results.json",
        "report.html",
        "junit.xml",
        "log.txt",
        "nodes",
        "endpoints.json",
    }
    results = read_results(path / "results.json")
    assert results.complete
    assert run.exit_code == {True: 0, False: 1, "unknown": 2}[results.valid]
    _, _, finding = results.headline.partition(": ")
    assert finding and finding in html.unescape((path / "report.html").read_text())
    assert results.headline in run.stdout
    suite = xml.etree.ElementTree.parse(path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    failures = sum(each.valid is False for each in results.results)
    assert int(suite.attrib["failures"]) == failures
    assert int(suite.attrib["tests"]) == len(results.results)
    for node in run.plan.cluster.nodes:
        assert (path / "nodes" / node / "output.log").stat().st_size > 0
        assert (path / "nodes" / node / "events.jsonl").stat().st_size > 0
    assert f"Report: store/{path.parent.name}/{path.name}/report.html" in run.stdout
    assert f"{results.command.removeprefix('shalott')}\n" in run.stdout
