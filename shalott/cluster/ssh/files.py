"""What nodes write on their hosts."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import paramiko

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.disks.node_disks import NodeDisks
from shalott.cluster.node_files import tail, unpack
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.parts import StatelessPart
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.inventory import title_of
from shalott.cluster.ssh.nodes import HostNodes
from shalott.cluster.ssh.processes import HostProcesses
from shalott.core.errors import HarnessError


class HostFiles(StatelessPart):
    """See ``Files``, ``ReadsDataFiles`` and ``ChangesDataFiles``."""

    capabilities = WORLDS["ssh"]["files"]

    def __init__(self, run: HostNodes, processes: HostProcesses, disks: NodeDisks) -> None:
        self._run = run
        self._processes = processes
        self._disks = disks

    async def wipe(self, node: str) -> None:
        if not self._disks.is_wanted:
            await self._run.agent(node).call("wipe")
        elif (await self._processes.status(node)).pid is not None:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        else:
            await self._disks.wipe(node)

    async def read(self, node: str, path: str, offset: int) -> bytes:
        """By a command of the agent's."""
        place = f"{self._run.directory(node)}/data/{path}"
        return await tail(self._processes.run_command, node, place, offset)

    async def find(self, node: str, pattern: str) -> Mapping[str, int]:
        """By requests of the agent's, these four."""
        spared = [*self._run.specs[node].collect]
        found = await self._run.agent(node).call("find", pattern=pattern, spared=spared)
        return {str(path): int(size) for path, size in found.items()}

    async def read_places(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[bytes]:
        told = [*map(list, places)]
        found = await self._run.agent(node).call("read_places", path=path, places=told)
        return [bytes.fromhex(each) for each in found]

    async def flip_bits(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        told = [*map(list, places)]
        changed = await self._run.agent(node).call("flip_bits", path=path, places=told)
        return [(int(old), int(new)) for old, new in changed]

    async def cut_file(self, node: str, path: str, size: int) -> None:
        await self._run.agent(node).call("cut_file", path=path, size=size)

    async def leave_file(self, node: str, path: str, data: bytes) -> None:
        await self._run.agent(node).call("leave_file", path=path, data=data.hex())

    async def output(self, node: str, lines: int = 20) -> str:
        return str(await self._run.agent(node).call("output", lines=lines))

    async def collect(self, into: Path) -> None:
        specs = self._run.specs
        collected = await asyncio.gather(
            *(self._collect_one(node, spec, into / node) for node, spec in specs.items()),
            return_exceptions=True,
        )
        for error in collected:
            if isinstance(error, BaseException):
                raise error  # when the others' files are there

    async def _collect_one(self, node: str, spec: NodeSpec, into: Path) -> None:
        connection, directory = self._run.connection(node), self._run.directory(node)
        await self._run.links[node].in_thread(
            lambda: bring(connection, directory, spec.collect, into)
        )
        await self._disks.report(node, into)


# -- Bringing a node's output and files: one stream of tar, written to disk as it comes.
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
