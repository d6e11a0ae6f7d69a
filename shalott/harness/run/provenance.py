"""Provenance: what a run tests, and with what, as ``Tested`` (harness/report/meta.py) has it.

The facts are gathered while the run goes on. Git says in a checkout which commit of this project
runs, elsewhere a file of the wheel does. Nothing here ends a run: what can't be known says why.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from shalott.cluster.cluster import Cluster
from shalott.cluster.debian_packages import installed_packages
from shalott.cluster.system import HasArtifacts, HasPackages, System
from shalott.core.errors import HarnessError
from shalott.core.plan import Plan
from shalott.core.worker import describe
from shalott.harness.report.meta import Tested

PACKAGE = Path(__file__).parents[2]
GIT_TIMEOUT_S = 10
COMMIT_FILE = "commit.txt"  # in a wheel, written when it is built (setup.py)
LOOK_TIMEOUT_S = 20.0
NO_ENGINE = "none: the nodes are no containers"
NO_IMAGE = "none: the nodes are made from no image"
NOT_STARTED = "unknown: the nodes were not started"
IMAGE_FACTS = (
    *("image", "image_id", "image_digest"),
    *("base_image", "base_image_id", "base_image_digest"),
)


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


@dataclass
class Provenance:
    plan: Plan
    source: Source = field(default_factory=source_of_project)  # as it is when the run begins
    nodes: dict[str, str] = field(default_factory=dict)  # fields of Tested by name
    packages: dict[str, str] = field(default_factory=dict)
    packages_from: str = ""
    pinned: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)

    def versions(self) -> dict[str, str]:
        """What a report says it was made with."""
        found = {each.provider: each.version for each in self.plan.requires if not each.is_module}
        return {
            "shalott": importlib.metadata.version("shalott"),
            **{name: version for name, version in sorted(found.items()) if name != "shalott"},
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        }

    def tested(self) -> Tested:
        if self.plan.cluster.backend == "docker":
            unknown = dict.fromkeys(("engine", *IMAGE_FACTS), NOT_STARTED)
        else:
            unknown = {"engine": NO_ENGINE, **dict.fromkeys(IMAGE_FACTS, NO_IMAGE)}
        packages, told_by = self.packages, self.packages_from
        if not packages and not told_by:
            packages, told_by = self._of_provider()
        return Tested(
            commit=self.source.commit,
            tree=self.source.tree,
            shalott=importlib.metadata.version("shalott"),
            python=platform.python_version(),
            kernel=platform.release(),
            packages=packages,
            packages_from=told_by,
            pinned=self.pinned,
            artifacts=self.artifacts,
            **(unknown | self.nodes),
        )

    def _of_provider(self) -> tuple[dict[str, str], str]:
        """Our own systems and the like run what the distribution holds that provides them."""
        if self.plan.cluster.backend == "docker":
            return {}, NOT_STARTED
        for needed in self.plan.requires:
            if needed.kind == "system" and not needed.is_module:
                return {needed.provider: needed.version}, "the distribution of the system"
        return {}, "unknown: the system comes from a module, which has no version"

    async def look(self, cluster: Cluster, system: System) -> None:
        """Ask the engine and the first node, which has been started."""
        if cluster.parts.images is None:
            return
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                self.nodes |= await cluster.images.facts(system.image)
        except (HarnessError, TimeoutError, OSError) as error:
            why = f"unknown: {describe(error)}"
            self.nodes |= dict.fromkeys(("engine", *IMAGE_FACTS), why)
        await self._look_at_packages(cluster, system)
        await self._look_at_artifacts(cluster, system)

    async def _look_at_artifacts(self, cluster: Cluster, system: System) -> None:
        if not isinstance(system, HasArtifacts):
            return
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                self.artifacts = dict(await system.artifacts(cluster))
        except (HarnessError, TimeoutError, OSError) as error:
            self.artifacts = {"unknown": describe(error)}

    async def _look_at_packages(self, cluster: Cluster, system: System) -> None:
        from shalott.cluster.docker.images import pins_of

        self.pinned = pins_of(system.image)
        asked = system.packages if isinstance(system, HasPackages) else ()
        names = list(dict.fromkeys([*asked, *self.pinned]))
        if not names:
            self.packages_from = f"unknown: {system.name} names no packages"
            return
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                found = await installed_packages(cluster, cluster.nodes[0], names)
        except (HarnessError, TimeoutError, OSError) as error:
            self.packages_from = f"unknown: {describe(error)}"
            return
        self.packages, self.packages_from = dict(found), f"dpkg on {cluster.nodes[0]}"
