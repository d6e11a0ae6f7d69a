"""The group workload: what its parameters mean, and what judges must know of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.cluster.systems.rocket.profiles import SAFE_SETTINGS
from shalott.core.errors import UsageError
from shalott.core.parameters import flags_of
from shalott.core.plan import Plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.workloads.group.parameters import (
    GroupParameters,
    all_keys,
    consumed_keys,
    parameters_of,
    rules_of,
    schedule_keys,
    stuck_after_ms,
    used_levels,
)
from shalott.workloads.group.workload import WORKLOAD, group_workload
from shalott.workloads.record import WORKLOADS

pytestmark = pytest.mark.unit


def plan_of(system: str = "controller", profile: str = "safe", **given: Any) -> Plan:
    texts = {name.replace("_", "-"): str(value) for name, value in given.items()}
    request = Request(system=system, profile=profile, workload="group", given=texts)
    return make_plan(request, backend="sim", seed=5)


def test_it_is_offered_to_systems_that_speak_remoting() -> None:
    assert WORKLOADS.find("group") is WORKLOAD
    with pytest.raises(UsageError, match="not for mirrored"):
        plan_of("mirrored")


def test_a_groups_name_says_what_it_is() -> None:
    groups = {group.name: group for group in rules_of(plan_of()).groups}
    assert list(groups) == ["concurrent", "orderly", "tagged", "broadcast"]
    assert [name for name, group in groups.items() if group.orderly] == ["orderly"]
    assert [name for name, group in groups.items() if group.broadcast] == ["broadcast"]
    assert groups["tagged"].tags == ("tag0", "tag1") and groups["orderly"].tags == ()
    both = rules_of(plan_of(groups="tagged-orderly-2")).groups[0]
    assert both.orderly and both.tags and not both.broadcast


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"groups": "fast"}, "a name is made of"),
        ({"groups": "2"}, "a name is made of"),
        ({"groups": "orderly-broadcast"}, "nobody locks"),
        ({"groups": "tagged", "tags": 1}, "--tags 2"),
        ({"groups": ","}, "at least one"),
        ({"members": 0}, "--members"),
    ],
)
def test_what_can_t_be_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_of(**given)


def test_retries_and_dead_letters_have_their_queues_and_a_broadcast_none() -> None:
    parameters = parameters_of(plan_of(topics=1, queues=2, groups="orderly,broadcast"))
    own = ("shalott-0/0", "shalott-0/1")
    assert all_keys(parameters) == (*own, "%RETRY%orderly/0", "%DLQ%orderly/0")
    assert consumed_keys(parameters) == {"orderly": (*own, "%RETRY%orderly/0"), "broadcast": own}
    assert group_workload(plan_of()).queues == all_keys(parameters_of(plan_of()))


def test_levels_at_which_messages_may_wait() -> None:
    assert used_levels(parameters_of(plan_of(delay_levels=2, retry_level=1))) == (1, 2)
    own = parameters_of(plan_of(delayed=0, retry_level=0, max_reconsume=2))
    assert used_levels(own) == (3, 4, 5)
    assert schedule_keys(own)[0] == "SCHEDULE_TOPIC_XXXX/2"


def test_the_time_after_which_a_group_is_stuck_covers_all_that_it_may_wait_for() -> None:
    concurrent = parameters_of(plan_of(groups="concurrent"))
    orderly = parameters_of(plan_of(groups="orderly"))
    assert stuck_after_ms(orderly) - stuck_after_ms(concurrent) == 60_000
    slow = parameters_of(plan_of(groups="concurrent", retry_level=0))
    assert stuck_after_ms(slow) - stuck_after_ms(concurrent) == 60_000 - 5000  # level 5, level 2
    assert stuck_after_ms(parameters_of(plan_of(stuck_after="7s"))) == 7000


def test_the_rules_follow_the_systems_settings() -> None:
    assert rules_of(plan_of()).keeps_acknowledged
    assert not rules_of(plan_of(profile="upstream")).keeps_acknowledged
    plan = plan_of()
    assert rules_of(plan).offsets_follow_ms == 10_000
    policy = {**SAFE_SETTINGS["controller"], "broker.slave_sync_interval_ms": 500}
    system = msgspec.structs.replace(plan.system, policy=policy)
    assert rules_of(msgspec.structs.replace(plan, system=system)).offsets_follow_ms == 500


def test_the_report_says_who_consumes() -> None:
    words = WORKLOAD.describe(plan_of(topics=2, queues=3))
    assert words == (
        "groups concurrent, orderly, tagged, broadcast of 2 members, 2 topics of 3 queues"
    )


def test_every_parameter_has_a_flag_of_its_own() -> None:
    names = [flag.name for flag in flags_of(GroupParameters)]
    assert len(names) == len(dict.fromkeys(names))
