"""What the operators offer of a function, and what a change leaves of it."""

from __future__ import annotations

import ast
import textwrap

import pytest

from shalott.harness.mutants.by_hand import CodeChange
from shalott.harness.mutants.mutant import Function, StaleMutant
from shalott.harness.mutants.operators import OPERATORS, OperatorChange

pytestmark = pytest.mark.unit

SOURCE = """
async def store(self, entry, mark):
    \"\"\"Keep it.\"\"\"
    if entry.index <= self.last:
        self.refused.append(entry)
        return None
    elif entry.term < self.term:
        log.info("old")
    else:
        self.term = entry.term
    await self.file.sync()
    await self.tell(mark)
    self.last = entry.index
    size = len(entry.data)
    total = size + mark
    return total
"""


def function_of(source: str) -> Function:
    (function,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(function, Function)
    return function


def offered(operator: str, source: str = SOURCE) -> list[str]:
    return [splice.breaks for splice in OPERATORS[operator](function_of(source))]


def changed(operator: str, number: int, source: str = SOURCE) -> list[str]:
    """The lines that are there no more (-) and those that are new (+)."""
    function = function_of(source)
    before = ast.unparse(function).splitlines()
    OperatorChange(operator, number).splice(function).perform(mark=False)
    after = ast.unparse(ast.fix_missing_locations(function)).splitlines()
    compile(ast.Module([function], []), "changed", "exec")
    gone = [f"-{line.strip()}" for line in before if line not in after]
    return gone + [f"+{line.strip()}" for line in after if line not in before]


def test_calls_are_dropped_that_do_more_than_speak_and_sync() -> None:
    assert offered("drop-call") == [
        "does not call `self.refused.append(entry)`",
        "does not call `self.tell(mark)`",
    ]
    assert changed("drop-call", 1) == ["-await self.tell(mark)"]


def test_a_sync_is_skipped() -> None:
    assert offered("skip-sync") == ["skips `self.file.sync()`"]
    assert changed("skip-sync", 0) == ["-await self.file.sync()"]


def test_what_is_not_awaited_is_begun_all_the_same() -> None:
    assert offered("drop-await") == [
        "does not wait for `self.file.sync()`",
        "does not wait for `self.tell(mark)`",
    ]
    assert changed("drop-await", 0) == [
        "-await self.file.sync()",
        "+__import__('asyncio').ensure_future(self.file.sync())",
    ]


def test_boundaries_are_moved_where_they_stand() -> None:
    assert offered("boundary") == [
        "has `entry.index < self.last` for `entry.index <= self.last`",
        "has `entry.term <= self.term` for `entry.term < self.term`",
    ]
    assert changed("boundary", 0) == [
        "-if entry.index <= self.last:",
        "+if entry.index < self.last:",
    ]
    chained = "def f(a, b):\n    return [c for c in a if 0 < c <= b]"
    assert offered("boundary", chained) == [
        "has `0 <= c <= b` for `0 < c <= b`",
        "has `0 < c < b` for `0 < c <= b`",
    ]


def test_either_branch_is_dropped() -> None:
    assert offered("drop-branch") == [
        "does nothing if `entry.index <= self.last`",
        "does nothing unless `entry.index <= self.last`",
        "does nothing if `entry.term < self.term`",
        "does nothing unless `entry.term < self.term`",
    ]
    assert changed("drop-branch", 3) == ["-else:", "-self.term = entry.term"]


def test_statements_are_swapped_unless_the_second_needs_the_first() -> None:
    assert offered("swap") == [
        "does `await self.tell(mark)` before `await self.file.sync()`",
        "does `self.last = entry.index` before `await self.tell(mark)`",
        "does `size = len(entry.data)` before `self.last = entry.index`",
    ]
    function = function_of(SOURCE)
    OperatorChange("swap", 0).splice(function).perform(mark=False)
    lines = [line.strip() for line in ast.unparse(function).splitlines()]
    assert lines.index("await self.tell(mark)") < lines.index("await self.file.sync()")


def test_what_is_remembered_is_forgotten_but_not_at_birth() -> None:
    assert offered("forget") == [
        "forgets `self.term = entry.term`",
        "forgets `self.last = entry.index`",
    ]
    assert offered("forget", "def __init__(self):\n    self.last = 0") == []


def test_a_place_that_is_gone_is_refused() -> None:
    with pytest.raises(StaleMutant, match="1 places for skip-sync only"):
        OperatorChange("skip-sync", 1).splice(function_of(SOURCE))


# -- by hand ---------------------------------------------------------------------------------------


def by_hand(before: str, after: str) -> str:
    function = function_of(SOURCE)
    CodeChange(before, after).splice(function).perform(mark=False)
    return ast.unparse(function)


def test_statements_or_an_expression_are_exchanged_where_they_stand_once() -> None:
    unsynced = by_hand("await self.file.sync()\nawait self.tell(mark)", "await self.tell(mark)")
    assert "file.sync" not in unsynced
    assert "await self.tell(mark)" in unsynced
    assert "elif entry.term <= self.term:" in by_hand(
        "entry.term < self.term", "entry.term <= self.term"
    )


@pytest.mark.parametrize(
    ("before", "times"), [("entry.index", 2), ("self.gone()", 0), ("self.last = 0", 0)]
)
def test_what_is_not_there_exactly_once_is_refused(before: str, times: int) -> None:
    with pytest.raises(StaleMutant, match=f"is there {times} times"):
        by_hand(before, "entry.position")
