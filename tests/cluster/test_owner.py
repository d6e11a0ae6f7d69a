"""Owners: only what is known to be dead is dead."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from shalott.cluster.owner import (
    Owner,
    liveness,
    parse_owner,
    process_state,
    runs,
    start_ticks,
    this_process,
)

pytestmark = pytest.mark.unit


def test_this_process_lives_and_survives_writing_down() -> None:
    owner = this_process()
    assert parse_owner(str(owner)) == owner
    assert liveness(owner) == "alive"


@pytest.mark.parametrize("text", ["", "1:2:3", "x:1:a:b:c", "1:y:a:b:c"])
def test_what_is_no_owner_is_not_parsed(text: str) -> None:
    assert parse_owner(text) is None


def changed(**fields: object) -> Owner:
    return dataclasses.replace(this_process(), **fields)  # type: ignore[arg-type]


def test_a_reused_process_id_is_somebody_else() -> None:
    assert liveness(changed(start_ticks=this_process().start_ticks - 1)) == "dead"


def test_nothing_survives_a_reboot() -> None:
    assert liveness(changed(boot="00000000")) == "dead"


def test_other_machines_and_namespaces_are_unknown() -> None:
    assert liveness(changed(machine="elsewhere")) == "unknown"
    assert liveness(changed(machine="elsewhere", boot="00000000")) == "unknown"
    assert liveness(changed(pid_namespace="1")) == "unknown"


def test_a_zombie_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE) as process:
        ticks = start_ticks(process.pid)
        assert ticks is not None
        assert process.stdout is not None
        process.stdout.read()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_state(process.pid) == "Z"
        assert not runs(process.pid, ticks)


def test_an_absent_process_has_no_state() -> None:
    assert process_state(2**22 + 1) == ""
    assert start_ticks(2**22 + 1) is None
