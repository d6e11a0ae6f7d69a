"""Policies: which one is in force, what it may hold, which nodes it wants."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.rabbit.metadata.policies import match, merged
from shalott.broker.rabbit.metadata.records import PolicyRow, QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.processes.messages import Pid

pytestmark = pytest.mark.unit


def make(name: str, pattern: str, definition: dict[str, Any], **more: Any) -> PolicyRow:
    return PolicyRow(vhost="/", name=name, pattern=pattern, definition=definition, **more)


def queue(definition: dict[str, Any], master: str, mirrors: str = "", synced: str = "") -> QueueRow:
    pids = {name: Pid(name, 1, 1) for name in "abcde"}
    return QueueRow(
        vhost="/",
        name="q",
        durable=True,
        auto_delete=False,
        pid=pids[master],
        slave_pids=tuple(pids[m] for m in mirrors),
        sync_slave_pids=tuple(pids[m] for m in synced),
        definition=definition,
    )


def first(count: int) -> int:
    return 0


def suggested(row: QueueRow, running: str) -> str:
    master, mirrors = policy.suggested_nodes(row, list(running), first)
    return master + "+" + "".join(mirrors)


def test_the_highest_priority_that_matches_is_in_force_and_nothing_is_merged() -> None:
    low = make("low", "^hello", {"ha-mode": "all"}, priority=1)
    high = make("high", "^hello", {"message-ttl": 5}, priority=2)
    exchanges = make("e", ".*", {"alternate-exchange": "x"}, priority=9, apply_to="exchanges")
    elsewhere = PolicyRow(
        vhost="v", name="v", pattern="", definition={"ha-mode": "all"}, priority=9
    )
    rows = [low, high, exchanges, elsewhere]
    assert match(rows, "/", "hello-1", "queues") == high
    assert match(rows, "/", "oh hello", "queues") is None
    assert match(rows, "/", "hello-1", "exchanges") == exchanges


def test_an_operators_policy_holds_numbers_down_and_adds_what_is_missing() -> None:
    own = {"max-length": 10, "message-ttl": 5, "overflow": "reject-publish"}
    operators = {"max-length": 7, "message-ttl": 50, "expires": 9}
    assert merged(own, operators) == {
        "max-length": 7,
        "message-ttl": 5,
        "overflow": "reject-publish",
        "expires": 9,
    }


def test_an_unknown_key_is_told_as_rabbitmq_tells_it() -> None:
    refused = policy.validate(make("p", "^q", {"frobnicate": 1, "max-length": 2}))
    assert refused is not None
    assert refused.split("\n")[2] == '[{<<"frobnicate">>,1}] are not recognised policy settings'


def test_an_operators_policy_has_fewer_keys() -> None:
    assert policy.validate_operators(make("o", "^q", {"max-length": 1})) is None
    refused = policy.validate_operators(make("o", "^q", {"ha-mode": "all"}))
    assert refused is not None and '{<<"ha-mode">>,<<"all">>}' in refused


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({}, "empty"),
        ({"ha-mode": "some"}, "ha-mode must be one of all, exactly, nodes"),
        ({"ha-mode": "all", "ha-params": 2}, "ha-params must not be given with ha-mode all"),
        ({"ha-mode": "exactly"}, "ha-params must be a number of nodes"),
        ({"ha-mode": "exactly", "ha-params": 0}, "at least 1"),
        ({"ha-mode": "exactly", "ha-params": True}, "number of nodes"),
        ({"ha-mode": "nodes", "ha-params": []}, "list of node names"),
        ({"ha-mode": "nodes", "ha-params": ["a", 1]}, "list of node names"),
        ({"ha-mode": "all", "ha-sync-mode": "auto"}, "ha-sync-mode must be one of"),
        ({"ha-mode": "all", "ha-sync-batch-size": 0}, "at least 1"),
        ({"ha-mode": "all", "ha-promote-on-failure": "never"}, "when-synced, always"),
        ({"ha-mode": "all", "ha-promote-on-shutdown": 1}, "when-synced, always"),
        ({"ha-sync-mode": "manual"}, "ha-sync-mode needs ha-mode"),
        ({"queue-master-locator": "x"}, "client-local, random, min-masters"),
        ({"message-ttl": -1}, "at least 0"),
    ],
)
def test_a_bad_definition_gets_one_readable_sentence(definition: dict[str, Any], says: str) -> None:
    problem = policy.validate(make("p", "^q", definition))
    assert problem is not None
    assert says in problem
    assert "\n" not in problem


def test_good_definitions_pass_and_manually_is_stored_as_manual() -> None:
    nodes = {"ha-mode": "nodes", "ha-params": ["rabbit@10.18.195.57"], "ha-sync-mode": "automatic"}
    assert policy.validate(make("hello-ha", "^hello", nodes)) is None
    exactly = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "manually"}
    assert policy.validate(make("hello-ha", "^hello", exactly)) is None
    assert policy.normalise(exactly)["ha-sync-mode"] == "manual"
    assert "not a regular expression" in (policy.validate(make("p", "(", exactly)) or "")


def test_mode_all_wants_every_running_node() -> None:
    assert suggested(queue({"ha-mode": "all"}, "b"), "abc") == "b+ac"
    assert suggested(queue({}, "b"), "abc") == "b+"


def test_mode_exactly_keeps_adds_and_trims_from_the_end() -> None:
    exactly = {"ha-mode": "exactly", "ha-params": 3}
    assert suggested(queue(exactly, "b", "d"), "abcd") == "b+da"
    assert suggested(queue(exactly, "b", "dca"), "abcd") == "b+dc"
    assert suggested(queue(exactly, "b"), "b") == "b+"


def test_mode_nodes_moves_the_master_only_to_a_synchronised_mirror() -> None:
    nodes = {"ha-mode": "nodes", "ha-params": ["b", "c", "x"]}
    assert suggested(queue(nodes, "b"), "abc") == "b+c"
    assert suggested(queue(nodes, "a", "bc"), "abc") == "a+bc"
    assert suggested(queue(nodes, "a", "bc", "c"), "abc") == "c+b"
    assert suggested(queue({"ha-mode": "nodes", "ha-params": ["x"]}, "a"), "abc") == "a+"


def test_nodes_may_be_called_as_rabbitmq_calls_them() -> None:
    nodes = {"ha-mode": "nodes", "ha-params": ["rabbit@a", "rabbit@c", "c", "rabbit@z"]}
    assert suggested(queue(nodes, "a"), "abc") == "a+c"
    row = queue({"ha-mode": "nodes", "ha-params": ["a", "b"]}, "a")
    moved = msgspec.structs.replace(row, pid=Pid("rabbit@a", 1, 1))
    running = ["rabbit@a", "rabbit@b", "rabbit@c"]
    assert policy.suggested_nodes(moved, running, first) == ("rabbit@a", ["rabbit@b"])


def test_changes_name_whom_to_add_and_whom_to_drop() -> None:
    row = queue({"ha-mode": "nodes", "ha-params": ["b", "c"]}, "a", "b", "b")
    assert policy.changes(row, list("abc"), first) == (["c"], ["a"])
    assert policy.changes(queue({}, "a", "bc"), list("abc"), first) == ([], ["b", "c"])


def test_exclusive_queues_are_never_mirrored() -> None:
    row = QueueRow(
        vhost="/",
        name="q",
        durable=False,
        auto_delete=False,
        exclusive_owner=Pid("a", 1, 9),
        pid=Pid("a", 1, 1),
        definition={"ha-mode": "all"},
    )
    assert not policy.is_mirrored(row)
    assert suggested(row, "abc") == "a+"


def test_the_smaller_of_argument_and_policy_holds() -> None:
    row = QueueRow(
        vhost="/", name="q", durable=True, auto_delete=False,
        arguments={"x-max-length": 5, "x-message-ttl": 100}, definition={"max-length": 9},
    )  # fmt: skip
    assert policy.setting(row, "max-length") == 5
    assert policy.setting(row, "message-ttl") == 100
    assert policy.setting(row, "expires") is None
