"""Standing: what an operator has made of a node, which its next life must know.

``reset`` makes a node one that belongs to no cluster, with nothing on its disk; ``join_cluster``
lets it into the one that its configuration names. Each ends the node's life and begins another one,
so that nothing of the old one is left in memory: the node says so with ``BeginAgain``, and what
runs its process sees to it (broker/__main__.py). After rabbit/rabbit_mnesia.erl, where Mnesia is
stopped and its directory deleted.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import BrokerError, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.rabbit.config import NodeConfig

PATH = "standing.json"
DATA = ("metadata", "queues")  # directories: all that a node has of its cluster


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """``alone``: of no cluster. ``held``: the broker waits for start_app. ``joining``: the node to
    be let in by, with no part in the cluster's tables before. ``forced``: the node's own tables
    are the ones, even if others have fresher ones. ``problem``: why it could not join.
    """

    alone: bool = False
    held: bool = False
    joining: str | None = None
    forced: bool = False
    problem: str | None = None

    def applied(self, config: NodeConfig) -> NodeConfig:
        return msgspec.structs.replace(config, peers=()) if self.alone else config

    def afterwards(self) -> Standing:
        """What the life after the next one knows, if that one says nothing else: a node that is
        killed starts its broker again, and one that had not joined yet has not joined."""
        return Standing(alone=self.alone or self.joining is not None, forced=self.forced)


MEMBER = Standing()


class BeginAgain(BrokerError):
    """Not a failure: the node's life is to end in good order, and another one to begin."""

    def __init__(self, standing: Standing, *, wipes: bool) -> None:
        super().__init__("the node begins again")
        self.standing = standing
        self.wipes = wipes

    async def prepare(self, disk: Disk) -> None:
        """For the next life, once this one has closed its files. A crash leaves the node as it was,
        or with less than it had: it is on its way out of its cluster, or has nothing to lose."""
        if self.wipes:
            for name in DATA:
                await remove_tree(disk, name)
        await write_standing(disk, self.standing)


class ShutDown(BrokerError):
    """Not a failure: the node's process is to end in good order."""


async def read_standing(disk: Disk) -> Standing:
    """Raises StorageError."""
    data = await read_file(disk, PATH)
    try:
        return Standing() if data is None else msgspec.json.decode(data, type=Standing)
    except msgspec.MsgspecError as error:
        raise StorageError(f"{PATH}: {error}") from error


async def write_standing(disk: Disk, standing: Standing) -> None:
    """Durable when it returns."""
    await replace_file(disk, PATH, msgspec.json.encode(standing))


async def begin_standing(disk: Disk) -> Standing:
    """What the life that begins is to be; the one after it is told what is left of that."""
    standing = await read_standing(disk)
    if standing != standing.afterwards():
        await write_standing(disk, standing.afterwards())
    return standing


async def remove_tree(disk: Disk, path: str) -> None:
    """A file, or a directory with all that is in it; nothing if it is absent."""
    with suppress(NotADirectoryError):
        for name in await disk.listdir(path):
            await remove_tree(disk, f"{path}/{name}")
    with suppress(FileNotFoundError):
        await disk.remove(path)
