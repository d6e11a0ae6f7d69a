"""``shalott prepare`` and ``clean``: what is built ahead of runs, and what killed runs left.

A run builds the image that it lacks by itself; to do so before keeps its minute out of the first
run, as a CI wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from shalott.cluster.ssh.inventory import SshFlags, read_hosts
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.command_options import Prefixed
from shalott.core.errors import UsageError
from shalott.core.steps import steps_told
from shalott.harness.cli.options import LoadOption, with_options
from shalott.harness.run.backends import (
    NOT_SWEPT,
    check_world,
    choose_backend,
    make_system,
    sweep_all,
)
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request


def add_commands(app: typer.Typer) -> None:
    for command in (prepare, with_options(clean)):
        app.command()(command)


def prepare(
    system: Annotated[
        list[str] | None, typer.Option("--system", help="Of this one; may be given again.")
    ] = None,
    load: LoadOption = None,
) -> None:
    """Build the images that docker runs need, ahead of them, and start nothing else."""
    prepare_images(tuple(system or ()), typer.echo)


def clean(
    ssh: Annotated[SshFlags, Prefixed("ssh_")],
    kept: Annotated[
        bool, typer.Option("--kept", help="Also what --leave-db-running has kept.")
    ] = False,
) -> None:
    """Remove containers, networks and processes that killed runs left behind, on hosts too."""
    hosts = read_hosts(ssh) if ssh != SshFlags() else None
    sentences = sweep_all(hosts, kept=kept)
    for sentence in sentences or ["Nothing was left behind."]:
        typer.echo(sentence)
    if len(sentences) == 1 and sentences[0].startswith(NOT_SWEPT):
        typer.echo("Nothing else was left behind.")


def prepare_images(systems: Sequence[str], tell: Callable[[str], None]) -> None:
    """Build what the nodes of these systems are made from, of all systems if none is named.

    Raises UsageError for a system without containers, or without an engine; BootFailed for an image
    that can't be built.
    """
    for name in systems:
        check_world("docker", name)
    names = systems or [
        each.name for each in SYSTEMS.records() if "docker" in each.worlds and each.places is None
    ]
    if not names:
        raise UsageError("no system that is here runs in containers")
    choose_backend("docker", names[0])  # says what is wrong with the engine
    images = {image_of(name): None for name in names}
    with steps_told(tell):
        tags = asyncio.run(_build(tuple(images)))
    for tag in tags:
        tell(f"{tag} is there.")


def image_of(system: str) -> str:
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
