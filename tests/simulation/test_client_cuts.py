"""Clients that can't reach a node that the others reach: a whole run in the simulation."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

from shalott.checkers.history.faults import decode_object
from shalott.core.plan import FaultAction
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate

pytestmark = pytest.mark.sim

LASTS_MS = 3000


@functools.cache
def run(kind: str, system: str = "mirrored") -> SimOutcome:
    request = Request(
        system=system, profile="safe", rate=40, time_limit="10", op_timeout="1", nemesis="none"
    )
    cut = FaultAction(id=1, at_ms=3000, duration_ms=LASTS_MS, kind=kind, target="n2", nodes=("n2",))
    plan = make_plan(request, backend="sim", seed=1)
    return simulate(msgspec.structs.replace(plan, faults=(cut,)))


def rows(outcome: SimOutcome) -> list[dict[str, Any]]:
    return [row | {"extra": decode_object(row["extra"])} for row in outcome.history.ops.to_pylist()]


@pytest.mark.parametrize("kind", ["client-cut", "client-cut-one-way"])
def test_clients_that_ask_a_name_server_first_are_cut_off_too(kind: str) -> None:
    outcome = run(kind, "controller")
    assert outcome.error is None and outcome.valid is True, outcome.results
    (fault,) = [row for row in rows(outcome) if row["f"] == kind]
    assert fault["extra"]["proved_effective"] and fault["extra"]["proved_healed"]
    probed = [row["extra"]["check"] for row in rows(outcome) if row["f"] == "probe"]
    assert {"connect n2 nameserver", "connect n2 remoting"} <= {*probed}


ONE_WAY = pytest.param("client-cut-one-way", marks=pytest.mark.nightly("both ways are cut by day"))


@pytest.mark.parametrize("kind", ["client-cut", ONE_WAY])
def test_the_run_is_valid_and_only_clients_of_that_node_suffer(kind: str) -> None:
    outcome = run(kind)
    assert outcome.error is None and outcome.valid is True, outcome.results
    (fault,) = [row for row in rows(outcome) if row["f"] == kind]
    assert fault["extra"]["proved_effective"] and fault["extra"]["proved_healed"]
    begin_ns, end_ns = fault["extra"]["effective_ns"], fault["extra"]["healed_ns"]
    during = [
        row
        for row in rows(outcome)
        if row["process"] >= 0 and begin_ns < row["invoke_ns"] < end_ns - 1_000_000_000
    ]
    of_n2 = [row for row in during if row["node"] == "n2"]
    assert of_n2 and all(row["type"] != "ok" for row in of_n2)
    assert any(row["type"] == "info" for row in of_n2)
    assert any(row["type"] == "ok" for row in during if row["node"] != "n2")
    asked = [
        row
        for row in rows(outcome)
        if row["f"] == "observe" and begin_ns < row["invoke_ns"] < end_ns
    ]
    assert asked and all(row["type"] == "ok" for row in asked), "the management answers"
    later = [row for row in rows(outcome) if row["process"] >= 0 and row["invoke_ns"] > end_ns]
    assert any(row["type"] == "ok" for row in later if row["node"] == "n2")


def test_one_way_what_is_sent_arrives() -> None:
    """Messages whose confirm was lost on its way are in the queue."""

    def arrived(kind: str) -> int:
        sent = [row for row in rows(run(kind)) if row["f"] == "enqueue" and row["type"] == "info"]
        taken = {row["value"]: row for row in rows(run(kind)) if row["f"] in ("dequeue", "drain")}
        return sum(row["value"] in taken for row in sent)

    assert arrived("client-cut-one-way") > 0


def test_it_repeats() -> None:
    first = run("client-cut")
    assert simulate(first.plan).digest == first.digest
