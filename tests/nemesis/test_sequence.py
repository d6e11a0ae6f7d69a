"""Sequences: faults in order, each at another's beginning or end; and what is left of an order when
a fault is taken out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction, Trigger, decode_plan, dump_plan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request
from shalott.harness.shrinking.candidates import with_faults
from shalott.nemesis.requirements import check_actions
from shalott.nemesis.sequence import make_sequences, relinked
from shalott.nemesis.trigger_words import parse_trigger, trigger_text
from shalott.nemesis.weaker import weaker_actions
from tests.nemesis.test_runner import Scene, within
from tests.world.harness.nemesis import NODES

pytestmark = pytest.mark.unit

STORY = "pause n1; kill n2; end pause; pause n3; wait 50ms; end kill; end pause"


def made(*texts: str, limit_ms: int = 3500) -> tuple[FaultAction, ...]:
    return make_sequences(texts, nodes=NODES, begin_ms=0, time_limit_ms=limit_ms, seed=4)


def waits(action: FaultAction) -> tuple[str, str]:
    return tuple(  # type: ignore[return-value]
        "" if each is msgspec.UNSET else trigger_text(each) for each in (action.when, action.until)
    )


def test_words_become_faults_that_wait_for_each_other() -> None:
    faults = made(STORY)
    assert [(each.id, each.kind, each.nodes) for each in faults] == [
        (1, "pause", ("n1",)),
        (2, "kill", ("n2",)),
        (3, "pause", ("n3",)),
    ]
    assert [waits(each) for each in faults] == [
        ("", "begun=2"),
        ("begun=1", "begun=3,delay=50ms"),
        ("ended=1", "ended=2"),
    ]
    check_actions(faults, NODES)


def test_rounds_come_one_after_the_other_and_end_what_they_began() -> None:
    faults = made("2x wait 1s; corrupt-files n2 amount=3 files=*.log; pause minority")
    assert [each.kind for each in faults] == ["corrupt-files", "pause"] * 2
    assert faults[0].at_ms == 1000 and faults[0].amount == 3
    assert faults[0].parameters == {"files": "*.log", "down": False, "replace": False}
    assert waits(faults[0]) == ("", "begun=2") and waits(faults[1]) == ("begun=1", "begun=2")
    assert waits(faults[2]) == ("ended=2,delay=1000ms", "begun=4")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "give steps such as"),
        ("dance n1", "'dance n1' is no step"),
        ("pause n7", "unknown target n7"),
        ("end pause", "no fault pause is in force"),
        ("pause n1 amount=3", "pause has no amount"),
        ("pause n1; wait long", "give a time above 0"),
        ("1000x pause n1", "give steps such as"),
    ],
)
def test_what_is_no_sequence_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        made(text)


def test_a_sequence_has_no_room_in_a_short_load() -> None:
    with pytest.raises(UsageError, match="leaves no room for --sequence"):
        made("pause n1", limit_ms=400)


def test_a_plan_keeps_its_sequences_and_the_command_repeats_them() -> None:
    request = Request(nemesis="kill", sequence=(STORY,), time_limit="30", seed=3, cluster="sim")
    plan = make_plan(request, backend="sim", seed=3)
    assert decode_plan(dump_plan(plan), "it") == plan
    own = [each for each in plan.faults if each.triggers]
    assert [each.kind for each in own] == ["pause", "kill", "pause"]
    assert len({each.id for each in plan.faults}) == len(plan.faults)
    assert f"--sequence '{STORY}'" in repeat_command(request, 3)


# -- waiting


def test_steps_are_taken_in_order_and_each_is_proved() -> None:
    async def scene() -> None:
        s = Scene(*made(STORY))
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == [
            *("pause n1", "kill n2", "resume n1", "pause n3", "start n2", "resume n3", "heal"),
        ]
        for row in s.recorder.faults():
            assert row["proved_effective"] and row["proved_healed"] and row["error"] is None
        told = [row["extra"] for row in s.recorder.of("trigger")]
        assert len(told) == 5 and all(each["fired"] for each in told)
        assert sum(each.get("ends", False) for each in told) == 3
        kill = s.runner.resolved_actions[1]
        assert kill.when.fired_ms is not msgspec.UNSET  # type: ignore[union-attr]
        assert kill.until.fired_ms is not msgspec.UNSET  # type: ignore[union-attr]

    within(5, scene())


def test_a_step_that_cannot_be_made_ends_its_sequence_and_heals_all() -> None:
    async def scene() -> None:
        first = made("pause n1; pause-process n9; end".replace("n9", "n2"))
        removed = msgspec.structs.replace(first[1], kind="add-node", nodes=("n2",))
        s = Scene(first[0], removed)
        s.system.claims = {node: [] for node in NODES}
        await s.perform()
        s.assert_healthy()
        rows = {row["kind"]: row for row in s.recorder.faults()}
        assert rows["add-node"]["skipped"] == "n2 was not removed"
        assert rows["pause"]["proved_healed"]
        (told,) = [row for row in s.recorder.of("trigger") if row["extra"].get("ends")]
        assert "fault 2 never has begun: n2 was not removed" in told["error"]

    within(5, scene())


def test_a_fault_that_is_not_proved_makes_the_run_unknown_and_the_sequence_goes_on() -> None:
    async def scene() -> None:
        s = Scene(*made("kill n2; pause n1; end kill"))
        s.cluster.kill_does_nothing = True
        s.cluster.start_is_idempotent = True
        await s.perform()
        rows = {row["kind"]: row for row in s.recorder.faults()}
        assert not rows["kill"]["proved_effective"] and rows["pause"]["proved_effective"]

    within(5, scene())


def test_a_fault_lasts_no_longer_than_it_says_whatever_it_waits_for() -> None:
    async def scene() -> None:
        pause, kill = made("pause n1; kill n2; end pause")
        late = msgspec.structs.replace(kill, at_ms=2000)
        s = Scene(msgspec.structs.replace(pause, duration_ms=100), late)
        running = asyncio.create_task(s.perform())
        await asyncio.sleep(1)
        assert s.cluster.states["n1"] == "running"
        await running

    within(8, scene())


# -- plans that are no order


def waiting(number: int, fault: int, what: str = "begun", **more: Any) -> FaultAction:
    return FaultAction(
        id=number,
        at_ms=0,
        duration_ms=10,
        kind="pause",
        nodes=("n1",),
        when=Trigger(kind="fault", what=what, fault=fault),
        **more,
    )


def test_an_order_that_never_comes_is_refused() -> None:
    with pytest.raises(UsageError, match="waits for fault 7 to have begun: give"):
        check_actions([waiting(1, 7)], NODES)
    with pytest.raises(UsageError, match="the faults 1, 2 wait for each other"):
        check_actions([waiting(1, 2), waiting(2, 1)], NODES)
    with pytest.raises(UsageError, match="to have happened"):
        check_actions([waiting(1, 2, "happened"), waiting(2, 1)], NODES)
    assert parse_trigger("kill:ended=3") == ("kill", Trigger(kind="fault", what="ended", fault=3))


def test_what_waited_for_a_fault_that_is_gone_waits_for_what_that_one_waited_for() -> None:
    first, kill, last = made(STORY)
    without_kill = relinked((first, kill, last), (first, last))
    assert [waits(each) for each in without_kill] == [("", ""), ("ended=1", "begun=1")]
    check_actions(without_kill, NODES)
    without_first = relinked((first, kill, last), (kill, last))
    assert waits(without_first[0])[0] == "" and waits(without_first[1]) == ("", "ended=2")
    alone = relinked((first, kill, last), (last,))
    assert waits(alone[0]) == ("", "")


def test_a_shrinker_leaves_no_fault_that_waits_for_nothing() -> None:
    plan = make_plan(
        Request(nemesis="none", sequence=(STORY,), time_limit="30"), backend="sim", seed=3
    )
    for gone in range(len(plan.faults)):
        kept = [each for place, each in enumerate(plan.faults) if place != gone]
        check_actions(with_faults(plan, kept).faults, plan.cluster.nodes)
    action = msgspec.structs.replace(
        plan.faults[0],
        until=Trigger(kind="fault", what="begun", fault=2, delay_ms=100, fired_ms=2900),
    )
    freed = [each for each in weaker_actions(action) if each.until is msgspec.UNSET]
    assert {each.duration_ms for each in freed} == {1000, action.duration_ms}
