"""Commands that documents type do what they say: see documented_commands.py."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.documented_commands import (
    BEFORE,
    DOCUMENT,
    SHOWN,
    Documented,
    document,
    documented,
)
from tests.docs.pages import first_block
from tests.end_to_end.runs import ROOT, shalott
from tests.end_to_end.test_shown_output import DOCUMENTS

HERE = [each for each in documented() if not each.test]
NIGHT = pytest.mark.nightly("all that documents type, as they type it")


@pytest.mark.unit
def test_every_command_is_run_by_a_test_that_is_there() -> None:
    assert len(documented()) > 80
    for each in documented():
        file, _, name = each.test.partition("::")
        if each.test:
            assert not name or f"def {name}(" in (ROOT / file).read_text(), each
            assert (ROOT / file).is_file(), each
        else:
            assert each.words[0] == "shalott", f"{each}: name the test that does it"


@pytest.mark.unit
def test_the_list_is_the_document() -> None:
    assert DOCUMENT.read_text().splitlines() == list(document()), (
        "write it anew: python -m tests.docs.documented_commands"
    )


@pytest.mark.unit
def test_every_page_with_console_blocks_is_compared() -> None:
    assert {each.page for each in documented() if each.test == SHOWN} == set(DOCUMENTS)


def of_pages(world: str, *, nightly: bool) -> dict[str, list[Documented]]:
    """The commands of each page that run in one tier."""
    found: defaultdict[str, list[Documented]] = defaultdict(list)
    for each in HERE:
        if (each.world, each.is_nightly) == (world, nightly):
            found[each.page].append(each)
    return dict(found)


JUDGES = ("test", "replay", "search", "analyze", "matrix", "check", "shrink")


def run_all(commands: list[Documented], place: Path) -> None:
    """One after the other, as a reader of the page does who saved its TOML. A run may be invalid
    unless its settings promise that nothing is lost; no command may be refused or fail."""
    page = commands[0].page
    for name in ("docs", "examples"):
        (place / name).symlink_to(ROOT / name)
    (place / "night.toml").write_text(first_block(ROOT / page, "toml"))
    for words in BEFORE.get(page, ()):
        shalott(words.split()[1:], place)
    for each in commands:
        done = shalott(each.words[1:], place)
        may_lose = each.words[1] in JUDGES and "--profile safe" not in each.command
        assert done.exit_code in ((0, 1) if may_lose else (0,)), (each, done.stdout, done.stderr)


@pytest.mark.sim
@pytest.mark.parametrize("page", of_pages("sim", nightly=False))
def test_commands_of_a_page(page: str, tmp_path: Path) -> None:
    run_all(of_pages("sim", nightly=False)[page], tmp_path)


@pytest.mark.sim
@NIGHT
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("page", of_pages("sim", nightly=True))
def test_long_commands_of_a_page(page: str, tmp_path: Path) -> None:
    run_all(of_pages("sim", nightly=True)[page], tmp_path)


@pytest.mark.local
@NIGHT
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", of_pages("local", nightly=True))
def test_commands_of_a_page_on_processes(page: str, tmp_path: Path) -> None:
    run_all(of_pages("local", nightly=True)[page], tmp_path)


@pytest.mark.docker
@NIGHT
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("page", of_pages("docker", nightly=True))
def test_commands_of_a_page_in_containers(page: str, tmp_path: Path) -> None:
    run_all(of_pages("docker", nightly=True)[page], tmp_path)
