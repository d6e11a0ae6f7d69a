"""What README and docs show as printed is printed.

A fenced block of the language ``console`` has commands after ``$ ``, which may go on after a
backslash, and what each prints on its standard output. ``...`` stands for any lines. Times of runs,
digests and numbers of callbacks are not compared: they change with the day and the Python version.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.end_to_end.runs import ROOT, shalott

pytestmark = pytest.mark.sim

DOCUMENTS = (
    *("README.md", "docs/evidence/loss-windows.md"),
    "docs/getting-started/break-our-cluster.md",
)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY = "..."


class Shown(NamedTuple):
    """A command and the lines that a document shows below it."""

    command: str
    lines: tuple[str, ...]


def shown(text: str) -> Iterator[Shown]:
    """Every command of a text's console blocks."""
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield Shown(" ".join(command.split()), tuple(lines))


def differs(expected: tuple[str, ...], printed: str) -> bool:
    """Whether what was printed does not match, line by line."""
    parts = (
        r"(?:.*\n)*?" if line == ANY else re.escape(normalised(line)) + r"\n" for line in expected
    )
    return re.fullmatch("".join(parts), normalised(printed)) is None


def normalised(printed: str) -> str:
    text = re.sub(r"\b\d{8}T\d{6}\.\d{3}Z", "TIME", printed)
    return re.sub(r"Digest: [0-9a-f]{32} \([\d,]+ callbacks", "Digest: DIGEST (N callbacks", text)


def everything_shown() -> list[Shown]:
    found = [each for name in DOCUMENTS for each in shown((ROOT / name).read_text())]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("example", everything_shown(), ids=lambda example: example.command[:60])
def test_a_document_shows_what_is_printed(example: Shown, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    program, *arguments = shlex.split(example.command)
    assert program == "shalott"
    done = shalott(arguments, tmp_path)
    assert not differs(example.lines, done.stdout), f"{example.command} printed:\n{done.stdout}"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("README.md", "replay docs/plans/two-masters.json"),
        ("docs/getting-started/break-our-cluster.md", "--profile safe"),
    ],
)
def test_newcomers_are_shown_the_replay_and_the_safe_profile(page: str, words: str) -> None:
    commands = [example.command for example in shown((ROOT / page).read_text())]
    assert any(words in command for command in commands)


@pytest.mark.parametrize(
    ("lines", "printed", "expected"),
    [
        (("Invalid: 38 lost.",), "Invalid: 38 lost.\n", False),
        (("Invalid: 40 lost.",), "Invalid: 38 lost.\n", True),
        ((ANY, "Valid.", ANY), "boot\nValid.\n", False),
        (("Valid.",), "boot\nValid.\n", True),
        (("store/20261122T000000.000Z/x",), "store/20261122T204857.175Z/x\n", False),
        (
            (f"Digest: {'a1' * 16} (1 callbacks)",),
            f"Digest: {'0f' * 16} (2,000 callbacks)\n",
            False,
        ),
        (("Valid.", "more"), "Valid.\n", True),
    ],
)
def test_a_difference_is_seen(lines: tuple[str, ...], printed: str, expected: bool) -> None:
    assert differs(lines, printed) is expected


def test_commands_go_on_after_a_backslash() -> None:
    text = "```console\n$ shalott test \\\n    --seed 2\nValid.\n$ shalott clean\n```\n"
    assert list(shown(text)) == [
        Shown("shalott test --seed 2", ("Valid.",)),
        Shown("shalott clean", ()),
    ]
