"""Replicas of an original, compared by what their nodes' files hold and their brokers say."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from shalott.checkers.checker import Result
from shalott.checkers.runs.convergence import Convergence
from shalott.cluster.cluster import Cluster
from shalott.cluster.images.rocketmq.log_digest import answer
from shalott.cluster.nodes import CommandResult
from shalott.cluster.systems.rocket import replicas
from shalott.cluster.systems.rocketmq_original.files import PROGRAM, record_files
from shalott.core.errors import Indefinite
from shalott.core.memory_recording import MemoryRecorder

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
ENTRY_BYTES = 51


def entry(term: int) -> bytes:
    return struct.pack(">II", 1, ENTRY_BYTES) + bytes([term]) * 40 + b"abc"


class Ledgers:
    """Nodes with files of DLedger; ``n1`` leads, and has committed ``committed`` entries of it."""

    def __init__(self, directory: Path, terms: Mapping[str, Sequence[int]], committed: int) -> None:
        self.directory, self.committed = directory, committed
        self.silent: set[str] = set()
        self.processes = self
        for node, own in terms.items():
            data = directory / node / "dledger-n0" / "data"
            data.mkdir(parents=True)
            content = b"".join(entry(term) for term in own)
            (data / f"{0:020d}").write_bytes(content.ljust(1024, b"\0"))

    async def run_command(self, node: str, words: Sequence[str], timeout_ms: int) -> CommandResult:
        said = answer(self.directory / node, *words[len(PROGRAM) :])
        return CommandResult(0, msgspec.json.encode(said).decode())

    async def observe(self, node: str) -> Mapping[str, Any]:
        if node in self.silent:
            raise Indefinite("no answer")
        role = "master" if node == "n1" else "slave"
        # A follower hears of the leader's progress later.
        committed = ENTRY_BYTES * (self.committed - (node != "n1"))
        claim = {"group": "g", "role": role, "epoch": 3, "master": "n1", "synchronised": None}
        return {"claims": [{**claim, "end_offset": None, "committed_offset": committed}]}


def compared(it: Ledgers) -> Result:
    recorder = MemoryRecorder(time.monotonic_ns, time.time_ns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "STEP_TIMEOUT_S", 0.0)  # nobody writes: one look tells all
        asyncio.run(record_files(cast("Cluster", it), recorder, NODES, it.observe))
    recorder.close()
    return Convergence().check(recorder.history())


def test_members_that_hold_what_is_committed_agree(tmp_path: Path) -> None:
    result = compared(Ledgers(tmp_path, dict.fromkeys(NODES, (1, 1, 2)), committed=3))
    assert result.valid is True
    assert result.counts["synchronised-count"] == len(NODES) * 2


def test_what_an_old_leader_cut_away_is_not_compared(tmp_path: Path) -> None:
    """Its bytes stay in the file, whole entries among them, until something is written there."""
    terms = {"n1": (1, 1), "n2": (1, 1, 2, 2), "n3": (1, 1)}
    assert compared(Ledgers(tmp_path, terms, committed=2)).valid is True


@pytest.mark.parametrize("other", [(1, 1), (1, 1, 1), (1, 2, 2)])
def test_who_lacks_what_is_committed_or_has_another_entry_differs(
    tmp_path: Path, other: tuple[int, ...]
) -> None:
    terms = {"n1": (1, 1, 2), "n2": other, "n3": (1, 1, 2)}
    result = compared(Ledgers(tmp_path, terms, committed=3))
    assert [anomaly.kind for anomaly in result.anomalies] == ["diverged"]
    assert result.anomalies[0].detail["nodes"] == ["n1", "n2"]


def test_without_a_leader_nothing_is_compared(tmp_path: Path) -> None:
    it = Ledgers(tmp_path, {"n1": (1,), "n2": (1, 2), "n3": (1,)}, committed=1)
    it.silent.add("n1")
    result = compared(it)
    assert result.anomalies == ()
    assert result.counts["synchronised-count"] == 0
