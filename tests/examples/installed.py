"""An environment of its own, away from the checkout, with the wheel and the example installed.

The wheel is built from a copy of the tree, since setuptools would put into it what an earlier build
left in the tree itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv", ".tox", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info"),
    *("build", "store", "_engine.*"),
)
INSTALL_WITHIN_S = 900


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    code: int
    printed: str


@dataclass(frozen=True)
class Installed:
    """``directory`` is where commands run; their runs are in ``store`` there."""

    python: Path
    directory: Path

    @property
    def runs(self) -> list[Path]:
        """The directories of stored runs, oldest first."""
        plans = self.directory.glob("store/*/*/plan.json")
        return sorted({plan.parent.resolve() for plan in plans if plan.parent.name != "latest"})

    def shalott(self, *words: str, timeout_s: float = 280) -> Done:
        return self.run([str(self.python.with_name("shalott")), *words], timeout_s)

    def run_python(self, program: str) -> Done:
        return self.run([str(self.python), "-c", program])

    def lend_spark(self) -> None:
        """Let it find pyspark, and whatever else it has not, where the tests' interpreter has it.

        A copy of its own would be 850 MB.
        """
        ours = sysconfig.get_path("purelib")
        (own,) = self.python.parent.parent.glob("lib/python*/site-packages")
        (own / "lent.pth").write_text(f"{ours}\n")

    def run(self, command: Sequence[str], timeout_s: float = 280) -> Done:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=outside(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Done(done.returncode, done.stdout)


def outside() -> dict[str, str]:
    """The environment of somebody who has no checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def install(directory: Path, *, example: bool) -> Path:
    """Make an environment in ``directory``; returns its interpreter."""
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
    wheels = directory / "wheels"
    sources = [tree, tree / "examples"] if example else [tree]
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    _call([sys.executable, *pip, "wheel", "--no-deps", "-w", str(wheels), *map(str, sources)])
    shutil.rmtree(tree)
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    _call([str(python), *pip, "install", *map(str, sorted(wheels.glob("*.whl")))])
    return python


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        env=outside(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.fixture(scope="session")
def with_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment that has the wheel, the example, and what they need."""
    yield install(tmp_path_factory.mktemp("installed"), example=True)


@pytest.fixture
def installed(with_example: Path, tmp_path: Path) -> Installed:
    """The same, in an empty directory."""
    return Installed(with_example, tmp_path)
