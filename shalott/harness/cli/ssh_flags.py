"""The flags that name hosts: of every command that reaches some over SSH.

They are added to a command's signature, and handed to it together, as ``ssh``, by the names of
their fields in ``Request``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from shalott.cluster.ssh.inventory import SshFlags

PANEL = "Hosts over SSH"
# Of SshFlags, by field: what --help says.
HELPS: Mapping[str, str] = {
    "hosts": "Hosts a,b,c: each an address, user@address or address:port.",
    "inventory": "A file of hosts instead: docs/how-to/run-on-your-hosts.md.",
    "user": "Who logs in; else who runs this.",
    "key": "A private key; else those of the agent and of ~/.ssh.",
    "port": "Of all hosts; else 22.",
    "jump": "Go through this host: user@address:port.",
    "sudo": "Cut links as root, by sudo without a password.",
    "known_hosts": "Where the hosts' keys are; else ~/.ssh/known_hosts.",
    "set_time": "Faults may set the hosts' own clocks, where libfaketime can't do.",
}
Command = Callable[..., None]


def with_ssh_flags(command: Command) -> Command:
    """``command`` with an option for each field of SshFlags; it gets them as ``ssh``."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "ssh"]
    added = {f"ssh_{name}": name for name in HELPS}
    options = [_option(name, field) for name, field in added.items()]
    last = [each for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]
    first = [each for each in own if each.kind is not inspect.Parameter.KEYWORD_ONLY]

    def run(**typed: Any) -> None:
        others = {each.name: typed[each.name] for each in own if each.name != "given"}
        given = {"given": typed["given"]} if "given" in typed else {}
        command(**others, **given, ssh={name: typed[name] for name in added})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    signed: Any = run
    parameters = [*first, *options, *last]
    signed.__signature__ = signature.replace(parameters=parameters)
    signed.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def flags_typed(ssh: Mapping[str, Any]) -> SshFlags | None:
    """None if no hosts were named."""
    flags = SshFlags(**{name.removeprefix("ssh_"): value for name, value in ssh.items()})
    return None if flags == SshFlags() else flags


def _option(name: str, field: str) -> inspect.Parameter:
    default = getattr(SshFlags(), field)
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=HELPS[field],
        show_default=False,
        rich_help_panel=PANEL,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type(default), option],
    )
