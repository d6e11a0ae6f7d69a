"""Faults that wait, on real nodes: what fires them, and how late that is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.core.plan import FaultAction, Plan, Trigger, dump_plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from tests.end_to_end.runs import Done, shalott

WORLDS = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param(
        "docker", marks=[pytest.mark.docker, pytest.mark.nightly("the same as in processes")]
    ),
]


def fault(number: int, kind: str, node: str, **more: Any) -> FaultAction:
    timing = {"at_ms": 2000, "duration_ms": 3000} | more
    return FaultAction(id=number, kind=kind, target=node, nodes=(node,), **timing)


def perform(cluster: str, faults: tuple[FaultAction, ...], directory: Path) -> Done:
    request = Request(cluster=cluster, rate=50, time_limit="14", nemesis="none", seed=5)
    plan: Plan = make_plan(request, backend=cluster, seed=5)
    path = directory / "waiting.json"
    path.write_bytes(dump_plan(msgspec.structs.replace(plan, faults=faults)))
    return shalott(("test", "--plan", str(path)), directory)


@pytest.mark.parametrize("cluster", WORLDS)
def test_a_pause_comes_when_a_node_becomes_master(cluster: str, tmp_path: Path) -> None:
    """The queue's first master is killed; whoever follows it is told by its own events."""
    when = Trigger(kind="observed", what="master")
    kill = fault(1, "kill", "n1", at_ms=5000)  # when it has been waited for some seconds
    done = perform(cluster, (kill, fault(2, "pause", "n3", when=when)), tmp_path)
    (waited,) = done.rows("trigger")
    (killed,), (paused,) = done.rows("kill"), done.rows("pause")
    told = waited["extra"]
    assert told["fired"] and "became master of" in told["seen"], done
    assert told["noticed_by"] == "the file of events, read every 50 ms"
    assert told["late_ms_at_most"] < 2000
    # Its peers may know of the end before the engine says that it is over.
    assert killed["invoke_ns"] <= waited["complete_ns"] <= paused["invoke_ns"]
    assert paused["extra"]["proved_effective"] and paused["extra"]["proved_healed"], done
    stored = done.plan.faults[1].when
    assert stored is not msgspec.UNSET and isinstance(stored.fired_ms, int)


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param("local", marks=pytest.mark.local),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_power_goes_after_the_third_sync(cluster: str, tmp_path: Path) -> None:
    when = Trigger(kind="syncs", count=3, node="n2")
    done = perform(cluster, (fault(1, "power", "n2", when=when),), tmp_path)
    (waited,) = done.rows("trigger")
    (power,) = done.rows("power")
    assert waited["extra"]["seen"] == "3 syncs of n2", done
    assert power["extra"]["proved_effective"] and power["extra"]["proved_healed"], done
