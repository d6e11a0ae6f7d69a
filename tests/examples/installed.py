"""An environment of its own, away from the checkout, with the wheel and the example installed.

The wheel is built from a copy of the tree, since setuptools would put into it what an earlier build
left in the tree itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tidy.sources import project_files

ROOT = Path(__file__).parent.parent.parent
NOT_OURS = shutil.ignore_patterns(
    *(".git", ".venv", ".tox", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "_engine.*")
)
AT_THE_ROOT = ("build", "dist", "store")  # the package has a folder of such a name
INSTALL_WITHIN_S = 900
KEPT_S = 24 * 3600
PARTS = ("shalott/", "examples/", "pyproject", "setup.py")
# What is lent comes last: of two installations of a package the environment's own is found.
LENT = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from shalott.harness.cli.main import main; raise SystemExit(main())"
)


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

    def with_spark(self, *words: str, timeout_s: float = 280) -> Done:
        """With pyspark, and whatever else it has not, from where the tests' interpreter has it.

        A copy of its own would be 850 MB.
        """
        program = [str(self.python), "-c", LENT, sysconfig.get_path("purelib"), *words]
        return self.run(program, timeout_s)

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


def left_out(folder: str, names: list[str]) -> set[str]:
    """What is in a checkout besides the project."""
    outputs = AT_THE_ROOT if Path(folder) == ROOT else ()
    return {*NOT_OURS(folder, names), *outputs}


def install(directory: Path, *, example: bool) -> Path:
    """Make an environment in ``directory``; returns its interpreter."""
    directory.mkdir()
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
    wheels = directory / "wheels"
    sources = [tree, tree / "examples"] if example else [tree]
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    _call([sys.executable, *pip, "wheel", "--no-deps", "-w", str(wheels), *map(str, sources)])
    shutil.rmtree(tree)
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    ours, *others = sorted(wheels.glob("*.whl"))
    _call([str(python), *pip, "install", f"{ours}[docker]", *map(str, others)])
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


def environments() -> Path:
    """Where environments are kept from run to run: to make one takes longer than its tests."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shalott-tests"


def key_of_tree() -> str:
    """Of all that an environment is made of."""
    digest = hashlib.sha256(sys.version.encode())
    for name in sorted(project_files()):
        if name.startswith(PARTS):
            content = (ROOT / name).read_bytes()
            digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def remove_old(kept: Path) -> None:
    """Environments of other trees that nobody has used for a day."""
    for place in kept.iterdir():
        if place.is_dir() and time.time() - place.stat().st_mtime > KEPT_S:
            with place.with_suffix(".lock").open("w") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place)


@pytest.fixture(scope="session")
def with_example() -> Iterator[Path]:
    """The interpreter of an environment that has the wheel, the example, and what they need.

    Tiers share it, side by side as well: the first one makes it.
    """
    kept = environments()
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / key_of_tree()
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)  # of a session that was killed
            install(place, example=True)
            (place / "ready").touch()
        place.touch()
        fcntl.flock(lock, fcntl.LOCK_SH)  # nobody takes it away while it is in use
        remove_old(kept)
        yield place / "venv" / "bin" / "python"


@pytest.fixture
def installed(with_example: Path, tmp_path: Path) -> Installed:
    """The same, in an empty directory."""
    return Installed(with_example, tmp_path)
