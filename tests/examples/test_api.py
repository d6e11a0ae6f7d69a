"""shalott.api: all that a plug-in needs, quick to import, and all that the examples import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shalott.api
from tests.tidy.import_table import imports, is_within
from tests.tidy.sources import ROOT, python_sources

HEAVY = (
    *("docker", "paramiko", "pyspark", "pandas", "rich", "typer", "jinja2", "cffi"),
    *("shalott.harness", "shalott.cluster.docker", "shalott.cluster.ssh", "shalott.cluster.local"),
)


def told_to_checkers() -> dict[str, str]:
    """What type checkers are told, a name to its home."""
    tree = ast.parse((ROOT / "shalott" / "api.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and not node.orelse][:1]
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in found for alias in node.names}


@pytest.mark.unit
def test_every_name_is_there_and_type_checkers_hear_of_the_same() -> None:
    told = told_to_checkers()
    assert sorted(shalott.api.__all__) == sorted([*told, "API_VERSION"])
    for name, home in told.items():
        assert getattr(shalott.api, name) is getattr(sys.modules[home], name)
    with pytest.raises(AttributeError, match=r"shalott.api \d+\.\d+ has no Nonsense"):
        shalott.api.Nonsense  # type: ignore[attr-defined]  # noqa: B018


def modules_after(program: str) -> list[str]:
    told = "import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{told}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.unit
def test_a_name_loads_its_home_and_no_backend() -> None:
    bare = modules_after("import shalott.api")
    assert [name for name in bare if name.startswith("shalott.")] == ["shalott.api"]
    record = modules_after("from shalott.api import NodeSpec, Profile, SystemRecord, await_nodes")
    assert [name for name in record if is_within(name, (*HEAVY, "pyarrow", "numpy"))] == []
    everything = modules_after("from shalott.api import *")
    assert [name for name in everything if is_within(name, HEAVY) and name != "cffi"] == []


def foreign_imports(path: str) -> list[str]:
    """What a plug-in of ours imports of shalott besides its API."""
    return [
        f"{source.path}:{each.line}: {each.target}"
        for source in python_sources()
        if source.path.startswith(path)
        for each in imports(source)
        if is_within(each.target, ("shalott",)) and each.target != "shalott.api"
    ]


@pytest.mark.lint
def test_the_examples_import_nothing_else_of_shalott() -> None:
    assert not foreign_imports("examples/"), "\n".join(foreign_imports("examples/"))
    assert Path(ROOT / "examples" / "shalott_registers").is_dir()
    assert foreign_imports("shalott/core/worker.py"), "the rule sees other imports"
