"""``shalott completion``: completes commands, options and their values as a shell's user types.

typer has the scripts of the shells and asks the commands. When a shell asks (``is_completing``),
the module of the command that is being typed is loaded, and with it all of its options
(harness/cli/commands.py); harness/cli/completion_values.py says what values they have.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters, install_callback, show_callback

from shalott.harness.cli.near_names import unknown

SHELLS = ("bash", "zsh", "fish", "powershell")


def add_commands(app: typer.Typer) -> None:
    app.command()(completion)


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}.")],
    install: Annotated[
        bool, typer.Option("--install", help="Have the shell load it, from now on.")
    ] = False,
) -> None:
    """Have a shell complete commands, options and names: bash, zsh, fish, powershell.

    It prints a script: eval "$(shalott completion bash)". With --install for good.
    """
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS, "shalott completion --help")
    tell = install_callback if install else show_callback
    tell(context.find_root(), context.command.params[0], shell)


def words_typed() -> list[str]:
    """The command line so far, without the program: what the shells' scripts hand over."""
    get_completion_inspect_parameters()  # this makes the shells known to typer
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]
