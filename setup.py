"""What pyproject.toml can't say: the checkers' engine is built from C, and a wheel says from which
commit it was built (harness/run/provenance.py reads that)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


def said_by_git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class BuildWithCommit(build_py):
    """Writes shalott/commit.txt, two lines: the commit, and whether the tree was clean."""

    def run(self) -> None:
        super().run()
        commit = said_by_git("rev-parse", "HEAD") if (HERE / ".git").exists() else None
        if commit and not self.editable_mode:
            tree = "changed" if said_by_git("status", "--porcelain") else "clean"
            (Path(self.build_lib) / "shalott" / "commit.txt").write_text(f"{commit}\n{tree}\n")


setup(
    cffi_modules=["shalott/checkers/engine/build_engine.py:ffi"],
    cmdclass={"build_py": BuildWithCommit},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for 3.11 and all later ones
)
