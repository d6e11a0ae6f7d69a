"""Worlds and fakes are in tests/world, and one that is not is found."""

from __future__ import annotations

import pytest

from tests.tidy.sources import parse, python_sources
from tests.tidy.worlds import MEANT, astray, stand_ins

pytestmark = pytest.mark.lint


def test_stand_ins_are_in_the_tests_world() -> None:
    found = list(astray(python_sources()))
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_needed() -> None:
    seen = {each for source in python_sources() for each in stand_ins(source)}
    assert sorted(MEANT.keys() - seen) == []


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("tests/broker/raft/test_core.py", "class FakeDisk:\n    pass\n", "FakeDisk"),
        ("tests/broker/raft/test_core.py", "x = 1\n\nclass RaftWorld(Base):\n", "RaftWorld"),
        ("tests/broker/raft/test_core.py", "class MemoryQueue:\n", "MemoryQueue"),
        ("tests/broker/raft/test_core.py", "class NoEvents:\n", "NoEvents"),
        ("tests/nemesis/fakes.py", "", "fakes"),
        ("tests/broker/rabbit/cluster_fixture.py", "", "cluster_fixture"),
        ("tests/harness/memory_cluster.py", "", "memory_cluster"),
        ("tests/broker/rocket/gm_world.py", "", "gm_world"),
    ],
)
def test_a_private_stand_in_is_found(path: str, text: str, name: str) -> None:
    assert list(stand_ins(parse(path, text))) == [(path, name)]
    assert len(list(astray([parse(path, text)]))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/world/raft/memory_disk.py", "class FakeDisk:\n    pass\n"),
        ("shalott/core/memory_recording.py", "class MemoryRecorder:\n"),
        ("tests/nemesis/test_worlds.py", "class Fakery:\n    '''class FakeDisk'''\n"),
        ("tests/nemesis/test_faked.py", "def world() -> None: ...\n"),
    ],
)
def test_other_names_are_free(path: str, text: str) -> None:
    assert list(stand_ins(parse(path, text))) == []
