"""docs/evidence/seed-coverage.md: each item of mirrored queues is done, by tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import DOCS
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

ITEMS = range(1, 77)
PAGE = DOCS / "evidence" / "seed-coverage.md"


@cache
def modules_with_tests() -> dict[str, dict[str, bool]]:
    """Module -> test -> whether it asserts something, itself or by what it calls."""
    found: dict[str, dict[str, bool]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        module = found.setdefault(path.stem, {})
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                module[node.name] = any(
                    isinstance(each, ast.Assert | ast.Call) for each in ast.walk(node)
                )
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("Test"):
                module[ast.unparse(node.targets[0])] = True  # a state machine's
    return found


def status_of_items() -> dict[int, str]:
    rows = (re.split(r"(?<!\\)\|", line) for line in PAGE.read_text().splitlines())
    items = {
        int(row[1]): row[4].strip() for row in rows if len(row) > 4 and row[1].strip().isdigit()
    }
    return {number: items[number] for number in ITEMS}


def named_tests(status: str) -> list[str]:
    return re.findall(r"`((?:tests/|test_)[^`]+)`", status)


def exists(name: str) -> bool:
    """``name``: a folder, a module, a test, or a test of a module; … is any letters."""
    if name.startswith("tests/"):
        return any((ROOT / name).glob("test_*.py"))
    modules = modules_with_tests()
    module, _, test = name.partition(".")
    if not test and module in modules:
        return any(modules[module].values())
    pattern = re.compile((test or module).replace("…", ".*"))
    looked_at = [modules.get(module, {})] if test else list(modules.values())
    return any(
        asserts and pattern.fullmatch(each)
        for tests in looked_at
        for each, asserts in tests.items()
    )


@pytest.mark.parametrize("item", ITEMS)
def test_an_item_is_done_by_tests_that_are_there(item: int) -> None:
    status = status_of_items()[item]
    assert status.startswith("done"), status
    names = named_tests(status)
    assert names, "it names no test"
    assert [name for name in names if not exists(name)] == []


def test_a_test_that_is_gone_is_missed() -> None:
    assert exists("test_seed_coverage.test_a_test_that_is_…")
    assert not exists("test_seed_coverage.test_that_never_was")
    assert not exists("test_api.test_policies_are_set_listed_replaced_and_cleared")
    assert not exists("test_that_never_was")
