"""Clusters that stand already, as compose started them and as units of systemd: what is wrong with
them is found, and nothing of ours is left on them, however the harness ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from shalott.core.plan import names_prefix
from tests.end_to_end.runs import Done, Running, shalott
from tests.world.cluster.compose_project import ComposeProject, compose_project
from tests.world.cluster.systemd_hosts import systemd_hosts

pytestmark = [
    pytest.mark.docker,
    pytest.mark.nightly("boots a compose project and hosts with systemd, and runs on them"),
]

LEASE_S = 15  # machines are shared
KINDS = ("compose", "systemd", "commands")
ALL = pytest.mark.parametrize("stands", KINDS, indirect=True)


class Stands(Protocol):
    """A cluster of three nodes, the first of which is the master."""

    @property
    def names(self) -> Sequence[str]: ...

    def inventory(self, **more: str) -> str: ...

    def leftovers(self) -> Sequence[str]: ...


@pytest.fixture(scope="module")
def stands(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stands]:
    made = tmp_path_factory.mktemp(request.param)
    if request.param == "compose":
        with compose_project(made) as project:
            yield project
    else:
        with systemd_hosts(made, 3, by_commands=request.param == "commands") as hosts:
            yield hosts


def words(cluster: Stands, directory: Path, *more: str, **inventory: str) -> list[str]:
    """The command, on an inventory that is written first."""
    path = directory / "inventory.toml"
    path.write_text(cluster.inventory(lease_s=str(LEASE_S), **inventory))
    plugin = ("--load", "tests.world.cluster.redis_queues", "--system", "redis-there")
    where = ("--cluster", "existing", "--inventory", str(path))
    return ["test", *plugin, *where, "--rate", "100", *more]


def on_master(cluster: Stands) -> list[str]:
    """Its master is killed twice."""
    return [
        *("--nemesis", "kill", "--targets", cluster.names[0], "--time-limit", "14"),
        *("--nemesis-interval", "5", "--nemesis-duration", "2"),
    ]


def assert_left_as_found(cluster: Stands, run: Done) -> None:
    assert cluster.leftovers() == []
    assert [note for note in run.results.notes if "Nothing of the run is left" in note], run


@ALL
def test_nothing_is_touched_before_someone_said_that_it_may(stands: Stands, tmp_path: Path) -> None:
    run = shalott(words(stands, tmp_path, *on_master(stands)), tmp_path)
    assert run.exit_code == 254, run
    for name in stands.names:
        assert f"  {name}: " in run.stderr
    assert "--i-may-break-this" in run.complaints[-1]
    assert not (tmp_path / "store" / "latest").exists()
    assert stands.leftovers() == []


@ALL
def test_that_nothing_is_written_down_is_found(stands: Stands, tmp_path: Path) -> None:
    run = shalott(words(stands, tmp_path, *on_master(stands), may_break="true"), tmp_path)
    assert run.exit_code == 1, run
    assert run.counts("total-queue")["lost-count"] > 0
    prefix = names_prefix(run.plan)
    assert prefix and all(row["key"].startswith(prefix) for row in run.rows("enqueue"))
    assert_left_as_found(stands, run)


@ALL
def test_every_kind_of_fault_is_made_and_healed(stands: Stands, tmp_path: Path) -> None:
    kinds = "stop,pause,partition-one,delay,loss,rate,client-cut,disk-full"
    more = ["--nemesis", kinds, "--time-limit", "20", "--nemesis-interval", "8"]
    more += ["--nemesis-duration", "4", "--i-may-break-this", "--seed", "7"]
    data = "/data" if isinstance(stands, ComposeProject) else ""
    inventory = {"data": f'"{data}"'} if data else {}
    run = shalott(words(stands, tmp_path, *more, **inventory), tmp_path)
    assert run.exit_code in (0, 1, 2), run
    proved = {row["f"] for row in run.history.ops.to_pylist() if row["process"] == -1}
    assert {*kinds.split(",")} <= proved
    assert_left_as_found(stands, run)


@ALL
def test_a_protected_node_is_never_hit(stands: Stands, tmp_path: Path) -> None:
    more = ["--nemesis", "pause,partition", "--time-limit", "12", "--nemesis-interval", "3"]
    more += ["--nemesis-duration", "1", "--i-may-break-this", "--targets", "all"]
    first, *others = stands.names
    path = tmp_path / "inventory.toml"
    command = words(stands, tmp_path, *more)
    text = path.read_text()
    head = f"[nodes.{first}]\n"
    if head in text:
        path.write_text(text.replace(head, f"{head}faults = []\n"))
    else:
        nodes = "".join(f'[nodes.{name}]\nservice = "{name}"\n' for name in stands.names)
        path.write_text(f"{text}{nodes}".replace(head, f"{head}faults = []\n"))
    run = shalott(command, tmp_path)
    assert run.exit_code in (0, 2), run
    told = [json.loads(row["extra"]) for row in run.history.ops.to_pylist() if row["process"] == -1]
    made = [fault for fault in told if "effects" in fault and not fault.get("skipped")]
    hit = [
        name
        for fault in made
        for name in (*fault["nodes"], *(end for link in fault["links"] for end in link))
    ]
    assert {*hit} == {*others}
    assert f"never broken: {first}" in run.stderr
    assert_left_as_found(stands, run)


@ALL
def test_a_killed_harness_leaves_nothing_after_the_switch(stands: Stands, tmp_path: Path) -> None:
    one, two, three = stands.names
    steps = f"kill {two}; pause {three}; delay {one}; partition-one {one}"
    more = ["--nemesis", "none", "--sequence", steps, "--time-limit", "60", "--i-may-break-this"]
    with Running(words(stands, tmp_path, *more), tmp_path) as running:
        running.await_recorded(last_is_proved, "all four were in force")
        assert len(stands.leftovers()) >= 4
        running.end(signal.SIGKILL)
    wait_for(lambda: not stands.leftovers(), LEASE_S + 60)  # a busy machine looks slowly


def test_what_is_taken_from_containers_is_given_back_whoever_ends(tmp_path: Path) -> None:
    steps = "cpu-starve redis1; fork-bomb redis2; pause-process redis3; fd-exhaust redis1"
    with compose_project(tmp_path / "project") as stands:
        healed = f"{steps}; wait 2s; end; memory-limit redis2; wait 2s; end"
        more = ["--nemesis", "none", "--sequence", healed, "--time-limit", "20"]
        run = shalott(words(stands, tmp_path, *more, "--i-may-break-this"), tmp_path)
        assert run.exit_code in (0, 1, 2), run
        proved = [row["f"] for row in run.history.ops.to_pylist() if row["process"] == -1]
        assert {*re.findall(r"[a-z-]+(?= redis)", healed)} <= {*proved}
        assert_left_as_found(stands, run)
        more = ["--nemesis", "none", "--sequence", steps, "--time-limit", "60"]
        with Running(words(stands, tmp_path, *more, "--i-may-break-this"), tmp_path) as running:
            running.await_recorded(last_is_proved, "all four were in force")
            assert len(stands.leftovers()) >= 3
            running.end(signal.SIGKILL)
        wait_for(lambda: not stands.leftovers(), LEASE_S + 60)
        limits = Path(f"/proc/{stands.inspect('redis1', '.State.Pid')}/limits").read_text()
        assert re.search(r"Max open files +(\d{4,})", limits)


def test_what_a_killed_guardian_left_is_undone_by_clean(tmp_path: Path) -> None:
    with compose_project(tmp_path / "project") as stands:
        more = ["--nemesis", "none", "--sequence", "pause redis3; partition-one redis1"]
        more += ["--time-limit", "60", "--i-may-break-this"]
        with Running(words(stands, tmp_path, *more), tmp_path) as running:
            wait_for(lambda: stands.inspect("redis3", ".State.Status") == "paused", 40)
            ask = ["pgrep", "-P", str(running.pid), "-f", "existing.guardian"]
            pids = subprocess.run(ask, capture_output=True, text=True).stdout.split()
            assert pids
            for pid in (str(running.pid), *pids):
                subprocess.run(["kill", "-STOP", pid], check=False)
            for pid in (*pids, str(running.pid)):
                subprocess.run(["kill", "-KILL", pid], check=False)
        assert stands.inspect("redis3", ".State.Status") == "paused"
        cleaned = shalott(["clean"], tmp_path)
        assert "undid the faults" in cleaned.stdout + cleaned.stderr
        assert stands.leftovers() == []


def test_with_what_is_written_down_nothing_is_lost(tmp_path: Path) -> None:
    """Nothing is received before the end: of an RPOP whose answer a kill cuts off all is gone."""
    more = ["--enqueue-fraction", "1", "--i-may-break-this"]
    with compose_project(tmp_path / "project", aof=True) as stands:
        run = shalott(words(stands, tmp_path, *on_master(stands), *more), tmp_path)
        assert run.exit_code == 0, run
        assert run.counts("total-queue")["lost-count"] == 0
        assert_left_as_found(stands, run)


def test_files_are_damaged_where_the_inventory_says_and_data_is_never_wiped(tmp_path: Path) -> None:
    with compose_project(tmp_path / "project", aof=True) as stands:
        files = "files=appendonlydir/*.incr.aof,amount=1"
        more = ["--nemesis", "corrupt-files", "--targets", "redis3", "--time-limit", "14"]
        more += ["--fault", f"corrupt-files:{files}", "--i-may-break-this"]
        run = shalott(words(stands, tmp_path, *more, data='"/data"'), tmp_path)
        changed = [
            change for row in run.rows("corrupt-files") for change in row["extra"]["changed"]
        ]
        assert changed and {change["node"] for change in changed} == {"redis3"}
        # A replica whose log is damaged may refuse to start: then that is told, and it is left.
        if run.exit_code == 255:
            assert "redis3: its container is" in run.complaints[-1]
        else:
            assert_left_as_found(stands, run)


def test_a_node_that_is_down_is_refused_unless_it_may_be_started(tmp_path: Path) -> None:
    with compose_project(tmp_path / "project") as stands:
        stands.compose("stop", "-t", "1", "redis3")
        more = ["--nemesis", "none", "--time-limit", "3", "--i-may-break-this"]
        refused = shalott(words(stands, tmp_path, *more), tmp_path)
        assert refused.exit_code == 254, refused
        assert "redis3 (exited) does not run" in refused.complaints[-1]
        run = shalott(words(stands, tmp_path, *more, start_down="true"), tmp_path)
        assert run.exit_code in (0, 2), run
        assert_left_as_found(stands, run)


def last_is_proved(records: Sequence[Mapping[str, Any]]) -> bool:
    proofs = [json.loads(record.get("extra") or "{}") for record in records]
    return any(proof.get("fault") == 4 and "phase" in proof for proof in proofs)


def wait_for(holds: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
