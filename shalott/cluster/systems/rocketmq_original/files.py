"""What the nodes' files hold of the log and the consume queues, compared when the group is at rest.

A program in the nodes (cluster/images/rocketmq/log_digest.py) reads the files themselves, and says
what it reads in the words of our own brokers' management API, so that both are compared by one
hand (cluster/systems/rocket/replicas.py). Who has a SyncStateSet compares its members; elsewhere
all that follow the master hold what it holds when no client writes. A group of DLedger is compared
as far as its leader has committed: only that is promised, and a former leader keeps what it has
cut away behind it in its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import Claim, Observation
from shalott.cluster.systems.rocket import replicas
from shalott.cluster.systems.settling import Observe
from shalott.core.errors import Definite, HarnessError, Indefinite

if TYPE_CHECKING:
    from shalott.core.history import Recorder

PROGRAM = ("python3", "/opt/rocketmq/log_digest.py", "/data/store")
OF_PATH = {"/api/shalott/log-digest": "log", "/api/shalott/queue-digest": "queues"}
OBSERVE_TIMEOUT_S = 5.0


async def record_files(
    cluster: Cluster, record: Recorder, nodes: Sequence[str], observe: Observe
) -> None:
    """Write a row ``replica`` for each (docs/architecture.md, the contract of the history)."""

    ends: dict[str, int] = {}  # by node, as its broker or its leader told them last

    async def get(node: str, path: str) -> replicas.Answer:
        done = await _run(cluster, node, words_of(path, ends.get(node)))
        try:
            answer: replicas.Answer = msgspec.json.decode(done)
        except msgspec.DecodeError as error:
            raise Definite(f"{node}'s files can't be read: {done.strip()[-200:]}") from error
        return answer

    async def ask(node: str) -> Observation:
        seen = await _observed(observe, node)
        others = await _answers(observe, [other for other in nodes if other != node])
        claims = [_synchronised(claim, node, others) for claim in seen["claims"]]
        for claim in claims:
            commits = claim.get("committed_offset") is not None
            end = _committed([seen, *others.values()]) if commits else claim.get("end_offset")
            if end is not None:
                ends[node] = int(end)
        return {**seen, "claims": claims}

    await replicas.record_logs(record, nodes, ask, get)


def _synchronised(claim: Claim, node: str, others: Mapping[str, Observation]) -> Claim:
    """With who should hold the same, where no set says so: the slaves that say they are."""
    if claim["role"] != "master" or claim["synchronised"] is not None:
        return claim
    following = [
        other
        for other, seen in others.items()
        if any(c["role"] == "slave" and c["master"] in (None, node) for c in seen["claims"])
    ]
    return {**claim, "synchronised": following}


def _committed(seen: Sequence[Observation]) -> int | None:
    """How far the leader of the highest term has committed; None if no node leads."""
    leads = [
        (int(claim["epoch"] or 0), int(claim["committed_offset"]))
        for answer in seen
        for claim in answer["claims"]
        if claim["role"] == "master" and claim.get("committed_offset") is not None
    ]
    return max(leads)[1] if leads else None


def words_of(path: str, end: int | None = None) -> tuple[str, ...]:
    """The program's arguments for what our own brokers are asked with that path.

    ``end``: how far the log goes, if a node says so. What lies behind that in the files was cut
    away, and not overwritten yet, or is no part of the log yet.
    """
    limit = () if end is None else (f"--end={end}",)
    split = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(split.query).items()}
    what = OF_PATH[split.path]
    if what == "queues":
        return (*limit, what, query.get("from", "0"))
    block = (query["block"],) if "block" in query else ()
    return (*limit, what, query.get("from", "0"), query.get("to", ""), *block)


async def _run(cluster: Cluster, node: str, words: Sequence[str]) -> str:
    try:
        done = await cluster.processes.run_command(
            node, (*PROGRAM, *words), replicas.ASK_TIMEOUT_MS
        )
    except HarnessError as error:
        raise Indefinite(str(error)) from error
    if done.exit_code != 0:
        raise Indefinite(f"{node}'s files can't be read: {done.output.strip()[-200:]}")
    return done.output


async def _answers(observe: Observe, nodes: Sequence[str]) -> dict[str, Observation]:
    """By node; of those that answer."""
    found = await asyncio.gather(
        *(_observed(observe, node) for node in nodes), return_exceptions=True
    )
    return {
        node: seen for node, seen in zip(nodes, found, strict=True) if isinstance(seen, Mapping)
    }


async def _observed(observe: Observe, node: str) -> Observation:
    try:
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            return await observe(node)
    except (HarnessError, OSError, TimeoutError) as error:
        raise Indefinite(str(error) or type(error).__name__) from error
