"""What stands before a node's command on a host, where an image has an entry script of its own.

RabbitMQ's image writes a cookie into the home of the package's user; on a host that home may be
another RabbitMQ's, so here the node has a home of its own, its data directory.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.inventory import title_of
from shalott.core.errors import BootFailed

ADMINISTRATORS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Entry:
    """``before``: shell commands; ``path``: directories that are searched first; ``package``: what
    installs the program on Debian."""

    before: str = ""
    path: str = ""
    package: str = ""
    environment: tuple[tuple[str, str], ...] = ()


PLAIN = Entry()
ENTRIES: Mapping[str, Entry] = {
    "rabbitmq": Entry(
        before='umask 077; mkdir -p "$RABBITMQ_MNESIA_BASE" "$RABBITMQ_LOG_BASE";'
        ' rm -f "$HOME/.erlang.cookie"; printf %s "$SHALOTT_COOKIE" >"$HOME/.erlang.cookie";'
        ' chmod 400 "$HOME/.erlang.cookie"',
        path="/usr/lib/rabbitmq/bin",  # past Debian's wrappers, which insist on the package's user
        package="rabbitmq-server",
        environment=(("RABBITMQ_CONF_ENV_FILE", "/dev/null"),),  # the host's own is for its own
    ),
}


def entry_of(image: str) -> Entry:
    return ENTRIES.get(image, PLAIN)


def command_line(image: str, command: Sequence[str]) -> list[str]:
    """What is run on a host for a node's command."""
    before = entry_of(image).before
    return ["sh", "-c", f'{before}; exec "$@"', "sh", *command] if before else list(command)


def search_path(image: str) -> str:
    first = entry_of(image).path
    return f"{first}:{ADMINISTRATORS}" if first else ADMINISTRATORS


def check_program(connection: Connection, spec: NodeSpec) -> None:
    """Raises BootFailed if the host lacks what the node is to run."""
    program = spec.command[0]
    if "{" in program:
        return
    path = search_path(spec.image)
    search = f"PATH={path} command -v {shlex.quote(program)}"
    if connection.run(f"sh -c {shlex.quote(search)}").exit_code != 0:
        package = entry_of(spec.image).package or program
        raise BootFailed(
            f"{title_of(connection.host)} has no {program}: install it there with"
            f" `sudo apt-get install -y {package}`, and keep the host's own one stopped"
        )
