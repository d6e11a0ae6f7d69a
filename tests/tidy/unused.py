"""Names and dependencies that nothing uses.

A name that a module of the packages defines at its top is used if any other place in the packages,
the benchmarks or the build names it; tests do not count, for what only its tests use is dead. A
declared dependency is used if some file imports it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.tidy.import_table import imports
from tests.tidy.sources import PACKAGE, Source

# (file, name): what may have no user here, and why.
NO_USER_HERE: Mapping[tuple[str, str], str] = {
    ("shalott/checkers/linearizability/timeline.py", "timeline_html"): "for notebooks",
    ("shalott/checkers/linearizability/timeline.py", "write_timeline"): "the same",
    (
        "shalott/core/history.py",
        "read_origin",
    ): "for those who read histories by their own programs",
    ("shalott/harness/testing/pytest_plugin.py", "pytest_addoption"): "called by pytest",
    ("shalott/harness/testing/pytest_plugin.py", "pytest_configure"): "the same",
    ("shalott/harness/testing/pytest_plugin.py", "pytest_generate_tests"): "the same",
}
# Distributions whose import has another name.
IMPORTED_AS: Mapping[str, str] = {
    "aio-pika": "aio_pika",
    "nats-py": "nats",
    "python-qpid-proton": "proton",
    "pytest-timeout": "pytest_timeout",
    "pytest-xdist": "xdist",
    "pyyaml": "yaml",
}
# Dependencies that are used without being imported, and how.
RUN_BY_NAME: Mapping[str, str] = {
    "tox": "scripts/test runs it",
    "pytest-timeout": "pytest loads it: `timeout` of pyproject.toml",
    "pytest-xdist": "pytest loads it: tox.ini has `-n`",
    "ruff": "tox.ini runs it",
    "mypy": "tox.ini runs it",
    "mkdocs-material": "mkdocs.yml names it",
    **dict.fromkeys(("duckdb", "polars"), "examples/analysis.ipynb imports it"),
    **dict.fromkeys(("nbclient", "nbformat", "ipykernel"), "its test executes the notebook"),
    "pandas": "pyspark loads it for applyInPandas",
}


def entry_points(pyproject: str) -> tuple[str, ...]:
    """The names that entry points give: "package.module:NAME"."""
    groups = tomllib.loads(pyproject)["project"]["entry-points"].values()
    return tuple(target.partition(":")[2] for group in groups for target in group.values())


def unused_names(
    sources: Sequence[Source], also_named: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """The file and name of each name at the top of a package's module that nothing else names."""
    users = [source for source in sources if not source.path.startswith("tests/")]
    named: Counter[str] = Counter(also_named)
    for source in users:
        named.update(_names_in(source.tree))
    for source in users:
        if source.path.partition("/")[0] != PACKAGE:
            continue
        for name, node in _defined(source.tree):
            within = sum(1 for other in _names_in(node) if other == name)
            if named[name] <= within:
                yield source.path, name


def _defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The names that a module defines, without those that a decorator hands on or Python reads."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not node.decorator_list:
                yield node.name, node
            case ast.ClassDef():
                yield node.name, node
            case ast.Assign(targets=targets):
                for target in targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Name) and not part.id.startswith("__"):
                            yield part.id, node
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def _names_in(tree: ast.AST) -> Iterator[str]:
    """Each use of a name: read, taken from a module, imported, or quoted in full."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def unused_dependencies(declared: Sequence[str], sources: Sequence[Source]) -> Iterator[str]:
    """A sentence for each requirement (``name>=1.2``) that no file imports."""
    imported = {each.target.partition(".")[0] for source in sources for each in imports(source)}
    for requirement in declared:
        name = re.split(r"[<>=\[~! ]", requirement, maxsplit=1)[0]
        if IMPORTED_AS.get(name, name) not in imported and name not in RUN_BY_NAME:
            yield f"pyproject.toml: nothing imports {name}: use it or remove it"
