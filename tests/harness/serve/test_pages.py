"""What the pages of a store tell: asked as JSON where figures count, as pages where words do."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.serve.conftest import Asking
from tests.world.harness.served_store import (
    FINDING,
    GREEN,
    LIVE,
    LOG_LINES,
    NIGHTS,
    RED,
    row,
    write_table,
)

pytestmark = pytest.mark.unit


def runs_of(found: Any) -> list[str]:
    return [each["run"] for each in found["rows"]]


def test_the_newest_night_is_first_and_in_it_red_is(client: Asking) -> None:
    found = client.told("/runs")
    assert found["total"] == found["matching"] == 14
    assert runs_of(found)[:2] == ["night-3-a-kill/0", "night-3-a-kill/1"]
    assert runs_of(found)[-2:] == [GREEN, RED]  # a day's runs are behind those of later nights
    assert found["verdicts"] == {"invalid": 2, "unknown": 0, "no verdict": 0, "valid": 12}
    assert [each["run"] for each in found["live"]] == [LIVE]


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"verdict": "invalid"}, 2),
        ({"verdict": ["invalid", "valid"]}, 14),
        ({"nemesis": "pause"}, 6),
        ({"nemesis": ["pause", "partition"]}, 8),
        ({"anomaly": "lost"}, 1),
        ({"seed": "8"}, 1),
        ({"seed": "8", "verdict": "invalid"}, 0),
        ({"commit": "ABCDEF01"}, 14),
        ({"commit": "bcdef"}, 0),
        ({"text": "12 LOST"}, 1),
        ({"text": "partition"}, 2),
        ({"text": "Night-2"}, 4),
        ({"system": "dledger"}, 0),
        ({"night": "night-1"}, 4),
        ({"cell": "a/kill"}, 6),
        ({"cell": "mirrored/upstream/docker/queue/kill+partition"}, 2),
        ({"kind": "finding"}, 0),
        ({"text": ""}, 14),
    ],
)  # fmt: skip
def test_filters_narrow_and_their_values_are_alternatives(
    client: Asking, asked: dict[str, Any], count: int
) -> None:
    assert client.told("/runs", **asked)["matching"] == count


def test_other_orders_and_pages(client: Asking) -> None:
    assert runs_of(client.told("/runs", order="oldest"))[0] == RED
    assert runs_of(client.told("/runs", order="lost"))[0] == RED
    assert runs_of(client.told("/runs", order="slowest"))[0].endswith("/1")
    first, second = (client.told("/runs", rows=5, page=number) for number in (1, 2))
    assert first["pages"] == 3
    assert len({*runs_of(first), *runs_of(second)}) == 10
    assert client.told("/runs", rows=5, page=99)["page"] == 3


def test_the_list_is_a_page_with_its_filters_filled_in(client: Asking) -> None:
    text = client.page("/", text="lost", verdict="invalid")
    assert 'value="lost" data-search' in text
    assert 'value="invalid" checked' in text
    assert "1 of 14 runs" in text


def test_the_table_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    client = Asking(tmp_path)
    assert "There is no runs.parquet" in client.told("/runs")["notes"][0]
    write_table(tmp_path, [row("a/1")])
    assert runs_of(client.told("/runs")) == ["a/1"]
    write_table(tmp_path, [row("a/1"), row("a/2", valid="false")])
    assert runs_of(client.told("/runs")) == ["a/2", "a/1"]


def test_columns_of_another_version_lose_no_run(tmp_path: Path) -> None:
    found = pa.table({"run": ["a/1", "a/2", None], "seed": ["5", "x", "1"], "new": [1, 2, 3]})
    pq.write_table(found, tmp_path / "runs.parquet")
    listed = Asking(tmp_path).told("/runs")
    assert sorted(runs_of(listed)) == ["a/1", "a/2"]
    assert "seed" in listed["notes"][0]


def test_runs_that_the_table_lacks_are_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "results.json").write_text("{}")
    write_table(tmp_path, [row("runs/a")])
    notes = Asking(tmp_path).told("/runs")["notes"]
    assert "1 run is in the store and not in its table" in notes[0]


def test_a_night_is_a_matrix_with_what_its_cells_were(client: Asking) -> None:
    nights = client.told("/nights")["nights"]
    assert [each["name"] for each in nights][:3] == [*reversed(NIGHTS)]
    assert (nights[0]["cells"], nights[0]["red_cells"]) == (2, 1)
    found = client.told("/night")
    assert (found["night"], found["before"], found["after"]) == ("night-3", "night-2", "")
    assert found["columns"] == ["kill", "pause"]  # the reddest first
    ((cell,), (calm,)) = found["rows"][0]["boxes"]
    assert (cell["cell"], cell["counts"]["invalid"], cell["counts"]["valid"]) == ("a/kill", 1, 1)
    assert [each["night"] for each in cell["spark"]][-3:] == [*NIGHTS]
    assert [each["invalid"] for each in cell["spark"]][-3:] == [0, 0, 1]
    assert calm["counts"]["invalid"] == 0
    text = client.page("/night", night="night-3")
    assert "1 of 2 invalid" in text
    assert '<svg class="spark"' in text


def test_a_cell_has_its_nights_and_an_interval(client: Asking) -> None:
    found = client.told("/cell", cell="a/kill")
    assert found["total"] == 6
    share, low, high = found["failing"]
    assert share == pytest.approx(1 / 6)
    assert [round(each, 4) for each in (low, high)] == [0.0301, 0.5635]  # Wilson's of 1 of 6
    assert [each["counts"]["night"] for each in found["nights"]] == [*reversed(NIGHTS)]
    assert found["nights"][0]["latency_p99_ms"] == 10.5
    assert runs_of(found)[0] == "night-3-a-kill/0"


def test_a_run_tells_what_was_found_and_how_to_go_on(client: Asking) -> None:
    found = client.told("/run", run=RED)
    assert (found["verdict"], found["kept"], found["live"]) == ("invalid", True, False)
    lines = [each["line"] for each in found["commands"]]
    assert "shalott test --seed 7" in lines
    assert f"shalott test --plan store/{RED}/plan.json" in lines
    assert f"shalott shrink store/{RED}/plan.json" in lines
    assert f"shalott analyze store/{RED}" in lines
    assert "nodes/n1/broker.log" in [each["name"] for each in found["files"]]
    text = client.page("/run", run=RED)
    assert "12 acknowledged messages of orders are gone." in text
    assert 'sandbox="allow-scripts"' in text


def test_a_run_whose_directory_is_gone_is_still_told(client: Asking) -> None:
    found = client.told("/run", run="night-3-a-kill/0")
    assert (found["kept"], found["verdict"]) == (False, "invalid")
    assert "Its directory is gone" in client.page("/run", run="night-3-a-kill/0")


def test_a_finding_has_the_commands_for_its_minimal_plan(client: Asking) -> None:
    (campaign,) = client.told("/findings")["campaigns"]
    assert (campaign["ran"], campaign["wanted"], campaign["invalid"]) == (48, 50, 1)
    (finding,) = campaign["findings"]
    assert (finding["faults"], finding["minimal_faults"], finding["minimal_ms"]) == (4, 1, 3000)
    assert finding["classes"] == ["lost"]
    assert finding["command"] == f"shalott replay store/{FINDING}/minimal.json"
    assert client.told("/run/plan", run=FINDING, file="minimal.json")["version"] == "2"
    assert "48 of 50 seeds ran" in client.page("/findings")


def test_a_plan_is_shown_whole(client: Asking) -> None:
    found = client.told("/run/plan", run=RED)
    assert json.loads(found["text"])["name"] == "queue-mirrored-partition"
    assert [fault["kind"] for fault in found["faults"]][:2] == ["partition-isolate-master", "kill"]
    assert found["others"] == []


def test_a_history_is_filtered_and_paged(client: Asking) -> None:
    found = client.told("/run/history", run=RED, whose="clients", f="enqueue", type="ok")
    assert found["rows"]
    assert {(each["f"], each["type"]) for each in found["rows"]} == {("enqueue", "ok")}
    seen: list[int] = []
    at: int | None = 0
    while at is not None:
        part = client.told("/run/history", run=RED, at=at)
        seen += [each["index"] for each in part["rows"]]
        at = part["next"]
    assert seen == list(range(found["total"]))
    timed = client.told("/run/history", run=RED, from_s="8", to_s="9.5")
    assert all(8e9 <= each["invoke_ns"] <= 9.5e9 for each in timed["rows"])
    assert client.told("/run/history", run=RED, op=5)["rows"][0]["index"] == 5
    value = next(each["value"] for each in found["rows"] if each["value"])
    valued = client.told("/run/history", run=RED, value=value)["rows"]
    assert {each["value"] for each in valued} == {value}
    assert "partition-isolate-master" in client.page("/run/history", run=RED, whose="nemesis")


def test_the_history_of_a_live_run_is_what_was_recorded(client: Asking) -> None:
    found = client.told("/run/history", run=LIVE, type="fail")
    assert found["live"]
    assert found["total"] == 40
    assert {each["error"] for each in found["rows"]} == {"refused"}


def test_node_files_are_shown_and_searched(client: Asking) -> None:
    window = client.told("/run/text", run=RED, file="nodes/n1/broker.log")
    assert len(window["lines"]) == LOG_LINES
    assert (window["before"], window["next"]) == (None, None)
    found = client.told("/run/search", run=RED, text="PROMOTED itself")
    assert [hit["file"] for hit in found["hits"]] == ["nodes/n1/broker.log", "nodes/n2/broker.log"]
    assert found["whole"]
    begun = client.get("/api" + found["hits"][0]["href"]).json()
    assert begun["lines"][0]["text"] == "n1 promoted itself to master"
    pattern = client.told("/run/search", run=RED, text="^n[12] promoted", pattern=1)
    assert len(pattern["hits"]) == 2
    assert client.told("/run/search", run=RED, text="^n[12] promoted")["hits"] == []


def test_a_long_file_is_shown_in_whole_lines_in_both_directions(
    store: Path, client: Asking
) -> None:
    name = "nodes/n2/long.log"
    lines = [f"line {number} {'x' * 90}" for number in range(6000)]
    (store / RED / name).write_text("\n".join(lines))
    try:
        seen: list[str] = []
        at: int | None = 0
        while at is not None:
            window = client.told("/run/text", run=RED, file=name, at=at)
            seen += [line["text"] for line in window["lines"]]
            last, at = window, window["next"]
        assert seen == lines
        before = client.told("/run/text", run=RED, file=name, at=last["before"])
        assert before["lines"][0]["text"] in lines
        assert last["at"] - before["at"] <= 128 << 10
    finally:
        (store / RED / name).unlink()


def test_two_runs_are_compared(client: Asking) -> None:
    found = client.told("/compare", run=[RED, GREEN])
    paths = {each["path"]: (each["a"], each["b"]) for each in found["differences"]}
    assert paths["seed"] == ("7", "8")
    assert paths["faults[1].kind"] == ('"kill"', "absent")
    assert found["anomalies"] == [{"checker": "total-queue", "kind": "lost", "a": 1, "b": 0}]
    assert found["checkers"] == [{"checker": "total-queue", "a": "invalid", "b": "valid"}]
    text = client.page("/compare", run=[RED, GREEN])
    assert text.count('<section class="timeline"') == 2
    assert text.count('class="fault kill"') == 2  # the histories are one, so both show it
    assert client.get("/compare", {"run": [RED]}).status_code == 400


def test_a_zip_holds_every_file_as_it_is(store: Path, client: Asking) -> None:
    answer = client.get("/run/zip", {"run": RED})
    name = f"{RED.replace('/', '-')}.zip"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        found = {each.partition("/")[2]: archive.read(each) for each in archive.namelist()}
    own = [each for each in (store / RED).rglob("*") if each.is_file()]
    assert found == {str(each.relative_to(store / RED)): each.read_bytes() for each in own}


def test_files_are_sent_as_what_they_are_at_most(client: Asking) -> None:
    text = client.get("/run/raw", {"run": RED, "file": "report.html"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["content-security-policy"].startswith("sandbox;")
    kept = client.get("/run/raw", {"run": RED, "file": "history.parquet"})
    assert kept.headers["content-disposition"] == "attachment"
    assert kept.content[:4] == b"PAR1"
    head = client.get("/run/raw", {"run": RED, "file": "history.parquet"}, method="HEAD")
    assert int(head.headers["content-length"]) == len(kept.content)


def test_every_view_is_told_as_json_too(client: Asking) -> None:
    for path in ("/runs", "/nights", "/night", "/findings", "/live"):
        assert client.get(f"/api{path}").headers["content-type"] == "application/json"
    answer = client.get("/api/night?night=none")
    assert (answer.status_code, answer.json()) == (
        404,
        {"error": "There is no such night in this store."},
    )


def test_quoted_names_find_their_run(client: Asking) -> None:
    assert client.get(f"/api/run?run={quote(RED, safe='')}").status_code == 200
