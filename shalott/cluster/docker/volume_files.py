"""Data files of containers whose volumes this host can't reach: an engine elsewhere, or no root.

A container of the base image has the volume for as long as one script takes. So it works on a node
that runs as on one that is down, and needs nothing of the node's own image.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.cluster.data_files import Place, chosen
from shalott.cluster.docker import containers
from shalott.cluster.docker.containers import DATA_DIR, Machine
from shalott.cluster.docker.engine import Engine

LIST = "find . -type f -printf '%s %P\\n'"
READ = """file=$1; shift
while [ $# -gt 0 ]; do
  [ ! -e "$file" ] || dd if="$file" bs=1 skip="$1" count="$2" status=none | od -An -v -tx1 |
    tr -d '\\n'
  echo; shift 2
done"""
FLIP = """file=$1; shift
while [ $# -gt 0 ]; do
  old=$(dd if="$file" bs=1 skip="$1" count=1 status=none | od -An -tu1 | tr -d ' ')
  new=$((old ^ $2))
  printf "\\\\$(printf %03o $new)" |
    dd of="$file" bs=1 seek="$1" count=1 conv=notrunc status=none || exit 1
  echo "$old $new"
  shift 2
done"""
CUT = '[ "$(stat -c %s "$1")" -le "$2" ] || truncate -s "$2" "$1"'


def _flat(places: Sequence[tuple[int, int]]) -> list[int]:
    return [number for place in places for number in place]


class VolumeFiles:
    """See ``ChangesDataFiles``; of one node."""

    def __init__(self, engine: Engine, machine: Machine) -> None:
        self._engine = engine
        self._machine = machine

    async def find(self, pattern: str) -> dict[str, int]:
        """Zeros at the end of a file count here."""
        lines = (line.split(" ", 1) for line in (await self._run(LIST)).splitlines())
        found = {path: int(size) for size, path in lines}
        spared = self._machine.spec.collect
        return {
            path: found[path]
            for path in sorted(found)
            if found[path] and path.isprintable() and chosen(path, pattern, spared)
        }

    async def read_places(self, path: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
        lines = (await self._run(READ, path, *_flat(places))).split("\n")
        return [bytes.fromhex(line) for line in lines[: len(places)]]

    async def flip_bits(self, path: str, places: Sequence[Place]) -> list[tuple[int, int]]:
        said = (await self._run(FLIP, path, *_flat(places))).split()
        return [(int(old), int(new)) for old, new in zip(said[::2], said[1::2], strict=True)]

    async def cut_file(self, path: str, size: int) -> None:
        await self._run(CUT, path, size)

    async def _run(self, script: str, *words: str | int) -> str:
        command = ["sh", "-ec", f"cd {DATA_DIR}; {script}", "sh", *map(str, words)]
        return await self._engine.call(
            lambda api: containers.run_on_volume(api, self._machine, command)
        )
