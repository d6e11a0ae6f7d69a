"""A leader's decisions and their commits: what is answered when, and what it is based on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shalott.broker.raft.api import Entry, Snapshot
from shalott.broker.raft.group import ProposalTimeout
from shalott.broker.rocket.controller import decisions
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision
from shalott.broker.rocket.controller.replicated_state import (
    COMMIT_TIMEOUT_MS,
    REQUESTS_MAX,
    ReplicatedState,
)
from shalott.broker.rocket.remoting.command import Command
from tests.world.clock.turns import passes
from tests.world.clock.virtual import run
from tests.world.raft.hand_group import HandGroup
from tests.world.rocket.registry import CLUSTER, NAME

pytestmark = pytest.mark.unit


class Leader:
    def __init__(self) -> None:
        self.applied: list[tuple[cs.Event, int]] = []
        self.state = ReplicatedState("n1", self._applied, lambda node: f"{node}:9")
        self.group = HandGroup(self.state)
        self.state.attach(self.group)
        self.state.begin()

    def _applied(self, event: cs.Event, state: cs.State, term: int) -> None:
        self.applied.append((event, term))

    def ask(self, compute: Callable[[cs.State], Decision]) -> asyncio.Task[Command]:
        return asyncio.create_task(self.state.decide(compute))


def applying(broker_id: int, check_code: str = "") -> Callable[[cs.State], Decision]:
    request = cm.ApplyBrokerId(
        cluster_name=CLUSTER,
        broker_name=NAME,
        applied_broker_id=broker_id,
        register_check_code=check_code or f"h{broker_id}:1;17",
    )
    return lambda state: decisions.apply_broker_id(state, request)


def next_id(state: cs.State) -> Decision:
    return decisions.next_broker_id(state, cm.GetNextBrokerId(cluster_name="c", broker_name=NAME))


async def a_moment() -> None:
    await passes(0.01)


def test_an_answer_waits_for_the_commit() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        assert not asked.done()
        assert not leader.state.applied.groups
        leader.group.commit()
        assert (await asked).code == 0
        assert list(leader.state.applied.groups) == [NAME]
        assert [term for _, term in leader.applied] == [1]

    run(main())


def test_a_decision_counts_on_what_is_pending() -> None:
    """Two brokers want one id at once: the second is refused, though nothing is committed yet."""

    async def main() -> None:
        leader = Leader()
        first = leader.ask(applying(1))
        await a_moment()
        second = leader.ask(applying(1, "h9:1;17"))
        third = leader.ask(applying(2))
        await a_moment()
        assert not second.done()  # it rests on what is not certain yet
        assert len(leader.group.pending) == 2
        leader.group.commit()
        await a_moment()
        assert ((await first).code, (await second).code) == (0, 2014)
        assert not third.done()
        leader.group.commit()
        assert (await third).code == 0

    run(main())


def test_a_refusal_that_rests_on_a_lost_proposal_is_no_refusal() -> None:
    async def main() -> None:
        leader = Leader()
        first = leader.ask(applying(1))
        await a_moment()
        second = leader.ask(applying(1, "h9:1;17"))
        await a_moment()
        leader.state.end()
        leader.group.lose()
        for answer in (await first, await second):
            assert answer.code == 2007
            assert answer.ext == {
                "controllerLeaderId": "n2",
                "controllerLeaderAddress": "n2:9",
            }
        assert not leader.state.applied.groups

    run(main())


def test_what_is_not_committed_in_time_is_unknown() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        leader = Leader()
        began = loop.time()
        answer = await leader.ask(applying(1))
        assert answer.code == 1
        assert loop.time() - began == pytest.approx(COMMIT_TIMEOUT_MS / 1000)
        leader.group.commit()  # late, and no caller waits
        assert list(leader.state.applied.groups) == [NAME]

    run(main())


def test_what_the_group_gives_up_is_unknown_at_once() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        leader.group.pending[0][0].committed.set_exception(ProposalTimeout("the node stops"))
        assert (await asked).code == 1

    run(main())


def test_after_an_unknown_outcome_the_next_decision_still_counts_on_it() -> None:
    async def main() -> None:
        leader = Leader()
        await leader.ask(applying(1))
        asked = leader.ask(applying(2))
        await a_moment()
        leader.group.commit(2)
        assert (await asked).code == 0
        assert leader.state.applied == leader.state.ahead

    run(main())


def test_who_does_not_lead_or_is_not_ready_decides_nothing() -> None:
    async def main() -> None:
        leader = Leader()
        leader.state.end()
        answer = await leader.ask(applying(1))
        assert (answer.code, answer.ext["controllerLeaderAddress"]) == (2007, "")
        assert (await leader.state.look(next_id, linearizable=False)).code == 2007
        leader.state.begin()
        leader.group.role, leader.group.leader = "follower", "n3"  # it was not told yet
        answer = await leader.ask(applying(1))
        assert (answer.code, answer.ext["controllerLeaderAddress"]) == (2007, "n3:9")
        assert not leader.group.pending

    run(main())


def test_a_new_tenure_forgets_what_was_only_pending() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        leader.state.end()
        leader.group.lose()
        await asked
        leader.group.role, leader.group.leader = "leader", "n1"
        leader.state.begin()
        assert leader.state.ahead == cs.State()

    run(main())


def test_a_group_that_takes_no_more_is_busy_and_so_is_a_full_queue() -> None:
    async def main() -> None:
        leader = Leader()
        leader.group.is_full = True
        assert (await leader.ask(applying(1))).code == 2
        assert leader.state.ahead == cs.State()
        leader.group.is_full = False
        waiting = [leader.ask(applying(1)) for _ in range(REQUESTS_MAX)]
        await a_moment()
        assert (await leader.ask(applying(1))).code == 2
        leader.group.commit()
        assert {(await asked).code for asked in waiting} == {0}
        assert (await leader.ask(applying(1))).code == 0

    run(main())


def test_an_event_that_breaks_an_invariant_is_not_proposed() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        leader.group.commit()
        await asked
        wrong = Decision(Command(code=0), (cs.ElectMasterEvent(NAME, 1, 5),))
        with pytest.raises(AssertionError):
            await leader.ask(lambda state: wrong)
        assert not leader.group.pending
        assert leader.state.ahead == leader.state.applied

    run(main())


def test_reads_show_what_is_applied_and_ask_a_quorum_only_if_they_are_to_be_linearizable() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        answer = await leader.state.look(next_id, linearizable=False)
        assert answer.ext["nextBrokerId"] == "1"
        assert leader.group.reads == 0
        leader.group.commit()
        await asked
        answer = await leader.state.look(next_id, linearizable=True)
        assert (answer.ext["nextBrokerId"], leader.group.reads) == ("2", 1)
        leader.group.has_quorum = False
        assert (await leader.state.look(next_id, linearizable=True)).code == 2
        assert (await leader.state.look(next_id, linearizable=False)).code == 0
        leader.group.role = "follower"
        assert (await leader.state.look(next_id, linearizable=True)).code == 2007

    run(main())


def test_a_snapshot_replaces_everything() -> None:
    async def main() -> None:
        leader = Leader()
        asked = leader.ask(applying(1))
        await a_moment()
        leader.group.commit()
        await asked
        snapshot = Snapshot(1, 1, leader.state.take_snapshot())
        other = Leader()
        other.state.apply([Entry(1, 1, cs.encode_events(()))])
        other.state.restore(snapshot)
        assert other.state.applied == leader.state.applied
        assert other.applied == []  # no broker is told a second time

    run(main())
