"""docs/reference/output-keys.md against what is written.

What runs write is looked at in runs of all systems and workloads in the simulation: a few of them
always, the rest by night. A key that the page lists must be one that the code writes.
"""

from __future__ import annotations

import dataclasses
import os
import re
from functools import cache
from pathlib import Path

import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.harness.run.planning import Request, make_plan
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.workloads.record import WORKLOADS
from tests.docs.output_keys import documented, generalised, pattern_of, undocumented, written

ROOT = Path(__file__).parents[2]
NIGHT = bool(os.environ.get("SHALOTT_NIGHTLY"))
# (system, workload, nemesis): by day a run of each kind of broker, chosen to lose something.
BY_DAY = [
    ("mirrored", "queue", "partition-isolate-master"),
    ("controller", "log", "partition-isolate-master"),
]
BY_NIGHT = [
    (system, workload, nemesis)
    for system, workloads in {
        "mirrored": ("queue", "consume", "lock", "fifo", "metadata"),
        **dict.fromkeys(
            ("master-slave", "dledger", "controller"),
            ("log", "group", "elections", "topic-partitions"),
        ),
    }.items()
    for workload in workloads
    for nemesis in ("kill", "partition-isolate-master", "power-all")
]


@pytest.mark.unit
def test_every_system_that_simulates_is_run_with_every_workload_it_can() -> None:
    run = {(system, workload) for system, workload, _ in BY_NIGHT}
    for system in SYSTEMS.records():
        for workload in WORKLOADS.records():
            if "sim" in system.worlds and workload.fits(system.speaks):
                assert (system.name, workload.name) in run


@cache
def ran(system: str, workload: str, nemesis: str) -> SimOutcome:
    given: dict[str, str | bool] = {"net-tick": "1s"} if system == "mirrored" else {}
    known = {field.name for field in dataclasses.fields(Request)}
    own = {
        "workload": workload,
        "nemesis": nemesis,
        "nemesis_interval": "3",
        "nemesis_duration": "3",
    }
    given |= {name.replace("_", "-"): value for name, value in own.items() if name not in known}
    request = Request(
        cluster="sim", system=system, rate=25.0, time_limit="8", given=given,
        **{name: value for name, value in own.items() if name in known},
    )  # fmt: skip
    return simulate(make_plan(request, backend="sim", seed=2))


@pytest.mark.sim
@pytest.mark.parametrize(("system", "workload", "nemesis"), BY_NIGHT if NIGHT else BY_DAY)
def test_every_key_that_a_run_writes_is_documented(
    system: str, workload: str, nemesis: str
) -> None:
    outcome = ran(system, workload, nemesis)
    found = written(outcome.history, outcome.results)
    assert len(found) > 100
    assert undocumented(found, documented()) == []


@pytest.mark.unit
def test_every_key_that_is_documented_is_written_by_the_code() -> None:
    """Its last word is somewhere in the code, quoted or as a name: a key that is gone is not."""
    words = set(re.findall(r"[\w-]+", code()))
    gone = []
    for key in documented():
        word = key.split("/", 2)[2].split(".")[-1].removesuffix("[]")
        # Counts are put together: f"{kind}-count", f"by-{cause}-count".
        stem = re.sub(r"-(count|delivery-count|ms-max)$", "", word)
        stems = {word, stem, stem.removeprefix("by-")}
        if word != "*" and not stems & words:
            gone.append(key)
    assert gone == []


@pytest.mark.unit
def test_every_place_that_is_documented_is_a_thing_of_ours() -> None:
    words = set(re.findall(r"[\w-]+", code()))
    for place in {"/".join(key.split("/")[:2]) for key in documented()}:
        assert place.split("/")[1] in words, place


@pytest.mark.unit
def test_a_key_that_nobody_wrote_down_is_found() -> None:
    known = {"extra/poll/from": "integer", "extra/observe/*.epoch": "integer?"}
    assert undocumented({"extra/poll/from": {"integer"}}, known) == []
    assert undocumented({"extra/observe/n1.epoch": {"integer", "null"}}, known) == []
    assert undocumented({"extra/poll/to": {"integer"}}, known) == [
        "extra/poll/to is not documented (integer)"
    ]
    assert undocumented({"extra/poll/from": {"string"}}, known) == [
        "extra/poll/from is string, and documented as integer"
    ]
    assert not pattern_of("a/*.b").fullmatch("a/x/y.b")
    assert generalised("by-node.n1.ok") == "by-node.*.ok"


@cache
def code() -> str:
    rooms = ("broker", "checkers", "clients", "cluster", "core", "harness", "nemesis", "workloads")
    return "\n".join(
        path.read_text(encoding="utf-8")
        for room in rooms
        for path in (ROOT / "shalott" / room).rglob("*.py")
    )
