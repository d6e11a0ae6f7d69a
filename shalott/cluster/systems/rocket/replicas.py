"""What every broker's log holds, byte for byte, and the consume queues on it, in any world.

Asked for when the group has settled and before everything is read, over the management API
(broker/rocket/node/log_digest.py), so that simulated, local and contained nodes are judged by the
same answers. A broker has three replicas to compare: its log, from its first byte to where its
readers may read, what its consume queues say, for queues may differ on equal logs, and its tables
of topics and groups, which slaves copy from time to time. A synchronised slave holds what its
master holds; how far readers may read reaches it a heartbeat later, which is waited for, and so are
tables. Where logs differ all the same, smaller and smaller blocks are asked for, down to the
first byte.

One row a replica goes into the history: f = ``replica``, the node's, ``extra`` = {"group", "role",
"epoch", "depth", "unit", "digest", "synchronised", "differs_at"?}; a node that can't be asked has
one of type info. checkers/runs/convergence.py judges them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shalott.cluster.system import Claim, Observation
from shalott.core.errors import ClientError
from shalott.core.op import NEMESIS, Completion, Invocation

if TYPE_CHECKING:
    from shalott.core.history import Recorder

QUEUES, TABLES = "queues", "tables"  # appended to the group's name
STEP_TIMEOUT_S = 25.0  # for what is still under way: tables are copied every ten seconds
FIRST_POLL_S, LAST_POLL_S = 0.05, 1.0  # each look reads every byte of every log
ASK_TIMEOUT_MS = 10_000
# Of the blocks in which the first byte that differs is looked for, each divides the one before.
BLOCKS_BYTES = (1 << 16, 1 << 10, 1 << 4, 1)

Answer = Observation  # of the management API
Get = Callable[[str, str], Awaitable[Answer]]  # (node, path) to what the management API answers
Observe = Callable[[str], Awaitable[Observation]]


@dataclass(frozen=True, slots=True)
class Held:
    """What one broker holds. ``error``: why that can't be said."""

    node: str
    claim: Claim
    start: int = 0
    readable: int = 0
    end: int = 0
    log: str = ""
    message_count: int = 0
    queues: str = ""
    tables: str = ""
    entry_count: int = 0
    error: str = ""

    @property
    def contents(self) -> tuple[object, ...]:
        own = (self.start, self.readable, self.log, self.message_count, self.queues)
        return (*own, self.entry_count, self.tables)


async def record_logs(
    record: Recorder,
    nodes: Sequence[str],
    observe: Observe,
    get: Get,
    *,
    have_tables: bool = False,
) -> None:
    """Compare and write down, as soon as who is synchronised holds the same, or after a while as it
    is. ``have_tables``: their digests can be asked for."""
    loop = asyncio.get_running_loop()
    deadline_s, poll_s = loop.time() + STEP_TIMEOUT_S, FIRST_POLL_S
    while True:
        held = await _look(nodes, observe, get, have_tables)
        if _in_step(held) or loop.time() > deadline_s:
            break
        await asyncio.sleep(poll_s)
        poll_s = min(2 * poll_s, LAST_POLL_S)
    master, named = _master(held), synchronised(held)
    for each in held:
        differs_at = None
        if master is not None and each.node in named and each.contents != master.contents:
            differs_at = await _first_difference(master, each, get)
        _write_down(record, each, named, differs_at)


async def _look(nodes: Sequence[str], observe: Observe, get: Get, have_tables: bool) -> list[Held]:
    """Every broker's, from where the last of their logs begins."""
    found: dict[str, tuple[Claim, Answer]] = {}
    held: list[Held] = []
    for node in nodes:
        try:
            claims = (await observe(node))["claims"]
            if claims:
                found[node] = (claims[0], await _blocks(node, get, end=0))
        except ClientError as error:
            held.append(Held(node, {}, error=str(error)))
    start = max((ends["min_offset"] for _, ends in found.values()), default=0)
    for node, (claim, ends) in found.items():
        try:
            held.append(await _held(node, claim, ends, start, get, have_tables))
        except ClientError as error:
            held.append(Held(node, {}, error=str(error)))
    return held


async def _held(
    node: str, claim: Claim, ends: Answer, start: int, get: Get, have_tables: bool
) -> Held:
    """Raises ClientError."""
    blocks = hashlib.blake2b(str(start).encode(), digest_size=8)
    end, at = ends["readable_offset"], start
    answer: Answer = {}
    while at < end:
        answer = await _blocks(node, get, start=at, end=end)
        if "unreadable" in answer or answer["next"] <= at:
            break
        for digest in answer["digests"]:
            blocks.update(digest.encode())
        at = answer["next"]
    queues = await get(node, f"/api/shalott/queue-digest?from={start}")
    tables = await get(node, "/api/shalott/table-digest") if have_tables else {}
    log, content = _or_unreadable(node, answer, blocks.hexdigest()), queues.get("digest", "")
    return Held(
        node,
        claim,
        start=start,
        readable=end,
        end=ends["max_offset"],
        log=log,
        message_count=queues.get("count", 0),
        queues=_or_unreadable(node, queues, content),
        tables=str(tables.get("digest", "")),
        entry_count=tables.get("count", 0),
    )


def _or_unreadable(node: str, answer: Answer, digest: str) -> str:
    reason = answer.get("unreadable")
    return digest if reason is None else f"unreadable on {node}: {reason}"


async def _blocks(
    node: str, get: Get, *, start: int = 0, end: int | None = None, block: int = BLOCKS_BYTES[0]
) -> Answer:
    """Raises ClientError."""
    to = "" if end is None else f"&to={end}"
    answer: Answer = await get(node, f"/api/shalott/log-digest?from={start}&block={block}{to}")
    return answer


# -- who is compared with whom ---------------------------------------------------------------------


def _master(held: Sequence[Held]) -> Held | None:
    """Of several the one of the highest epoch."""
    masters = [each for each in held if each.claim.get("role") == "master"]
    return max(masters, key=lambda each: (each.claim["epoch"], each.node), default=None)


def synchronised(held: Sequence[Held]) -> tuple[str, ...]:
    """Who the master says is synchronised, itself first."""
    master = _master(held)
    if master is None:
        return ()
    return (master.node, *(str(name) for name in master.claim.get("synchronised") or ()))


def _in_step(held: Sequence[Held]) -> bool:
    """Whether everybody answers, and all that are synchronised hold the same."""
    named = synchronised(held)
    contents = [each.contents for each in held if each.node in named]
    return not any(each.error for each in held) and all(one == contents[0] for one in contents)


async def _first_difference(master: Held, other: Held, get: Get) -> int | None:
    """The first byte of both logs that differs; None if there is none, or that can't be said."""
    start, end = other.start, min(master.end, other.end)
    for block in BLOCKS_BYTES:
        try:
            found = await _first_block(master.node, other.node, get, start, end, block)
        except ClientError:
            return None
        if found is None:
            return None
        start, end = found
    return start


async def _first_block(
    one: str, other: str, get: Get, start: int, end: int, block: int
) -> tuple[int, int] | None:
    """The first block of [start, end) that differs. Raises ClientError."""
    while start < end:
        mine, its = [
            await _blocks(node, get, start=start, end=end, block=block) for node in (one, other)
        ]
        if "unreadable" in mine or "unreadable" in its:
            return None
        for left, right in zip(mine["digests"], its["digests"], strict=False):
            border = min(end, start - start % block + block)
            if left != right:
                return start, border
            start = border
        if start < mine["next"] or not mine["digests"]:
            return None  # a log was cut meanwhile
    return None


def _write_down(record: Recorder, held: Held, named: Sequence[str], differs_at: int | None) -> None:
    if held.error:
        index = record.invoke(NEMESIS, held.node, Invocation(f="replica"))
        record.complete(index, Completion(type="info", error=held.error))
        return
    claim, group = held.claim, str(held.claim["group"])
    where: dict[str, int] = {} if differs_at is None else {"differs_at": differs_at}
    replicas: list[tuple[str, int, str, str, dict[str, int]]] = [
        (group, held.readable - held.start, "bytes", held.log, where),
        (f"{group} {QUEUES}", held.message_count, "messages", held.queues, {}),
    ]
    if held.tables:
        replicas.append((f"{group} {TABLES}", held.entry_count, "entries", held.tables, {}))
    for name, depth, unit, digest, more in replicas:
        extra = {
            "group": name,
            "role": claim["role"],
            "epoch": claim["epoch"],
            "depth": depth,
            "unit": unit,
            "digest": digest,
            "synchronised": held.node in named or claim["role"] == "master",
            **more,
        }
        index = record.invoke(NEMESIS, held.node, Invocation(f="replica"))
        record.complete(index, Completion(type="ok", extra=extra))
