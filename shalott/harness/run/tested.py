"""What is tested, and with what: the facts of ``Tested`` (harness/report/meta.py), gathered while a
run goes on. Nothing here ends a run: what can't be known says why.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
from dataclasses import dataclass, field

from shalott.cluster.cluster import Cluster
from shalott.cluster.debian_packages import installed_packages
from shalott.cluster.system import HasArtifacts, HasPackages, System
from shalott.core.errors import HarnessError
from shalott.core.plan import Plan
from shalott.core.worker import describe
from shalott.harness.report.meta import Tested
from shalott.harness.run.source import Source, source_of_project

LOOK_TIMEOUT_S = 20.0
NO_ENGINE = "none: the nodes are no containers"
NO_IMAGE = "none: the nodes are made from no image"
NOT_STARTED = "unknown: the nodes were not started"
IMAGE_FACTS = (
    *("image", "image_id", "image_digest"),
    *("base_image", "base_image_id", "base_image_digest"),
)


def versions(plan: Plan) -> dict[str, str]:
    """What a report says it was made with."""
    return {
        "shalott": importlib.metadata.version("shalott"),
        **{name: version for name, version in _providers(plan).items() if name != "shalott"},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
    }


def _providers(plan: Plan) -> dict[str, str]:
    found = {needed.provider: needed.version for needed in plan.requires if not needed.is_module}
    return dict(sorted(found.items()))


@dataclass
class TestedFacts:
    """Gathers the facts of one run."""

    __test__ = False  # pytest would take it for a test

    plan: Plan
    source: Source = field(default_factory=source_of_project)  # as it is when the run begins
    nodes: dict[str, str] = field(default_factory=dict)  # fields of Tested by name
    packages: dict[str, str] = field(default_factory=dict)
    packages_from: str = ""
    pinned: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)

    def facts(self) -> Tested:
        """All that is known by now."""
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
