"""What is kept of a simulated run beside its plan, so that the same run can be known again.

``simulation.json`` stands beside ``plan.json``; beside any other plan, such as ``minimal.json``,
the record is called after it: ``minimal.simulation.json``. A digest is promised for one state of
the code, so the code is kept: a replay that differs can say why. It is the same in every supported
version of Python; which one it was is kept for those who look for a difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from shalott.core.errors import StoreError, UsageError
from shalott.core.plan import FaultAction, Plan, canonical, dump_plan

SIMULATION = "simulation.json"
NEVER_RUN = "mutants"  # the folder of what changes the sources, which a change is told apart by
PACKAGES = ("broker", "checkers", "clients", "cluster", "core", "harness", "nemesis", "workloads")


class SimulationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a repeated run is compared with. Times are virtual.

    ``way``: "test" runs keep everything in files, "search" runs keep it in memory and may stop at a
    violation; the two take different steps, so each has digests of its own.
    """

    version: int = 1  # of this file's fields
    run: str = ""  # of which run it is, as in the files beside it
    digest: str  # of what the world saw (cluster/sim/loop/trace.py)
    digest_version: int = 1  # what it is made of; old records say nothing
    python: str
    callbacks: int  # not compared: depends on the version of Python
    segments: int
    virtual_ns: int
    way: Literal["test", "search"] = "test"
    code: str = ""  # of the sources that ran
    plan: str = ""  # of the stored plan
    checkpoints: tuple[str, ...] = ()  # the digest after each chunk of the trace
    # The faults as they were before their targets were found: what was run, where that differs from
    # the stored plan. A target that is known is not asked for, and so takes other steps.
    planned: tuple[FaultAction, ...] | None = None
    violations: tuple[str, ...] = ()
    sometimes: Mapping[str, int] = {}
    buggified: Mapping[str, int] = {}


def planned_faults(run: Plan, stored: Plan) -> tuple[FaultAction, ...] | None:
    """What to remember of the plan that was run when another one is stored."""
    return run.faults if run.faults != stored.faults else None


def plan_as_run(stored: Plan, record: SimulationRecord) -> Plan:
    """The plan that was run, of which ``stored`` is what became of it."""
    if record.planned is None:
        return stored
    return msgspec.structs.replace(stored, faults=record.planned)


def plan_digest(plan: Plan) -> str:
    """Tells whether a plan was edited."""
    return hashlib.blake2b(dump_plan(canonical(plan)), digest_size=8).hexdigest()


def record_path(plan: Path) -> Path:
    """Where the record of a stored plan stands."""
    return plan.with_name(SIMULATION if plan.name == "plan.json" else f"{plan.stem}.{SIMULATION}")


def save_record(plan: Path, record: SimulationRecord) -> None:
    """Keep the record beside its plan. Raises StoreError."""
    place = record_path(plan)
    folder = plan.absolute().parent
    record = msgspec.structs.replace(record, run=f"{folder.parent.name}/{folder.name}")
    data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    try:
        place.write_bytes(data)
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror}") from error


def load_record(plan: Path) -> SimulationRecord | None:
    """The record beside a plan; None if there is none. Raises UsageError if it can't be read."""
    place = record_path(plan)
    try:
        return msgspec.json.decode(place.read_bytes(), type=SimulationRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{place} is no record of a simulation: {error}") from error


def code_fingerprint(root: Path | None = None) -> str:
    """Of every source file that a simulated run may execute."""
    base = root if root is not None else Path(__file__).parents[2]
    mixed = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        for path in sorted((base / package).rglob("*.py")):
            if path.parent.name == NEVER_RUN:
                continue
            mixed.update(str(path.relative_to(base)).encode())
            mixed.update(path.read_bytes())
    return mixed.hexdigest()
