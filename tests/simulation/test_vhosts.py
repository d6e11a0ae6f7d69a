"""Runs whose queues are in a virtual host of their own: they are judged like any other."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rabbit.amqp.queue_protocol import Publish
from shalott.broker.rabbit.queue_process import queue_shell
from shalott.broker.rabbit.replica.master import Master
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate

pytestmark = pytest.mark.sim

VHOST = "a/b c%2f\u00fc"  # nothing of it may be in a path as it is


def run(workload: str) -> SimOutcome:
    request = Request(
        cluster="sim",
        profile="safe",
        workload=workload,
        nemesis="kill",
        rate=25.0,
        time_limit="12",
        nemesis_interval="3",
        nemesis_duration="3",
        given={"net-tick": "1s", "vhost": VHOST},
    )
    outcome = simulate(make_plan(request, backend="sim", seed=1))
    assert outcome.error is None
    return outcome


def rows(outcome: SimOutcome, f: str) -> list[dict[str, Any]]:
    return [row for row in outcome.history.ops.to_pylist() if row["f"] == f]


@pytest.mark.parametrize("workload", ["queue", "consume"])
def test_queues_have_the_names_that_clients_know(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, None] = {}
    group_of = queue_shell.group_of

    def noted(key: str) -> str:
        keys[key] = None
        return group_of(key)

    monkeypatch.setattr(queue_shell, "group_of", noted)
    outcome = run(workload)
    assert outcome.valid is True, [result for result in outcome.results if result.valid is not True]
    asked = {row["key"] for row in rows(outcome, "enqueue")}
    groups = set(outcome.history.events["group"].to_pylist()) - {""}
    assert "shalott.1" in asked & groups
    assert not any("@" in group for group in groups)
    kills = rows(outcome, "kill")
    assert kills and all(row["type"] == "info" for row in kills)
    assert keys and all(key.endswith(f"@{VHOST}") for key in keys), keys


@pytest.mark.parametrize("workload", ["queue", "consume"])
def test_a_broker_that_loses_messages_is_found_there(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It throws some away that wait, and tells its mirrors to do so."""
    publish = Master.publish
    count = 0

    def forgetful(self: Master, message: Publish, *, redelivered: bool = False) -> None:
        nonlocal count
        publish(self, message, redelivered=redelivered)
        count += 1
        if count % 5 == 0 and self.queue.messages.ready:
            self.dispatch._fetch(True)

    monkeypatch.setattr(Master, "publish", forgetful)
    outcome = run(workload)
    assert outcome.valid is False
    assert "lost" in outcome.anomalies
