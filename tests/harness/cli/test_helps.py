"""Helps fit a screen, and numbers in them are what users type."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from shalott.harness.cli.commands import COMMANDS, _command
from shalott.harness.cli.main import run_command
from shalott.harness.cli.reference import PAGES

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """What typer made of commands here is not what other tests are to find."""
    yield
    _command.cache_clear()


LINES_MAX = 45
NOISE = re.compile(r"RANGE|(?<![\d.])\d+\.0\b(?!\.\d)|\[default: \(")


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "100")
    assert run_command(words) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_help_fits_a_screen(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(monkeypatch, capsys, *filter(None, (command, "--help")))
    assert len(lines) <= LINES_MAX
    assert not any(NOISE.search(line) for line in lines)


def test_the_help_of_test_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(shown(monkeypatch, capsys, "test", "--help"))
    for more in ("shalott test --help-all", "shalott systems NAME", "shalott workloads", "faults"):
        assert more in text
    for common in ("--system", "--nemesis", "--time-limit", "--cluster", "--seed", "--workload"):
        assert common in text


@pytest.mark.parametrize("command", ["test", "search", "up", "node"])
def test_all_options_are_in_help_all(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(monkeypatch, capsys, command, "--help-all")
    text = " ".join(lines)
    assert "--partition-mode" in text and "WORD" in text
    assert not any(NOISE.search(line) for line in lines)


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_integers_as_integers(page: str) -> None:
    text = PAGES[page]()
    assert not re.search(r"`[^`\d.]*\d+\.0`", text)
