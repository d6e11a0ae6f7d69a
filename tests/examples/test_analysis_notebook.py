"""examples/analysis.ipynb runs to its end, its engines agree, and `shalott report` with them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "analysis.ipynb"
QUESTIONS = ("lost", "unavailable", "acknowledged by", "latency", "dual masters")

COLUMNS = (
    ("fault", "place", "lost"),
    ("fault", "kind", "longest_ns"),
    ("who", "lost"),
    ("phase", "operations", "p50_ns", "p99_ns"),
    ("group", "node", "other", "both_ns"),
    ("of this run", "shalott report", "DuckDB"),
)
PICTURED = (
    ("operations a second", "fault", " 1 partition-isolate-master n2"),
    ("offset in the log", "acknowledged by", "lost"),
    ("controller safe sim log", "controller upstream sim log", "invalid"),
)


@pytest.mark.unit
def test_it_is_kept_without_outputs() -> None:
    """They would be as old as the last hand that ran it, and are made by the test below."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "".join(cells[0]["source"]).startswith("# Five questions")
    asked = "".join("".join(cell["source"]) for cell in code)
    assert re.findall(r'agree\(\s*"([^"]+)"', asked) == list(QUESTIONS)


@pytest.mark.spark
@pytest.mark.nightly("it makes a run and starts a JVM of its own")
@pytest.mark.timeout(900)
def test_it_runs_and_the_answers_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat: Any = pytest.importorskip("nbformat")
    nbclient: Any = pytest.importorskip("nbclient")
    for needed in ("ipykernel", "duckdb", "polars", "pyspark", "matplotlib"):
        pytest.importorskip(needed)
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("there is no Java")
    monkeypatch.delenv("SHALOTT_RUN", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    told = "import json; print(json.dumps({name: len(rows) for name, rows in MESSAGES.items()}))"
    notebook.cells.append(nbformat.v4.new_code_cell(told))
    client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    said = "".join(
        output.get("text", "") for output in notebook.cells[-1].outputs if output.name == "stdout"
    )
    rows = json.loads(said)
    assert tuple(rows) == QUESTIONS
    assert all(rows.values()), "each question has an answer in that run"
    check_what_is_shown(notebook)


def check_what_is_shown(notebook: Any) -> None:
    """Columns have names, the report stands beside DuckDB, and there are pictures."""
    data = [
        output["data"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    tables = ["".join(each["text/plain"]) for each in data if "text/html" in each]
    assert len(tables) == len(QUESTIONS) + 1
    assert not any("column_" in table for table in tables)
    for question, table in zip(COLUMNS, tables, strict=True):
        assert all(f" {column} " in table for column in question), table
    drawn = ["".join(each["image/svg+xml"]) for each in data if "image/svg+xml" in each]
    for words, picture in zip(PICTURED, drawn, strict=True):
        assert all(f">{word}" in picture for word in words), picture[:2000]
