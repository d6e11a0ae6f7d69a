"""The mutants that there are: each still fits the sources, and changes what it says."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from shalott.core.errors import UsageError
from shalott.harness.mutants.catalogue import CORE, WRITTEN, core_modules, drawn, find_mutants
from shalott.harness.mutants.mutant import Mutant, parse_module, source_path
from shalott.harness.mutants.operators import OPERATORS
from shalott.harness.search.changed_code import ENTERED, put_in_force

pytestmark = pytest.mark.unit

MUTANT = "controller/rocket.autoswitch.epochs/without_suffix/by-hand/empty-epoch-kept"


def test_there_are_sixty_at_least_and_names_are_unique() -> None:
    counted = Counter(mutant.system for mutant in WRITTEN if not mutant.equivalent)
    assert set(counted) == set(CORE)
    assert min(counted.values()) >= 15
    assert counted.total() >= 60
    assert len({mutant.name for mutant in WRITTEN}) == len(WRITTEN)


@cache
def text_as_it_is(module: str) -> str:
    return ast.unparse(parse_module(module))


def assert_changes_something(mutant: Mutant) -> None:
    change = mutant.changed()
    compile(change.tree, change.path, "exec")
    lines = ast.unparse(change.tree).splitlines()
    unmarked = [line for line in lines if line.strip() != f"{ENTERED}()"]
    assert len(lines) - len(unmarked) == bool(mutant.function), mutant.name
    assert unmarked != text_as_it_is(mutant.module).splitlines(), mutant.name


@pytest.mark.parametrize("mutant", WRITTEN, ids=lambda mutant: mutant.name)
def test_what_it_changes_is_there_once_and_what_comes_of_it_compiles(mutant: Mutant) -> None:
    assert_changes_something(mutant)
    assert mutant.breaks[0].islower()
    assert not mutant.breaks.endswith(".")


@pytest.mark.parametrize("system", CORE)
def test_every_operator_finds_places_in_the_core(system: str) -> None:
    modules = list(core_modules(system))
    assert len(modules) > 10
    for operator in OPERATORS:
        made = find_mutants(system, "", operator)
        assert len({mutant.name for mutant in made}) == len(made)
        for mutant in (made[0], made[len(made) // 2], made[-1]):
            assert_changes_something(mutant)


def test_mutants_are_found_by_system_part_of_a_name_and_pattern() -> None:
    assert [one.name for one in find_mutants("", "empty-epoch")] == [MUTANT]
    assert {one.system for one in find_mutants("dledger")} == {"dledger"}
    assert {one.module for one in find_mutants("", "*/raft.log/*", "boundary")} == {"raft.log"}
    for wrong in (("nats", "", ""), ("", "no-such", ""), ("", "", "drop-everything")):
        with pytest.raises(UsageError):
            find_mutants(*wrong)


def test_those_drawn_first_are_a_sample_that_more_mutants_do_not_change() -> None:
    few, many = drawn(WRITTEN[::2]), drawn(WRITTEN)
    assert [one for one in many if one in few] == list(few)
    assert len({one.system for one in many[:20]}) == len(CORE)


# -- in force --------------------------------------------------------------------------------------

CHILD = """
import pickle, sys
from pathlib import Path
from shalott.harness.search.changed_code import entered, put_in_force
put_in_force((pickle.loads(Path(sys.argv[1]).read_bytes()),))
from shalott.broker.rocket.autoswitch import epochs, packets
entries = (packets.EpochStart(1, 0), packets.EpochStart(2, 10))
assert entered.total == 0
print(len(epochs.without_suffix(entries, 10)), entered.total)
print(len(epochs.without_epochs(entries, 2)), entered.total)
print(epochs.__file__, epochs.without_suffix.__code__.co_firstlineno)
"""


def test_a_process_has_the_changed_function_and_all_else_as_it_is(tmp_path: Path) -> None:
    (mutant,) = find_mutants("", MUTANT)
    path = source_path(mutant.module)
    before = path.read_bytes()
    change = tmp_path / "change"
    change.write_bytes(pickle.dumps(mutant.changed()))
    told = subprocess.run(
        [sys.executable, "-c", CHILD, str(change)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert told[:2] == ["2 1", "1 1"]  # the code as it is says 1 and 1, and enters nothing
    line = next(
        node.lineno
        for node in parse_module(mutant.module).body
        if isinstance(node, ast.FunctionDef) and node.name == "without_suffix"
    )
    assert told[2] == f"{path} {line}"
    assert path.read_bytes() == before


def test_a_module_that_is_there_already_is_refused() -> None:
    (mutant,) = find_mutants("", MUTANT)
    import_first = mutant.changed().name
    __import__(import_first)
    with pytest.raises(ImportError, match="was imported before it could be changed"):
        put_in_force((mutant.changed(),))
