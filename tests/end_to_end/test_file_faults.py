"""Files that are damaged on real nodes: what was changed is told, on this machine and on hosts over
SSH. What the broker makes of it is not looked at here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Done, shalott
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

pytestmark = pytest.mark.local
CUT = 2000  # bytes: the last of them may have been under way when the node was killed


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


def damaged(kind: str, words: str, world: Sequence[str], node: str, store: Path) -> Done:
    """One fault of one node of three that replicate a log, between a kill and the start."""
    return shalott(
        ["test", "--system", "dledger", "--profile", "safe", "--nemesis", kind,
         "--fault", f"{kind}:files=dledger/data/*,down=true,target={node},{words}",
         "--nemesis-interval", "6", "--nemesis-duration", "1", "--time-limit", "10",
         "--rate", "40", "--seed", "1", *world],
        store,
    )  # fmt: skip


def the_fault(done: Done, kind: str) -> dict[str, Any]:
    (row,) = (row for row in done.rows(kind) if row["type"] == "info")
    extra: dict[str, Any] = row["extra"]
    assert extra["proved_effective"] and extra["proved_healed"], (row, done)
    return extra


def test_bits_that_flip_on_this_machine_are_told(tmp_path: Path) -> None:
    done = damaged("corrupt-files", "amount=4", ("--cluster", "local"), "n2", tmp_path)
    row = the_fault(done, "corrupt-files")
    assert len(row["changed"]) == 4 and row["changes_left"] == {"n2": 4}
    for change in row["changed"]:
        assert (change["node"], change["file"]) == ("n2", f"dledger/data/{0:020d}")
        assert (int(change["was"], 16) ^ int(change["now"], 16)).bit_count() == 1
        assert change["offset"] >= 0 and change["around"]
    assert leftovers(done) == []


@pytest.mark.nightly("most of two minutes; bits flip on this machine by day")
def test_an_end_that_is_cut_on_a_host_is_told(hosts: Hosts, tmp_path: Path) -> None:
    world = ("--cluster", "ssh", *hosts.flags())
    done = damaged("truncate-files", f"amount={CUT}", world, "n2", tmp_path)
    row = the_fault(done, "truncate-files")
    (change,) = row["changed"]
    assert change["node"] == "n2" and change["cut_bytes"] == CUT
    assert change["offset"] + CUT == change["size_before"] and change["was"]
    assert row["changes_left"] == {"n2": 1}
    assert hosts.leftovers() == []
