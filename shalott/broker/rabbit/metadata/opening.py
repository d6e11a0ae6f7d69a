"""Which kind of metadata server a node has, and what it keeps on the node's disk."""

from __future__ import annotations

from collections.abc import Callable

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.raft_group import LOG_PATH
from shalott.broker.rabbit.metadata.raft_server import MajorityServer
from shalott.broker.rabbit.metadata.server import MetadataServer
from shalott.broker.raft.journal_log import JournalLog
from shalott.broker.raft.storage import RaftStorage

Store = TableJournal | RaftStorage
AnyServer = MetadataServer | MajorityServer


def needs_majority(config: NodeConfig, bugs: tuple[str, ...]) -> bool:
    """Whether a write of tables needs a majority of the listed nodes."""
    return config.partition_mode == "pause_minority" and "OUR-08" not in bugs


async def open_store(env: Env, config: NodeConfig) -> Store:
    """What the last life of this node left. Raises StorageError."""
    if needs_majority(config, env.bugs):
        return await JournalLog.open(env.disk, LOG_PATH)
    return await TableJournal.open(env.disk)


def make_server(
    env: Env, config: NodeConfig, store: Store, *, connections: Callable[[], int] = lambda: 0
) -> AnyServer:
    """``store`` is what ``open_store`` gave, and closed by the caller when the server is."""
    if isinstance(store, TableJournal):
        return MetadataServer(env, config, store, connections=connections)
    return MajorityServer(env, config, store)
