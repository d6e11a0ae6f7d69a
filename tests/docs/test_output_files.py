"""docs/output-files.md and docs/output-keys.md against what is written.

What runs write is looked at in runs of all systems and workloads in the simulation: a few of them
always, the rest by night. A key that the page lists must be one that the code writes.
"""

from __future__ import annotations

import dataclasses
import os
import re
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.history import COLUMNS, EVENT_COLUMNS
from shalott.harness.report.meta import Tested
from shalott.harness.report.results import RunResults
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.workloads.record import WORKLOADS
from tests.docs.output_keys import documented, generalised, pattern_of, undocumented, written

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "output-files.md").read_text(encoding="utf-8")
NIGHT = bool(os.environ.get("SHALOTT_NIGHTLY"))
TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "bool": pa.bool_()}
# (system, workload, nemesis): by day a run of each kind of broker, chosen to lose something.
BY_DAY = [
    ("mirrored", "queue", "partition-isolate-master"),
    ("controller", "log", "partition-isolate-master"),
]
BY_NIGHT = [
    (system, workload, nemesis)
    for system, workloads in {
        "mirrored": ("queue", "consume", "lock", "fifo", "metadata"),
        **dict.fromkeys(("master-slave", "dledger", "controller"), ("log", "group", "elections")),
    }.items()
    for workload in workloads
    for nemesis in ("kill", "partition-isolate-master", "power-all")
]


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows_of(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells[1:] if not set(row[0]) <= set("- ")]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("title", "columns"), [("history.parquet", COLUMNS), ("events.parquet", EVENT_COLUMNS)]
)
def test_the_tables_of_columns_are_the_schema(
    title: str, columns: tuple[tuple[str, pa.DataType, bool, str], ...]
) -> None:
    table = section(title)[section(title).index("| column |") :].split("\n\n", 1)[0]
    told = [(row[0].strip("`"), row[1]) for row in rows_of(table)]
    assert [name for name, _ in told] == [name for name, *_ in columns]
    for (name, words), (_, kind, nullable, _) in zip(told, columns, strict=True):
        assert TYPES[words.rstrip("?")] == kind, name
        assert words.endswith("?") == nullable, name


@pytest.mark.unit
def test_the_fields_of_results_json_are_the_struct_s() -> None:
    table = section("results.json").strip().split("\n\n", 1)[0]
    told = [name for row in rows_of(table) for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(told) == sorted(RunResults.__struct_fields__)
    tested = next(row for row in rows_of(table) if row[0] == "`tested`")[1]
    unsaid = ("base_image_id", "base_image_digest")  # "the same of its base_image"
    for name in Tested.__struct_fields__:
        assert f"`{name}`" in tested or name in unsaid, name


@pytest.mark.unit
def test_every_system_that_simulates_is_run_with_every_workload_it_can() -> None:
    run = {(system, workload) for system, workload, _ in BY_NIGHT}
    for system in SYSTEMS.records():
        for workload in WORKLOADS.records():
            if "sim" in system.worlds and set(workload.needs) <= set(system.speaks):
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
    rooms = ("broker", "checkers", "cluster", "harness", "nemesis", "workloads")
    return "\n".join(
        path.read_text(encoding="utf-8") for room in rooms for path in (ROOT / room).rglob("*.py")
    )
