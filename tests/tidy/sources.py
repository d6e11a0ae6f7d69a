"""The project's files as the tidy rules see them: listed by git, read and parsed at most once."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "shalott"  # all that is installed
# Its rooms, the folders in it.
PACKAGES = (
    *("broker", "checkers", "clients", "cluster", "core"),
    *("harness", "nemesis", "spark_analysis", "workloads"),
)
MODULES = ("api",)  # rooms that are one file


def is_within(module: str, prefixes: Sequence[str]) -> bool:
    """Whether a dotted name is one of the prefixes or below one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


@dataclass(frozen=True)
class Source:
    """One Python file. ``path`` is relative to the project's root, with forward slashes.

    It is parsed when a rule first asks for its tree: no rule asks for that of every test.
    """

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, in the order of ``ast.walk``."""
        return tuple(ast.walk(self.tree))

    @property
    def module(self) -> str:
        """The dotted name it is imported by."""
        path = re.sub(r"^(?:examples|plugins/[^/]+)/", "", self.path)
        dotted = path.removesuffix(".py").replace("/", ".")
        return dotted.removesuffix(".__init__")

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.module if self.path.endswith("/__init__.py") else self.module.rpartition(".")[0]


def parse(path: str, text: str) -> Source:
    return Source(path, text)


@cache
def project_files() -> tuple[str, ...]:
    """Every file that git tracks or would track; where there is no git, all but the ignored."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listing = list(_walk(ROOT))
    return tuple(sorted(name for name in dict.fromkeys(listing) if (ROOT / name).is_file()))


def _walk(directory: Path) -> Iterator[str]:
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    for path in directory.iterdir():
        place = f"/{path.relative_to(ROOT).as_posix()}"
        names = (path.name, place)  # a pattern with a slash in front is one of the root
        if path.name == ".git" or any(fnmatch(name, each) for name in names for each in ignored):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path.relative_to(ROOT).as_posix()


@cache
def python_sources() -> tuple[Source, ...]:
    """Every Python file of the project, tests and benchmarks too."""
    return tuple(
        parse(name, (ROOT / name).read_text()) for name in project_files() if name.endswith(".py")
    )


def package_sources(*packages: str) -> Iterator[Source]:
    """The Python files of these rooms; of all of them if none is named."""
    for source in python_sources():
        top, _, inner = source.path.partition("/")
        if top == PACKAGE and (
            not packages or inner.partition("/")[0].removesuffix(".py") in packages
        ):
            yield source
