"""Each mutant of tests/planted/mutants.py still says something about the sources as they are."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.planted.mutants import MUTANTS, SCENARIOS, Mutant, World
from tests.world.mutants import Edit, mutated_checkout

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_ten_at_least_and_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10
    assert {mutant.scenario for mutant in MUTANTS} == set(SCENARIOS)
    assert all(set(mutant.worlds) <= set(get_args(World)) for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_it_replaces_is_there_once_and_what_comes_of_it_compiles(mutant: Mutant) -> None:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text()
        texts[edit.file] = edit.applied_to(text)
    for file, text in texts.items():
        assert file.startswith("shalott/broker/")
        assert text != (ROOT / file).read_text()
        compile(text, file, "exec")


def test_a_text_that_is_gone_or_repeated_is_refused() -> None:
    for text in ("", "one one"):
        with pytest.raises(AssertionError, match="what is to be replaced"):
            Edit("shalott/broker/nodes.py", "one", "two").applied_to(text)


def test_the_copy_has_a_broker_of_its_own_and_shares_the_rest(tmp_path: Path) -> None:
    source = (ROOT / "shalott" / "broker" / "nodes.py").read_text()
    edit = (
        Edit("shalott/broker/nodes.py", '"""', '"""Broken. ') if source.count('"""') == 1 else None
    )
    first_line = source.splitlines()[0]
    edit = Edit("shalott/broker/nodes.py", first_line, f"# broken\n{first_line}")
    package = mutated_checkout((edit,), tmp_path) / "shalott"
    assert (package / "broker" / "nodes.py").read_text().startswith("# broken\n")
    assert (ROOT / "shalott" / "broker" / "nodes.py").read_text() == source
    assert (package / "checkers").resolve() == ROOT / "shalott" / "checkers"
    assert {each.name for each in package.iterdir()} >= {"harness", "cluster", "workloads"}
