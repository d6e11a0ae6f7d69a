"""Values of the wrong kind, in the wrong place: a sentence in the history's words, or a verdict,
but nothing of Python's."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from shalott.checkers.judge import JUDGES
from shalott.checkers.models import BUILT_IN
from shalott.harness.cli.main import run_command
from tests.checkers.public.written_histories import written_histories

pytestmark = pytest.mark.unit

STRANGE = (
    "nil", ":word", '"text"', "[]", "[1]", "[1 2]", "[1 2 3]", "[nil nil]", "#{1 2}", "{:a 1}",
    "{}", "1.5", "true", "1N", "3/4", "[[:r 1 nil]]", "[[:append 1 2]]", "{:a {:b #{[1 :c]}}}",
    "-1", "##NaN", '[:k "v"]',
)  # fmt: skip
INSIDES = re.compile(
    r"frozenset|ValueError|TypeError|KeyError|Assertion|None\b|\(\d+, |'[a-z]+',|Keyword|MapPairs"
    r"|EdnMap|object at 0x|Traceback|harness failed|\bTrue\b|\bFalse\b"
)
HISTORIES = list(written_histories())
VALUE = re.compile(r":value (.*?)(?=}\n|, :(?:error|time|index) )")


def strange(rng: random.Random) -> str:
    """A history of which some values are others."""
    text = rng.choice(HISTORIES).edn
    return VALUE.sub(
        lambda met: f":value {rng.choice(STRANGE)}" if rng.random() < 0.3 else met[0], text
    )


def told(path: Path, model: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = run_command(["check", str(path), *model, "--time-limit", "2s"])
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert code in (0, 1, 2, 254), said
    return said


@pytest.mark.parametrize("seed", range(60))
def test_no_message_shows_what_is_inside(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "history.edn"
    path.write_text(strange(rng))
    names = rng.sample([*BUILT_IN, *JUDGES], 4)
    for model in ([], *(["--model", name] for name in names)):
        said = told(path, model, capsys)
        found = INSIDES.search(said)
        assert found is None, f"{model}: {found and found[0]} in {said}\n{path.read_text()}"
