"""``shalott prepare`` and ``clean``: what is built ahead of runs, and what killed runs left."""

from __future__ import annotations

from typing import Annotated

import typer

from shalott.cluster.ssh.inventory import SshFlags, read_hosts
from shalott.core.command_options import Prefixed
from shalott.harness.cli.options import LoadOption, with_options
from shalott.harness.run.backends import sweep_all
from shalott.harness.run.prepare import prepare_images


def add_commands(app: typer.Typer) -> None:
    """Register them."""
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


def clean(ssh: Annotated[SshFlags, Prefixed("ssh_")]) -> None:
    """Remove containers, networks and processes that killed runs left behind, on hosts too."""
    hosts = read_hosts(ssh) if ssh != SshFlags() else None
    for sentence in sweep_all(hosts) or ["Nothing was left behind."]:
        typer.echo(sentence)
