"""The pages of nights: cells by their names, what was asked for and what was only repeated, what is
expected, what was found; and a red run's cause with the way to its proof."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.harness.matrix.night_findings import Finding, share
from shalott.harness.matrix.night_summary import CellSummary, NightSummary
from shalott.harness.serve.log_time import place_of_time
from tests.harness.serve.conftest import Asking
from tests.world.harness.served_store import (
    DAY_NS,
    GREEN,
    RED,
    START_NS,
    make_store,
    row,
    write_table,
)

pytestmark = pytest.mark.unit

PARTITION = "mirrored/safe/sim/queue/partition"
UPSTREAM = "mirrored/upstream/sim/queue/partition"
LOST = [{"checker": "total-queue", "kind": "lost", "count": 3, "broken": True}]


def run_of(number: int, cell: str, *, turn: str = "first", red: bool = False, **said: Any) -> Any:
    tags = {"matrix": "m", "turn": turn, "expect": said.pop("expect", "valid")}
    tags |= said.pop("tags", {})
    told = {"valid": "false", "headline": "Invalid: 3 lost", "anomalies": LOST} if red else {}
    made = row(f"q/{number}", cell=cell, night="n2", tags=msgspec.json.encode(tags).decode())
    return {**made, "started_wall_ns": START_NS + number, **told, **said}


def two_cells() -> list[dict[str, Any]]:
    """Each of a cell's runs drew another kind of partition; the red one was repeated."""
    return [
        run_of(1, PARTITION, nemesis=["partition-halves"], red=True, seed=1),
        run_of(2, PARTITION, nemesis=["partition-one", "partition-halves"], seed=2),
        *(run_of(3 + n, PARTITION, turn=f"again {n}", red=True, seed=1) for n in range(4)),
        run_of(8, UPSTREAM, nemesis=["partition-one"], red=True, expect="valid,invalid"),
    ]


def summary(**said: Any) -> NightSummary:
    common: dict[str, Any] = {
        "matrix": "m", "night": "n2", "digest": "d", "shards": (1,), "of_shards": 1,
        "started_wall_ns": START_NS, "spent_s": 1.0, "over": False, "why": "", "commit": "c",
        "planned": 60, "ran": 12, "again": 4, "not_run": 48, "verdicts": {}, "findings": (),
        "compared_with": ("n1",), "cells": (), "exit_code": 1,
    }  # fmt: skip
    return NightSummary(**{**common, **said})


def cell_summary(cell: str, planned: int, **said: Any) -> CellSummary:
    counts = dict.fromkeys(("ran", "valid", "invalid", "unknown", "harness_failed"), 0)
    common = {"expect": ("valid",), "invalid_share": share(0, 0), "kinds": {}, "surprises": 0}
    return CellSummary(
        **{"cell": cell, "planned": planned, "earlier": (), **counts, **common, **said}
    )


def served(tmp_path: Path, rows: list[dict[str, Any]], *nights: NightSummary) -> Asking:
    write_table(tmp_path, rows)
    for number, night in enumerate(nights):
        place = tmp_path / "_nights" / f"{night.night}.{number}"
        place.mkdir(parents=True)
        (place / "summary.json").write_bytes(msgspec.json.encode(night))
    return Asking(tmp_path)


def boxes(matrix: Any) -> dict[tuple[str, str], Any]:
    return {
        (line["label"], column): box[0]
        for line in matrix["rows"]
        for column, box in zip(matrix["columns"], line["boxes"], strict=True)
        if box
    }


def test_a_cell_is_one_column_by_its_name_and_counts_what_was_asked_for(tmp_path: Path) -> None:
    asking = served(tmp_path, two_cells())
    found = asking.told("/night", night="n2")
    assert found["columns"] == ["partition"]
    red = boxes(found)["mirrored · safe · sim · queue", "partition"]
    assert (red["counts"]["invalid"], red["counts"]["valid"], red["counts"]["again"]) == (1, 1, 4)
    assert red["status"] == "new"
    upstream = boxes(found)["mirrored · upstream · sim · queue", "partition"]
    assert (upstream["counts"]["invalid"], upstream["counts"]["expected"]) == (0, 1)
    assert upstream["status"] == "expected"
    page = asking.page("/night", night="n2")
    assert "1 of 2 invalid" in page and "1 not valid, as expected" in page
    assert asking.told("/nights")["nights"][0]["red_cells"] == 1
    cell = asking.told("/cell", cell=PARTITION)
    assert (cell["total"], cell["again"], cell["failing"][0]) == (2, 4, 0.5)
    assert [one["turn"] for one in cell["rows"]].count("first") == 2


def test_runs_of_no_matrix_are_a_cell_by_what_was_asked_for(tmp_path: Path) -> None:
    command = "shalott test --cluster sim --nemesis partition --seed {}"
    rows = [
        row(f"q/{n}", command=command.format(n), nemesis=[kind], seed=n, cluster="sim")
        for n, kind in enumerate(["partition-halves", "partition-one", "partition-isolate-master"])
    ]
    asking = served(tmp_path, rows)
    (night,) = asking.told("/nights")["nights"]
    assert night["cells"] == 1
    assert asking.told("/night", night=night["name"])["columns"] == ["partition"]


def test_invalid_runs_of_any_night_are_findings(tmp_path: Path) -> None:
    """Also of runs that no matrix made: the page has not only searches."""
    rows = two_cells()
    rows += [
        row(f"q/2{n}", valid="false", anomalies=LOST, headline=f"Invalid: {n} lost", seed=n,
            started_wall_ns=START_NS - 9 * DAY_NS, cluster="local", nemesis=["kill"])
        for n in range(12)
    ]  # fmt: skip
    found = served(tmp_path, rows).told("/findings")
    assert found["campaigns"] == []
    first, second = found["nights"]
    assert [(one["cell"], one["status"], one["kinds"]) for one in first["cells"]] == [
        (PARTITION, "new", {"new": ["lost"]})
    ]
    (only,) = second["cells"]
    assert (only["shown"]["k"], only["shown"]["n"], only["headline"]) == (12, 12, "Invalid: 0 lost")


def test_a_night_under_way_says_how_much_is_done(tmp_path: Path) -> None:
    kinds = ("lost", "dual-master-effective", "reordered")
    findings = tuple(
        Finding(status="known", cell=PARTITION, kind=kind, seeds=(1,), run="q/1",
                headline="Invalid: 3 lost", seen_in=("n1",), again=share(4, 4))
        for kind in kinds
    )  # fmt: skip
    night = summary(findings=findings, cells=(cell_summary(PARTITION, 3), cell_summary("x/y", 2)))
    asking = served(tmp_path, two_cells(), night)
    found = asking.told("/night")["found"]
    assert (found["ran"], found["planned"], found["statuses"]) == (12, 60, {"known": 1})
    (block,) = found["cells"]  # three kinds, one run, one block
    assert block["kinds"] == {"known": list(kinds)} and block["seen_in"] == ["n1"]
    page = asking.page("/night")
    assert "12 of 60 done" in page and "not over" in page and "2 of 3 done" in page
    assert ("x", "y") in boxes(asking.told("/night"))
    assert "not run yet" in page and asking.told("/cell", cell="x/y")["total"] == 0


def test_shards_of_one_night_are_one(tmp_path: Path) -> None:
    def shard(number: int, seed: int, status: str) -> NightSummary:
        one = Finding(status=status, cell=PARTITION, kind="lost", seeds=(seed,), shown=share(1, 2))
        return summary(findings=(one,), shards=(number,), of_shards=4, planned=5, ran=5, over=True)

    asking = served(tmp_path, two_cells(), shard(1, 1, "known"), shard(3, 7, "new"))
    found = asking.told("/night")["found"]
    assert (found["ran"], found["planned"], found["shards"]) == (10, 10, "1, 3 of 4")
    (block,) = found["cells"]
    assert block["status"] == "new" and sorted(block["seeds"]) == [1, 7]


def test_a_night_of_before_is_read_by_its_file(tmp_path: Path) -> None:
    """Its runs' tags do not say what is expected, and its cells' summaries no anomalies."""
    old = {k: v for k, v in msgspec.to_builtins(cell_summary(UPSTREAM, 1)).items() if v is not None}
    for name in ("anomalies", "must_find"):
        old.pop(name)
    old["expect"] = ["valid", "invalid"]
    told = msgspec.to_builtins(summary(over=True)) | {"cells": [old]}
    rows = [run_of(8, UPSTREAM, red=True, expect="", tags={"expect": ""})]
    asking = served(tmp_path, rows, msgspec.convert(told, NightSummary))
    counts = asking.told("/night")["counts"]
    assert (counts["invalid"], counts["expected"]) == (0, 1)


@pytest.mark.parametrize("data", [b"", b"{", b'{"night": 3}', b"[" * 10000, b"\xff"])
def test_a_summary_that_is_none_is_passed_over(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "_nights" / "n2").mkdir(parents=True)
    (tmp_path / "_nights" / "n2" / "summary.json").write_bytes(data)
    found = served(tmp_path, two_cells()).told("/night", night="n2")["found"]
    assert found["planned"] is None and found["statuses"] == {"new": 1}


def test_a_red_run_says_why_before_anything_else(client: Asking) -> None:
    page = client.page("/run", run=RED)
    assert page.index("12 acknowledged messages of orders are gone.") < page.index("shalott test")
    assert client.told("/run", run=GREEN)["why"]["evidence"] == []


@pytest.mark.parametrize(
    ("to", "path"), [("messages", "/run"), ("fault", "/run"), ("log", "/run")]
)  # fmt: skip
def test_what_can_not_be_found_leads_to_the_run(client: Asking, to: str, path: str) -> None:
    answer = client.get("/run/evidence", {"run": RED, "to": to})
    assert answer.status_code == 302 and answer.headers["location"].startswith(path)
    assert client.get("/run/evidence", {"run": RED, "to": "x"}).status_code == 400
    assert client.get("/run/evidence", {"run": "../x"}).status_code == 404


def test_a_second_is_found_in_a_log(client: Asking) -> None:
    """Lines without a time are no obstacle, and a log without any says so."""
    for seed in range(400):
        drawn = random.Random(seed)
        now, lines, times = 0, [], []
        for _ in range(drawn.randrange(40)):
            now += drawn.randrange(3)
            is_timed = drawn.random() < 0.7
            times.append(now if is_timed else None)
            lines.append(b"%12.6f n1 %s\n" % (now, b"x" * 60) if is_timed else b"  at java.x\n")
        wanted = drawn.randrange(now + 2)
        places = [sum(map(len, lines[:at])) for at in range(len(lines))]
        later = [p for p, at in zip(places, times, strict=True) if at is not None and at >= wanted]
        known = any(at is not None for at in times)
        expected = later[0] if later else sum(map(len, lines)) if known else None
        found = place_of_time(io.BytesIO(b"".join(lines)), wanted * 10**9, 0)
        assert found == expected, seed
    answer = client.page("/run/text", run=RED, file="log.txt", at_s="3.5")
    assert "No line says when it was written" in answer


@pytest.mark.parametrize(
    "line",
    [
        b"2026-11-15T10:13:21.500 n1 I shalott.broker: x\n",
        b"2026-11-15 10:13:21,500 INFO main - x\n",
        b"2026-11-15 11:13:21.500000+01:00 [info] <0.1> x\n",
        b'{"at_ns":9,"wall_ns":1794737601500000000,"node":"n1"}\n',
        b"    1.500000 n1#1 I shalott\n",
    ],
)
def test_times_are_read_as_brokers_write_them(line: bytes) -> None:
    start_ns = 1794737600000000000
    file = io.BytesIO(line)
    assert place_of_time(file, 1_400_000_000, start_ns) == 0
    assert place_of_time(file, 1_600_000_000, start_ns) == len(line)


DETAILS: list[dict[str, Any]] = [
    {"at_ns": 2**70}, {"at_ns": -5}, {"begin_ns": True}, {"nodes": [3]}, {"loss": {"by-cause": 3}},
    {"acknowledged-by": "../../etc"}, {"node": "n1", "at_ns": 10**9}, {"node": "<b>"},
]  # fmt: skip
FAULTS = [
    {"operation": "x"}, 3, {"operation": 10**30, "outcome": "effective"},
    {"operation": 5, "outcome": "effective", "name": "<b>x</b>"},
]  # fmt: skip


def unsummed(run: Path) -> Path:
    """Its results, which may be written anew: no sum says what they were."""
    (run / "SHA256SUMS").unlink()
    return run / "results.json"


def test_evidence_of_another_shape_breaks_no_page(tmp_path: Path) -> None:
    asking = Asking(make_store(tmp_path / "store"))
    path = unsummed(tmp_path / "store" / RED)
    noticed = {"checker": "noticed", "valid": True, "detail": {"faults": FAULTS, "summary": "<b>"}}
    for detail in DETAILS:
        for operations in ([], [0, 1, 2], [2**62], [-1]):
            told = json.loads(path.read_text())
            told["results"] = [*told["results"][:1], noticed]
            for each in told["results"][0]["anomalies"]:
                each |= {"detail": detail, "operations": operations}
            path.write_text(json.dumps(told))
            page = asking.page("/run", run=RED)
            assert "<b>" not in page and "12 acknowledged messages of orders" in page
            for to in ("messages", "fault", "log"):
                answer = asking.get("/run/evidence", {"run": RED, "to": to})
                assert answer.status_code == 302 and answer.headers["location"][:4] == "/run"


def test_evidence_leads_to_operations_fault_and_log(tmp_path: Path) -> None:
    asking = Asking(make_store(tmp_path / "store"))
    path = unsummed(tmp_path / "store" / RED)
    told = json.loads(path.read_text())
    detail = {"node": "n2", "at_ns": 9 * 10**9}
    told["results"][0]["anomalies"][0] |= {"detail": detail, "operations": [7, 8]}
    faults = [{"operation": 5, "outcome": "effective", "name": "1 kill n2"}]
    told["results"].append({"checker": "noticed", "valid": True, "detail": {"faults": faults}})
    path.write_text(json.dumps(told))
    (one,) = asking.told("/run", run=RED)["why"]["evidence"]
    assert (one["kind"], one["node"], one["at_s"], one["fault"]) == ("lost", "n2", 9.0, "1 kill n2")
    for to, wanted in (("messages", "op=7%2C8"), ("fault", "op=5"), ("log", "at_s=9.000")):
        answer = asking.get("/run/evidence", {"run": RED, "to": to, "kind": "lost"})
        place = answer.headers["location"]
        assert place.endswith(wanted), place
        assert asking.get(place).status_code == 200
    rows = asking.told("/run/history", run=RED, op="7,8")["rows"]
    assert [row["index"] for row in rows] == [7, 8]
    assert asking.get("/run/history", {"run": RED, "op": "7,x"}).status_code == 400
