"""Who runs first: the harness's threads, while a run lasts, and none of the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shalott.cluster.docker.namespaces import run_program
from shalott.cluster.local.nodes import Program
from shalott.cluster.local.processes import launch
from shalott.cluster.precedence import children_first, go_first, may_go_first, threads_first

pytestmark = pytest.mark.unit

SAY_CLASS = "import os; print(os.sched_getscheduler(0))"
FIRST = os.SCHED_RR | os.SCHED_RESET_ON_FORK


needs_the_class = pytest.mark.skipif(
    not may_go_first(), reason="this machine gives nobody the real-time class"
)


def class_of_a_child() -> int:
    done = subprocess.run([sys.executable, "-c", SAY_CLASS], capture_output=True, check=True)
    return int(done.stdout)


@needs_the_class
def test_threads_go_first_and_are_ordinary_afterwards() -> None:
    over = threading.Event()
    old, young = (threading.Thread(target=over.wait) for _ in range(2))
    old.start()
    try:
        with threads_first() as renew:
            young.start()
            assert old.native_id and young.native_id
            assert os.sched_getscheduler(0) == os.sched_getscheduler(old.native_id) == FIRST
            assert os.sched_getscheduler(young.native_id) == os.SCHED_OTHER
            renew()
            assert os.sched_getscheduler(young.native_id) == FIRST
        for thread in (0, old.native_id, young.native_id):
            assert os.sched_getscheduler(thread) == os.SCHED_OTHER
    finally:
        over.set()


@needs_the_class
def test_who_was_first_before_stays_so() -> None:
    with threads_first():
        with threads_first():
            pass
        assert os.sched_getscheduler(0) == FIRST


@needs_the_class
def test_a_child_goes_first_only_where_it_is_said() -> None:
    with children_first():
        assert class_of_a_child() == os.SCHED_OTHER  # its parent is
    with threads_first():
        assert class_of_a_child() == os.SCHED_OTHER
        with children_first():
            assert class_of_a_child() == os.SCHED_RR
        assert os.sched_getscheduler(0) == FIRST
        assert class_of_a_child() == os.SCHED_OTHER


@needs_the_class
def test_a_run_that_ends_while_a_child_starts_leaves_an_ordinary_thread() -> None:
    with contextlib.ExitStack() as starting:
        with threads_first():
            starting.enter_context(children_first())
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@needs_the_class
def test_the_hosts_programs_go_first_and_nodes_do_not(tmp_path: Path) -> None:
    async def both() -> tuple[str, str]:
        program = Program(
            command=(sys.executable, "-c", SAY_CLASS),
            directory=tmp_path,
            environment={},
            output=tmp_path / "printed",
        )
        with threads_first():
            ran = await run_program(sys.executable, "-c", SAY_CLASS)
            node = await launch(program)
            await node.wait()
        return ran.output.strip(), program.output.read_text().strip()

    assert asyncio.run(both()) == (str(int(os.SCHED_RR)), str(int(os.SCHED_OTHER)))


def test_without_the_right_all_stay_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with threads_first() as renew, children_first():
        renew()
        assert not go_first() and not may_go_first()
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
