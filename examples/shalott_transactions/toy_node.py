"""A node of toy-transactions: a store of lists and registers under transactions.

The first node is the leader. It runs each transaction under one lock, writes its commit into a
journal that it syncs, and answers then; the others pass transactions on to it, and copy its commits
now and then. So all is strict serializable, until one rule is broken: see ``RULES``.

    python -m shalott_transactions.toy_node NODE.JSON
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from shalott.api import (
    ClientError,
    Disk,
    Endpoint,
    Request,
    Response,
    Stream,
    json_response,
)
from shalott_registers.client import ask
from shalott_toys.node import ABORTED, ASK_TIMEOUT_MS, Journal, pass_on, run_alone, serve

COPY_EVERY_S = 0.3

Mop = tuple[str, int, Any]
Values = dict[int, Any]

Rule = Literal[
    "none",
    "dirty-read",  # readers need no lock: they see what is not committed, and may abort
    "dirty-write",  # nobody needs a lock, and what aborts stays
    "lost-update",  # works on a snapshot and puts whole values back, whoever wrote meanwhile
    "write-skew",  # works on a snapshot; only two writers of one key are in conflict
    "read-committed",  # each read sees what is committed at that moment
    "hidden-own-write",  # reads see the snapshot without the transaction's own writes
    "lying-abort",  # some that are committed are said to be aborted
    "commit-twice",  # a node that had no answer in time asks again: it may be done twice
    "unsynced-commit",  # the answer does not wait for the journal
    "stale-snapshot",  # who only reads is answered from the node's own copy
    "torn-replication",  # the same, and a copy takes over a commit key by key
    "reordered-replication",  # the same, and copies take over independent commits in any order
]
RULES: tuple[Rule, ...] = get_args(Rule)
COPIES = ("stale-snapshot", "torn-replication", "reordered-replication")
SNAPSHOTS = ("lost-update", "write-skew", "hidden-own-write")


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    listen: Endpoint
    leader: Endpoint | None  # None: it is this one
    breaks: Rule
    seed: int


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """What a transaction wrote, and which keys it read."""

    writes: tuple[Mop, ...]
    reads: tuple[int, ...]

    def touches(self, other: Commit) -> bool:
        """Whether they can't be exchanged."""
        own, others = ({key for _, key, _ in each.writes} for each in (self, other))
        return bool(own & (others | {*other.reads}) or others & {*self.reads})


class Aborted(Exception):
    """The transaction, by the store."""


def put(values: Values, mop: Mop) -> None:
    f, key, value = mop
    values[key] = [*values.get(key, ()), value] if f == "append" else value


class Node:
    """One life of a node, on the disk of its earlier ones."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self.config, self._journal = config, Journal(disk)
        self._rule = config.breaks
        self._values: Values = {}
        self._commits: list[Commit] = []  # at a follower: those that it has copied
        self._written: dict[int, int] = {}  # how many commits there were behind the key's last
        self._lock = asyncio.Lock()
        self._drawn = Stream(config.seed, "toy-transactions", config.name)

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._journal.open(self._read)
        await serve(self.config.listen, self._respond)
        while True:
            await asyncio.sleep(COPY_EVERY_S * (0.5 + self._drawn.random()))
            if self.config.leader is not None and self._rule in COPIES:
                await self._copy(self.config.leader)

    async def _respond(self, request: Request) -> Response:
        path, body = "/" + "/".join(request.segments), msgspec.json.decode(request.body or b"{}")
        if path == "/status":
            return json_response({"leader": self.config.leader is None})
        if path == "/commits":
            return json_response(self._commits[body["from"] :])
        mops = msgspec.convert(body["mops"], tuple[Mop, ...])
        if self._rule in COPIES and all(f == "r" for f, _, _ in mops):
            return json_response([self._do(self._values, mop) for mop in mops])
        if self.config.leader is not None:
            tries, timeout_ms = (3, 150) if self._rule == "commit-twice" else (1, ASK_TIMEOUT_MS)
            return await pass_on(self.config.leader, body, tries=tries, timeout_ms=timeout_ms)
        try:
            return json_response(await self._transact(mops))
        except Aborted:
            return json_response({"error": "aborted"}, ABORTED)

    def _read(self, line: bytes) -> None:
        self._take(msgspec.json.decode(line, type=Commit))

    # -- what the leader does ----------------------------------------------------------------------

    async def _transact(self, mops: Sequence[Mop]) -> list[Mop]:
        only_reads = all(f == "r" for f, _, _ in mops)
        if self._rule == "dirty-write" or (self._rule == "dirty-read" and only_reads):
            return await self._in_place(mops)
        if self._rule == "dirty-read":
            async with self._lock:
                return await self._in_place(mops)
        if self._rule in SNAPSHOTS:
            return await self._on_snapshot(mops)
        if self._rule == "read-committed":
            return await self._on_committed(mops)
        async with self._lock:
            own = dict(self._values)
            done = [self._do(own, mop) for mop in mops]
            await self._commit(mops)
        if self._rule == "lying-abort" and self._drawn.random() < 0.05:
            raise Aborted
        return done

    def _do(self, values: Values, mop: Mop) -> Mop:
        f, key, _ = mop
        if f == "r":
            return f, key, values.get(key)
        put(values, mop)
        return mop

    async def _look(self) -> None:
        """As if the next value were on the disk: others go on meanwhile."""
        await asyncio.sleep(0.001 + 0.02 * self._drawn.random())

    async def _in_place(self, mops: Sequence[Mop]) -> list[Mop]:
        before, done = dict(self._values), []
        for mop in mops:
            done.append(self._do(self._values, mop))
            await self._look()
        writes = tuple(mop for mop in mops if mop[0] != "r")
        if writes and self._drawn.random() < 0.1:
            if self._rule == "dirty-read":
                self._values = before
            raise Aborted
        await self._write_down(Commit(writes, ()))
        return done

    async def _on_snapshot(self, mops: Sequence[Mop]) -> list[Mop]:
        began, snapshot = len(self._commits), dict(self._values)
        own, done = dict(snapshot), []
        for mop in mops:
            seen = self._do(own, mop)
            if mop[0] == "r" and self._rule == "hidden-own-write":
                seen = self._do(snapshot, mop)
            done.append(seen)
            await self._look()
        async with self._lock:
            keys = {key for f, key, _ in mops if f != "r"}
            if self._rule == "lost-update":
                await self._commit([("w", key, own[key]) for key in sorted(keys)])
                return done
            read = {key for _, key, _ in mops} if self._rule == "hidden-own-write" else set()
            if any(self._written.get(key, 0) > began for key in keys | read):
                raise Aborted
            await self._commit(mops)
        return done

    async def _on_committed(self, mops: Sequence[Mop]) -> list[Mop]:
        done: list[Mop] = []
        for mop in mops:
            now = dict(self._values)
            for own in done:
                if own[0] != "r":
                    put(now, own)
            done.append(self._do(now, mop))
            await self._look()
        async with self._lock:
            await self._commit(mops)
        return done

    async def _commit(self, mops: Sequence[Mop]) -> None:
        writes = tuple(mop for mop in mops if mop[0] != "r")
        if not writes:
            return
        commit = Commit(writes, tuple(key for f, key, _ in mops if f == "r"))
        await self._write_down(commit)
        self._take(commit)

    async def _write_down(self, commit: Commit) -> None:
        await self._journal.append(commit, is_synced=self._rule != "unsynced-commit")

    def _take(self, commit: Commit) -> None:
        self._commits.append(commit)
        for mop in commit.writes:
            put(self._values, mop)
            self._written[mop[1]] = len(self._commits)

    # -- what followers do -------------------------------------------------------------------------

    async def _copy(self, leader: Endpoint) -> None:
        try:
            found = await ask(leader, "/commits", {"from": len(self._commits)}, ASK_TIMEOUT_MS)
        except ClientError:
            return  # what it has is old, and it does not say so
        commits = msgspec.convert(found, list[Commit])
        if self._rule == "reordered-replication":
            commits = await self._late(commits)
        for commit in commits:
            if self._rule != "torn-replication":
                self._take(commit)
                continue
            self._commits.append(commit)
            for mop in commit.writes:
                put(self._values, mop)
                await asyncio.sleep(COPY_EVERY_S * self._drawn.random())

    async def _late(self, commits: list[Commit]) -> list[Commit]:
        """Each copy has keys whose commits it keeps back for a while, and what can be exchanged
        with these it does not keep back."""
        late: list[Commit] = []
        for commit in commits:
            slow = any(self._is_slow(key) for _, key, _ in commit.writes)
            if slow or any(commit.touches(other) for other in late):
                late.append(commit)
            else:
                self._take(commit)
        await asyncio.sleep(4 * COPY_EVERY_S * self._drawn.random())
        return late

    def _is_slow(self, key: int) -> bool:
        return Stream(self.config.seed, self.config.name, key).below(2) == 0


if __name__ == "__main__":
    run_alone(NodeConfig, Node)
