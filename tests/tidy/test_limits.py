"""Signatures, classes, words, types and imports keep to the limits, and each rule can fail."""

from __future__ import annotations

import pytest

from tests.tidy.late_imports import LATE_IMPORTS
from tests.tidy.limits import (
    ANY_MAX,
    LIMITS,
    METHODS_MAX,
    PARAMETERS_MAX,
    any_by_room,
    late_imports,
)
from tests.tidy.sources import PACKAGES, package_sources, parse

pytestmark = pytest.mark.lint

SIGNATURE = ", ".join(f"a{number}" for number in range(PARAMETERS_MAX))
METHODS = "".join(f"    def m{number}(self): ...\n" for number in range(METHODS_MAX))


@pytest.mark.parametrize("rule", LIMITS)
def test_the_packages_keep_to_the_limits(rule: str) -> None:
    found = [line for source in package_sources() for line in LIMITS[rule](source)]
    assert not found, "\n" + "\n".join(found)


def test_any_stands_only_where_foreign_data_enters() -> None:
    """A number that is too high is lowered, so that what was won is kept."""
    found = any_by_room([*package_sources()])
    assert sorted(ANY_MAX) == sorted(PACKAGES)
    assert sum(ANY_MAX.values()) <= 300
    assert {room: found[room] for room in ANY_MAX} == dict(ANY_MAX)


def test_imports_within_functions_are_the_listed_ones() -> None:
    found = {
        (source.path.removeprefix("shalott/"), module): f"{source.path}:{line}: import {module}"
        for source in package_sources()
        for line, module in late_imports(source)
    }
    listed = {(file, module) for file, modules in LATE_IMPORTS.items() for module in modules}
    unlisted = sorted(where for key, where in found.items() if key not in listed)
    assert not unlisted, "\n" + "\n".join(unlisted)
    assert sorted(listed - found.keys()) == []


@pytest.mark.parametrize(
    ("rule", "text", "complaint"),
    [
        ("signatures", f"def f({SIGNATURE}, b): ...\n", "f has 9 parameters"),
        ("signatures", f"class A:\n    def f(self, {SIGNATURE}, *, b): ...\n", "f has 9"),
        ("signatures", f"async def f({SIGNATURE}, **more): ...\n", "f has 9 parameters"),
        ("classes", f"class A:\n{METHODS}    async def one(self): ...\n", "A has 23 methods"),
        ("riddles", "def f():\n    '''Tells whoever asks.'''\n", "whoever: say who"),
        ("riddles", "x = 1  # Somebody may ask\n", "Somebody: say who"),
    ],
)
def test_what_passes_a_limit_is_found(rule: str, text: str, complaint: str) -> None:
    (found,) = LIMITS[rule](parse("shalott/core/op.py", text))
    assert complaint in found


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("signatures", f"class A:\n    def f(self, {SIGNATURE}): ...\n"),
        ("classes", f"class A:\n{METHODS}    x = 1\n"),
        ("riddles", "x = 'whatever'\n"),
        ("names", "x = 1\n"),
    ],
)
def test_what_keeps_to_a_limit_is_not(rule: str, text: str) -> None:
    assert list(LIMITS[rule](parse("shalott/core/op.py", text))) == []


def test_a_file_name_that_tells_little_is_found() -> None:
    assert len(list(LIMITS["names"](parse("shalott/cluster/told.py", "")))) == 1


def test_imports_and_any_are_counted() -> None:
    text = "from typing import Any\n\ndef f(x: Any):\n    import json\n    from os import path\n"
    source = parse("shalott/core/op.py", text)
    assert any_by_room([source]) == {"core": 2}
    assert [module for _, module in late_imports(source)] == ["json", "os"]
