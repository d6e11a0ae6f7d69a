"""Settings of RocketMQ systems: what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS
from shalott.cluster.systems.rocket.settings import by_section, check_settings, setting_names
from shalott.core.errors import UsageError

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.unit


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_the_safe_profile_is_made_of_settings(system: str) -> None:
    check_settings(system, SAFE_SETTINGS[system])
    assert SAFE_SETTINGS[system]["store.flush"] == "sync"


def test_good_settings_pass() -> None:
    check_settings("controller", {"raft.heartbeat_interval_ms": 300, "store.flush": "sync"})
    check_settings("master-slave", {"broker.role": "SYNC_MASTER"})
    check_settings("dledger", {"name_server_scan_interval_ms": 2000})


Case = tuple[str, dict[str, Any], str]
REFUSED: dict[str, Case] = {
    "an unknown name": (
        "dledger", {"store.flsh": "sync"}, "no such setting; did you mean store.flush",
    ),
    "another system's section": (
        "dledger", {"ha.in_sync_replicas": 2}, "dledger has no such setting",
    ),
    "where nodes are": (
        "controller", {"broker.controller_addr": "h:1"}, "controller has no such setting",
    ),
    "what a node is": ("controller", {"broker.broker_id": 2}, "controller has no such setting"),
    "a role where there is none": ("controller", {"broker.role": "SYNC_MASTER"}, "no such setting"),
    "a slave as master": ("master-slave", {"broker.role": "SLAVE"}, "use ASYNC_MASTER"),
    "a word that is none": (
        "dledger", {"store.flush": "never"},
        "--policy store.flush=never: Invalid enum value 'never'",
    ),
    "a number that is too small": (
        "dledger", {"raft.max_heartbeat_leak": 0},
        "--policy raft.max_heartbeat_leak=0: Expected `int` >= 1",
    ),
    "a text for a number": (
        "dledger", {"name_server_scan_interval_ms": "soon"},
        "--policy name_server_scan_interval_ms=soon: Expected `int`, got `str`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_is_refused_in_one_sentence(case: str) -> None:
    system, settings, sentence = REFUSED[case]
    with pytest.raises(UsageError) as refusal:
        check_settings(system, settings)
    assert sentence in str(refusal.value)


def test_settings_are_sorted_into_sections() -> None:
    found = by_section({"store.flush": "sync", "ha.async_learner": True, WHOLE: 5})
    assert found == {"store": {"flush": "sync"}, "ha": {"async_learner": True}, "": {WHOLE: 5}}


WHOLE = "name_server_scan_interval_ms"


def test_every_name_that_is_listed_can_be_set() -> None:
    for system in LOG_SYSTEMS:
        assert "store.flush" in setting_names(system)
        assert len(set(setting_names(system))) == len(setting_names(system))
