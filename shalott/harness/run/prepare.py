"""``shalott prepare``: the images of docker runs, built ahead of them, as a CI wants it.

A run builds what it lacks by itself; to do so before keeps its minute out of the first run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.steps import steps_told
from shalott.harness.run.backends import check_world, choose_backend, make_system
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request


def prepare_images(systems: Sequence[str], tell: Callable[[str], None]) -> None:
    """Build what the nodes of these systems are made from, of all systems if none is named.

    Raises UsageError for a system without containers, or without an engine; BootFailed for an image
    that can't be built.
    """
    for name in systems:
        check_world("docker", name)
    names = systems or [each.name for each in SYSTEMS.records() if "docker" in each.worlds]
    if not names:
        raise UsageError("no system that is here runs in containers")
    choose_backend("docker", names[0])  # says what is wrong with the engine
    images = {image_of(name): None for name in names}
    with steps_told(tell):
        tags = asyncio.run(_build(tuple(images)))
    for tag in tags:
        tell(f"{tag} is there.")


def image_of(system: str) -> str:
    """The recipe of a system's nodes."""
    request = Request(system=system, nemesis="none", cluster="docker")
    return make_system(make_plan(request, backend="docker", seed=1)).image


async def _build(images: Sequence[str]) -> list[str]:
    from shalott.cluster.docker.engine import Engine
    from shalott.cluster.docker.images import ensure_image

    engine = Engine()
    try:
        return [await ensure_image(engine, image) for image in images]
    finally:
        engine.close()
