"""The example, installed beside the wheel: stock commands do with it what they do with our own."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.examples.installed import INSTALL_WITHIN_S, Done, Installed

pytestmark = pytest.mark.timeout(INSTALL_WITHIN_S + 600)

ON_ETCD = (
    *("test", "--system", "etcd-debian", "--workload", "register", "--cluster", "docker"),
    *("--nemesis", "partition,kill", "--nemesis-interval", "8", "--nemesis-duration", "5"),
    *("--time-limit", "35", "--op-timeout", "1s", "--seed", "4"),
)
# Reads are stale at a node that is cut off while the others write, if it was asked often enough
# (nodes that are killed answer nothing) and the keys are older than the cut.
STALE = (
    *("test", "--system", "etcd-debian", "--workload", "register", "--cluster", "docker"),
    *("--reads", "serializable", "--ops-per-key", "1000", "--op-timeout", "500ms"),
    *("--nemesis", "partition-one", "--nemesis-interval", "3", "--nemesis-duration", "6"),
    *("--time-limit", "16", "--seed", "4", "--test-count", "3"),
)
TOY = ("--system", "toy-register", "--workload", "register")


def results_of(run: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((run / "results.json").read_text())
    return results


def judged(run: Path, checker: str) -> dict[str, Any]:
    (found,) = [each for each in results_of(run)["results"] if each["checker"] == checker]
    return dict(found)


# -- etcd ------------------------------------------------------------------------------------------


@pytest.mark.nightly("three minutes in containers; its client and its toy are tested by day")
@pytest.mark.docker
def test_etcd_is_linearizable_with_quorum_reads_and_not_with_serializable_ones(
    installed: Installed,
) -> None:
    quorum = installed.shalott(*ON_ETCD, timeout_s=600)
    assert quorum.code == 0, quorum.printed
    stale = installed.shalott(*STALE, timeout_s=600)
    assert stale.code == 1, stale.printed
    first, *_, second = installed.runs
    assert judged(first, "linearizability")["valid"] is True
    assert judged(first, "linearizability")["counts"]["linearized-count"] > 500
    found = judged(second, "linearizability")["anomalies"]
    assert {each["kind"] for each in found} == {"not-linearizable"}
    faults = {fault["kind"] for fault in json.loads((first / "plan.json").read_text())["faults"]}
    assert "kill" in faults and any(kind.startswith("partition") for kind in faults)
    assert found[0]["summary"] in unescape((second / "report.html").read_text())

    again = installed.shalott("analyze", str(second))
    assert again.code == 1, again.printed
    replayed = installed.shalott("replay", str(first / "plan.json"))
    assert replayed.code == 0, replayed.printed


POWER = (
    *("test", "--system", "etcd-debian", "--workload", "register", "--cluster", "docker"),
    *("--nemesis", "power-all", "--nemesis-interval", "6", "--nemesis-duration", "3"),
    *("--time-limit", "12", "--op-timeout", "1s", "--seed", "4"),
)


@pytest.mark.docker
@pytest.mark.nightly("most of a minute in containers")
def test_etcd_keeps_over_a_loss_of_power_what_it_synced_and_loses_it_without_its_syncs(
    installed: Installed,
) -> None:
    kept = installed.shalott(*POWER)
    assert kept.code == 0, kept.printed
    lost = installed.shalott(*POWER, "--unsafe-no-fsync", "--power-loss", "drop")
    assert lost.code == 1, lost.printed
    first, second = installed.runs
    assert judged(first, "linearizability")["valid"] is True
    found = judged(second, "linearizability")["anomalies"]
    assert {each["kind"] for each in found} == {"not-linearizable"}, lost.printed


# -- the workload and the fault in the simulation --------------------------------------------------


def search(installed: Installed, profile: str) -> Done:
    return installed.shalott(
        *("search", *TOY, "--profile", profile, "--seeds", "3", "--jobs", "2"),
        *("--nemesis", "crash-loop,partition"),
    )


@pytest.mark.local
def test_a_search_in_worker_processes_finds_stale_reads_which_are_replayed_and_shrunk(
    installed: Installed,
) -> None:
    found = search(installed, "upstream")
    assert found.code == 1, found.printed
    plan = next(iter(sorted(installed.directory.glob("store/search/*/findings/*/plan.json"))))
    stored = json.loads(plan.read_text())
    assert {(each["kind"], each["provider"]) for each in stored["requires"]} >= {
        ("system", "shalott-examples"),
        ("workload", "shalott"),
    }
    replayed = installed.shalott("replay", str(plan))
    assert replayed.code == 1, replayed.printed
    shrunk = installed.shalott("shrink", str(plan), "--budget", "25")
    assert shrunk.code == 0, shrunk.printed


@pytest.mark.local
def test_a_search_finds_nothing_where_reads_are_confirmed(installed: Installed) -> None:
    found = search(installed, "safe")
    assert found.code == 0, found.printed


@pytest.mark.local
def test_the_fault_is_injected_and_proved_in_processes(installed: Installed) -> None:
    ran = installed.shalott(
        *("test", *TOY, "--profile", "safe", "--cluster", "local", "--nemesis", "crash-loop"),
        *("--nemesis-interval", "4", "--nemesis-duration", "3", "--time-limit", "12"),
        *("--rate", "40", "--seed", "2"),
    )
    assert ran.code == 0, ran.printed
    (run,) = installed.runs
    assert "crash-loop" in {
        f["kind"] for f in json.loads((run / "plan.json").read_text())["faults"]
    }


@pytest.mark.local
def test_a_plan_of_the_example_says_what_to_install_where_it_is_not(
    installed: Installed,
) -> None:
    planned = installed.shalott(
        *("test", *TOY, "--profile", "safe", "--cluster", "sim", "--nemesis", "none"),
        *("--time-limit", "3", "--rate", "30"),
    )
    assert planned.code in (0, 2), planned.printed
    (run,) = installed.runs
    plan = json.loads((run / "plan.json").read_text())
    for each in plan["requires"]:
        each["name"] = f"another-{each['name']}"
    (installed.directory / "plan.json").write_text(json.dumps(plan))
    refused = installed.shalott("replay", "plan.json")
    assert refused.code == 254, refused.printed
    assert "install it with: pip install 'shalott-examples==0.1.0'" in refused.printed


@pytest.mark.spark
def test_spark_reports_the_examples_runs(installed: Installed) -> None:
    ran = installed.shalott(
        *("test", *TOY, "--profile", "safe", "--cluster", "sim", "--time-limit", "20"),
        *("--rate", "40", "--seed", "2"),
    )
    assert ran.code == 0, ran.printed
    told = installed.with_spark("report")
    assert told.code == 0, told.printed
    report = installed.directory / "store" / "_report" / "report.md"
    assert "toy-register" in report.read_text()
