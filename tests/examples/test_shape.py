"""The example is as small as it says, and keeps to what is public."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "shalott_registers"

# Lines that are not blank: imports, docstrings and comments count.
LONGEST = {
    ("crash_loop.py",): 40,
    ("etcd.py", "client.py", "images/etcd/Dockerfile"): 290,
    ("toy.py", "toy_node.py"): 205,
}


@pytest.mark.parametrize("files", LONGEST, ids=" ".join)
def test_no_part_is_longer_than_it_may_be(files: tuple[str, ...]) -> None:
    lines = [line for name in files for line in (EXAMPLE / name).read_text().splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= LONGEST[files]


def private_names(source: str) -> list[str]:
    """What is imported of ours, or asked of what was imported, under a name that begins with _."""
    found: list[str] = []
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.ImportFrom):
            names = [*str(each.module).split("."), *(alias.name for alias in each.names)]
        elif isinstance(each, ast.Import):
            names = [part for alias in each.names for part in alias.name.split(".")]
        elif isinstance(each, ast.Attribute):
            is_own = isinstance(each.value, ast.Name) and each.value.id == "self"
            names = [] if is_own else [each.attr]
        else:
            continue
        found += [name for name in names if name.startswith("_") and name != "__future__"]
    return [name for name in found if not name.startswith("__")]


def test_nothing_private_is_used() -> None:
    found = {path.name: private_names(path.read_text()) for path in EXAMPLE.glob("*.py")}
    assert len(found) > 4
    assert not {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    "line",
    [
        "from shalott.core._private import x",
        "from shalott.core.doors import _loaded",
        "import shalott._inner",
        "cluster._engine.close()",
    ],
)
def test_a_private_name_would_be_found(line: str) -> None:
    assert private_names(line)
