"""``shalott doctor``, ``prepare`` and ``clean``: what machines lack, build ahead, and keep."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from shalott.cluster.ssh.inventory import SshFlags, read_hosts
from shalott.core.command_options import Prefixed
from shalott.harness.cli.doctor import run_doctor
from shalott.harness.cli.doctor_hosts import run_doctor_on_hosts
from shalott.harness.cli.options import LoadOption, with_options
from shalott.harness.run.backends import sweep_all
from shalott.harness.run.prepare import prepare_images

HostFlags = Annotated[SshFlags, Prefixed("ssh_")]


def add_commands(app: typer.Typer) -> None:
    """Register them."""
    for command in (with_options(doctor), prepare, with_options(clean)):
        app.command()(command)


def doctor(ssh: HostFlags) -> None:
    """Say what is missing on this machine, or on hosts, and the command that installs it."""
    if ssh != SshFlags():
        raise typer.Exit(run_doctor_on_hosts(Console(), read_hosts(ssh).hosts))
    raise typer.Exit(run_doctor(Console()))


def prepare(
    system: Annotated[
        list[str] | None, typer.Option("--system", help="Of this one; may be given again.")
    ] = None,
    load: LoadOption = None,
) -> None:
    """Build the images that docker runs need, ahead of them, and start nothing else."""
    prepare_images(tuple(system or ()), typer.echo)


def clean(ssh: HostFlags) -> None:
    """Remove containers, networks and processes that killed runs left behind, on hosts too."""
    hosts = read_hosts(ssh) if ssh != SshFlags() else None
    for sentence in sweep_all(hosts) or ["Nothing was left behind."]:
        typer.echo(sentence)
