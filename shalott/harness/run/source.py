"""Which commit of this project runs: git says it in a checkout, a file of the wheel elsewhere."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
GIT_TIMEOUT_S = 10
COMMIT_FILE = "commit.txt"  # in a wheel, written when it is built (setup.py)


@dataclass(frozen=True, slots=True)
class Source:
    """``commit`` and ``tree`` (clean or changed), or "unknown: " and why."""

    commit: str
    tree: str


def source_of_project(package: Path | None = None) -> Source:
    """``package``: where the package lies, if not where it was imported from."""
    package = package or PACKAGE
    root = package.parent
    if (root / "pyproject.toml").is_file() and (root / ".git").exists():
        return _of_checkout(root)
    try:
        commit, tree = (package / COMMIT_FILE).read_text().split()
    except (OSError, ValueError):
        why = "unknown: neither a checkout nor a wheel that says what it was built from"
        return Source(commit=why, tree=why)
    return Source(commit=commit, tree=tree)


def _of_checkout(root: Path) -> Source:
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain")
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        why = f"unknown: git says {said.strip().splitlines()[0] if said.strip() else 'nothing'}"
        return Source(commit=why, tree=why)
    return Source(commit=commit, tree="changed" if changed else "clean")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=GIT_TIMEOUT_S,
    )
    return done.stdout.strip()
