"""examples/analysis.ipynb runs from its top to its end, and its three engines agree."""

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
    for needed in ("ipykernel", "duckdb", "polars", "pyspark"):
        pytest.importorskip(needed)
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("there is no Java")
    monkeypatch.delenv("SHALOTT_RUN", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
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
