"""What an operator types, taken apart."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.ctl.session import CtlError, Typed, parse
from shalott.broker.rabbit.ctl.verbs import read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["list_queues"], Typed("list_queues")),
        (
            ["-n", "rabbit@n2", "list_queues", "-p", "v", "name", "pid"],
            Typed("list_queues", ("name", "pid"), {"--node": "rabbit@n2", "--vhost": "v"}),
        ),
        (
            ["set_policy", "--priority=3", "ha", "^a", "{}", "-q"],
            Typed("set_policy", ("ha", "^a", "{}"), {"--priority": "3", "--quiet": ""}),
        ),
        (
            ["set_policy", "ha", "^a", "{}", "-1"],
            Typed("set_policy", ("ha", "^a", "{}", "-1")),
        ),
        (["list_queues", "--", "-name"], Typed("list_queues", ("-name",))),
    ],
)
def test_options_stand_anywhere(words: list[str], typed: Typed) -> None:
    assert parse(words) == typed


def test_the_node_is_the_part_behind_the_at() -> None:
    assert parse(["-n", "rabbit@n2", "cluster_status"]).node == "n2"
    assert parse(["-n", "n2", "cluster_status"]).node == "n2"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["list_queues", "--bogus"],
        ["list_queues", "-p"],
        ["list_queues", "--formatter", "poem"],
        ["lisst_queues"],
        ["set_policy", "name", "pattern"],
        ["set_policy", "a", "b", "c", "1", "2"],
        ["clear_policy"],
        ["list_policies", "name"],
    ],
    ids=" ".join,
)
def test_a_mistake_ends_with_64(words: list[str]) -> None:
    with pytest.raises(CtlError) as caught:
        read(words)
    assert caught.value.exit_code == 64
    assert caught.value.text
