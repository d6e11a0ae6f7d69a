"""From a row of the ladder to plans: on a release, on the control's, and on our own broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.core.plan import Plan
from shalott.harness.originals.row import Row, Setup
from shalott.harness.run.planning import check_plan, make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.requirements import requirements_of

SYSTEM = "rocketmq"
SEED = 18_000  # plans differ by their faults; repetitions by this and what follows


def plan_of(row: Row, release: str, number: int = 0, *, is_control: bool = False) -> Plan:
    """The row's plan on a release. Raises UsageError for a release that can't run it."""
    setup = _setup(row)
    closes = is_control and not row.control_on
    own = row.control_policy if closes else {}
    given = {
        "replication": setup.replication, "version": release,
        "topic-made-at": setup.topic_made_at, **setup.told, **(row.control_told if closes else {}),
    }  # fmt: skip
    kind = "control" if is_control else "with"
    return _plan(
        row, f"{row.id}-{kind}-{release}".lower(), number, SYSTEM, "docker",
        {**setup.policy, **own}, given,
    )  # fmt: skip


def plan_of_ours(row: Row, number: int = 0, *, is_on: bool) -> Plan:
    """The same faults and load on our broker in simulation, with the bug on or off."""
    setup, ours = _setup(row), row.ours
    assert ours is not None
    policy = {**setup.policy, **ours.policy, **({} if is_on else ours.closed)}
    kept = {name: value for name, value in policy.items() if value is not None}
    return _plan(
        row, f"{row.id}-ours-{'on' if is_on else 'off'}".lower(), number, ours.system, "sim", kept,
        dict(setup.told), bugs=(ours.bug,) if is_on and ours.bug else (),
    )  # fmt: skip


def _setup(row: Row) -> Setup:
    assert row.setup is not None, f"{row.id} has no plan"
    return row.setup


def _plan(
    row: Row,
    name: str,
    number: int,
    system: str,
    backend: str,
    policy: Mapping[str, Any],
    given: Mapping[str, str],
    bugs: tuple[str, ...] = (),
) -> Plan:
    setup = _setup(row)
    request = Request(
        workload=setup.workload, system=system, profile=setup.profile, cluster=backend,
        nodes=",".join(setup.nodes), concurrency=f"{setup.clients_a_node}n", rate=setup.rate_hz,
        time_limit=f"{setup.time_limit_ms}ms", op_timeout=f"{setup.op_timeout_ms}ms",
        nemesis="none", policy=tuple(f"{key}={_text(value)}" for key, value in policy.items()),
        bug=bugs, max_rto=f"{setup.max_rto_ms}ms" if setup.max_rto_ms else "", name=name,
        power_loss=setup.power_loss, given=given, min_acked=10,
    )  # fmt: skip
    plan = make_plan(request, backend=backend, seed=SEED + number)
    system_plan = msgspec.structs.replace(plan.system, services=dict(setup.services))
    gates = msgspec.structs.replace(
        plan.gates, must_settle=setup.must_settle, must_converge=setup.must_converge
    )
    plan = msgspec.structs.replace(
        plan, faults=row.faults, gates=gates, system=system_plan, quiet_ms=setup.quiet_ms,
        settle_timeout_ms=setup.settle_timeout_ms,
        observe_interval_ms=setup.observe_interval_ms,
    )  # fmt: skip
    plan = msgspec.structs.replace(plan, requires=requirements_of(plan))
    check_plan(plan)
    return plan


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
