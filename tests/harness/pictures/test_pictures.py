"""The pictures of a run and of a night: made as files, they say what is true, in their colours."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from shalott.harness.cli.main import run_command
from shalott.harness.report.results import read_results
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.run import RunContext
from shalott.harness.run.session import perform
from shalott.harness.run.store import RunDirectory
from shalott.harness.store.columns import RUNS_SCHEMA, Row

mpl = pytest.importorskip("matplotlib", reason="pictures need matplotlib")
from matplotlib.image import imread  # noqa: E402

from shalott.harness.pictures.night_picture import COLOURS, night_picture  # noqa: E402
from shalott.harness.pictures.run_pictures import (  # noqa: E402
    BAND,
    LOST,
    OK,
    acknowledged,
    counted_lost,
    lost_picture,
)

REQUEST = Request(
    system="controller",
    nemesis="partition-isolate-master",
    time_limit="15",
    rate=40,
    nemesis_interval="6",
    nemesis_duration="3",
)


def texts(svg: Path) -> str:
    """The words that stand in a picture as words."""
    root = ET.parse(svg).getroot()
    return "\n".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text"))


def check_png(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG")
    height, width, _ = imread(path).shape
    assert width > 1000 and height > 400


@pytest.mark.sim
def test_a_run_that_lost_messages_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(REQUEST, backend="sim", seed=2)
    outcome, _ = perform(plan, Path("store"), RunContext(command=""))
    assert run_command(["pictures", "--out", "drawn"]) == 0
    names = ["availability.svg", "availability.png", "lost.svg", "lost.png"]
    assert capsys.readouterr().out.split() == [f"drawn/{name}" for name in names]
    drawn = tmp_path / "drawn"
    for name in names:
        if name.endswith("png"):
            check_png(drawn / name)
    served, lost = (drawn / "availability.svg"), (drawn / "lost.svg")
    assert "1 partition-isolate-master n" in texts(served)
    assert "operations a second" in texts(served)
    assert BAND in served.read_text() and OK in served.read_text()
    count = counted_lost(read_results(outcome.directory.path / "results.json"))
    assert count and f"{count} of " in texts(lost)
    assert LOST in lost.read_text()
    assert {"offset in the log", "acknowledged by", "n1", "n2", "n3"} <= {*texts(lost).split("\n")}
    before = lost.read_bytes()
    assert run_command(["pictures", "--out", "drawn", "--format", "svg"]) == 0
    assert lost.read_bytes() == before
    _check_what_is_drawn(outcome.directory)


def _check_what_is_drawn(directory: RunDirectory) -> None:
    history, results = directory.load_history(), read_results(directory.path / "results.json")
    acked = acknowledged(history)
    assert acked.is_offset and int(acked.is_lost.sum()) == counted_lost(results)
    # The node that answered, not the one that the client talked to.
    assert {*acked.by} < {"n1", "n2", "n3"}
    plan = directory.load_plan()
    assert lost_picture(plan, history, results) is not None
    doubtful = msgspec.structs.replace(results, results=())
    assert lost_picture(plan, history, doubtful) is None


def table(rows: Sequence[tuple[str, str, str | None, str]]) -> pa.Table:
    """Runs: profile, fault, verdict, night."""
    known: Row = dict.fromkeys(RUNS_SCHEMA.names)
    known |= dict.fromkeys(("cell", "campaign"), "") | {"kind": "run", "system": "mirrored"}
    known |= {"unreadable": [], "files_changed_ns": 0, "schema_version": 1}
    made = [
        {**known, "run": str(n), "profile": p, "nemesis": [f] if f else [], "valid": v, "night": t}
        for n, (p, f, v, t) in enumerate(rows)
    ]
    return pa.Table.from_pylist(made, schema=RUNS_SCHEMA)


@pytest.mark.unit
def test_a_night_is_a_map_of_its_own_runs(tmp_path: Path) -> None:
    runs = table(
        [
            ("safe", "kill", "false", "monday"),
            ("safe", "kill", "true", "tuesday"),
            ("upstream", "kill", "true", "tuesday"),
            ("upstream", "kill", "false", "tuesday"),
            ("upstream", "pause", "unknown", "tuesday"),
            ("upstream", "", None, "tuesday"),
        ]
    )
    figure = night_picture(runs)
    assert figure is not None
    path = tmp_path / "night.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path)
    words = texts(path).split("\n")
    assert "1 of 4 runs were invalid" in " ".join(words) and "the night tuesday" in words
    assert {"mirrored safe", "mirrored upstream", "kill", "pause"} <= {*words}
    assert {"0/1", "1/2", "valid", "unknown", "invalid"} <= {*words}
    assert all(colour in path.read_text() for colour in COLOURS)
    assert night_picture(table([("safe", "kill", None, "")])) is None


@pytest.mark.unit
def test_a_run_of_a_night_stands_in_its_cell_once() -> None:
    """Whatever faults were drawn for it, and however often it was repeated since it failed."""
    rows = table([("safe", fault, "false", "monday") for fault in ("kill", "pause", "kill")])
    rows = rows.set_column(
        rows.schema.get_field_index("cell"),
        RUNS_SCHEMA.field("cell"),
        pa.array(["mirrored/safe/sim/queue/partition"] * 3),
    ).set_column(
        rows.schema.get_field_index("tags"),
        RUNS_SCHEMA.field("tags"),
        pa.array(['{"turn":"1"}', '{"turn":"2"}', '{"turn":"again 1"}']),
    )
    figure = night_picture(rows)
    assert figure is not None
    (axes,) = figure.axes
    assert [each.get_text() for each in axes.get_xticklabels()] == ["partition"]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["mirrored safe sim queue"]
    assert "2/2" in [each.get_text() for each in axes.texts]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--format", "gif"], "unknown format gif: choose one of svg, png"),
        (["nothing"], "there is no run nothing in store"),
        (["."], "no run in . has a verdict: there is nothing to draw"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["pictures", *words]) == 254
    assert sentence in capsys.readouterr().err
