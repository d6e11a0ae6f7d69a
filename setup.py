"""What pyproject.toml can't say: the checkers' engine is built from C, and a wheel says from which
commit it was built (harness/run/provenance.py reads that)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
COMMIT = HERE / "shalott" / "commit.txt"


def said_by_git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_text() -> str:
    """Two lines: the commit, and whether the tree was clean; nothing where it is not known."""
    if (HERE / ".git").exists() and (commit := said_by_git("rev-parse", "HEAD")):
        return f"{commit}\n{'changed' if said_by_git('status', '--porcelain') else 'clean'}\n"
    return COMMIT.read_text() if COMMIT.exists() else ""  # of a source archive


class BuildWithCommit(build_py):
    """Writes shalott/commit.txt into a wheel."""

    def run(self) -> None:
        super().run()
        if (text := commit_text()) and not self.editable_mode:
            (Path(self.build_lib) / "shalott" / COMMIT.name).write_text(text)


class ArchiveWithCommit(sdist):
    """Writes shalott/commit.txt into a source archive, which has no .git."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if text := commit_text():
            (Path(base_dir) / "shalott" / COMMIT.name).write_text(text)


setup(
    cffi_modules=["shalott/checkers/engine/build_engine.py:ffi"],
    cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for 3.11 and all later ones
)
