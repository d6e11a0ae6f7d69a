"""`shalott bugs --original`: what is refused, and the document without a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from shalott.core.plan import load_plan
from shalott.harness.cli.main import run_command
from shalott.harness.originals.document import DOCUMENT, LADDER, PLANS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--bug", "KB-RKT-02"), "shalott: KB-RKT-02 has no plan: it waits for no release"),
        (("--bug", "KB-RKT-177"), "did you mean KB-RKT-17"),
        (("--version", "5.1.2"), "shalott: --version 5.1.2: there are 4.9.4, 4.9.7, 5.0.0"),
        (("--repeat", "0"), "shalott: --repeat 0: give 1 or more"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    words: Sequence[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bugs", "--original", "--out", str(tmp_path), *words]) == 254
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_document_is_written_without_a_run(tmp_path: Path) -> None:
    assert run_command(["bugs", "--original", "--document", "--out", str(tmp_path)]) == 0
    assert "Decided on real releases: 0" in (tmp_path / DOCUMENT).read_text()
    for row in LADDER:
        path = tmp_path / PLANS / f"{row.id.lower()}.json"
        assert path.exists() == (row.setup is not None)
        if row.setup is not None:
            assert load_plan(path).system.name == "rocketmq"
