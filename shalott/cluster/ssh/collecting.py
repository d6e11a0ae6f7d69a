"""Bringing a node's output and files: one stream of tar, written to disk as it comes."""

from __future__ import annotations

import contextlib
import shlex
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import paramiko

from shalott.cluster.archives import unpack
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.inventory import title_of
from shalott.core.errors import HarnessError

CHUNK = 1 << 18
TIMEOUT_S = 60.0  # without a byte


def bring(connection: Connection, directory: str, names: Sequence[str], into: Path) -> None:
    """The node's ``output.log`` and what there is of ``names`` under its data directory, to
    ``into``. Raises HarnessError."""
    into.mkdir(parents=True, exist_ok=True)
    words = " ".join(shlex.quote(f"data/{name}") for name in names)
    # What is missing is left out; what grows while it is read is brought as far as it was.
    script = (
        f"cd {shlex.quote(directory)} 2>/dev/null || exit 0; set --;"
        f' for name in output.log {words}; do [ -e "$name" ] && set -- "$@" "$name"; done;'
        ' [ $# = 0 ] || tar -czf - "$@" 2>/dev/null'
    )
    with tempfile.TemporaryFile() as file:
        with contextlib.closing(connection.session(f"sh -c {shlex.quote(script)}")) as channel:
            channel.settimeout(TIMEOUT_S)
            try:
                while data := channel.recv(CHUNK):
                    file.write(data)
            except (OSError, EOFError, paramiko.SSHException) as error:
                title = title_of(connection.host)
                raise HarnessError(f"the files of {title} don't come: {error}") from error
        if not file.tell():
            return
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            unpack(archive, into, without="data/")
