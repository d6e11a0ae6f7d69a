"""The controllers' decisions against a model that says the same in other words, for ever.

The model keeps a group as plain values and a history of who was master and what was the set in each
epoch. What must hold for every request: the answer's code is the model's, an epoch has one master
and one set, and two replicas that applied the same entries are equal, also over a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision
from shalott.broker.rocket.controller.elect_policy import LiveInfo
from shalott.broker.rocket.remoting.command import ResponseCode as Rc
from tests.world.rocket.registry import NAME, Registry

pytestmark = pytest.mark.explore

IDS = st.integers(1, 4)


@dataclass
class Model:
    """One group, as a list of facts."""

    known: list[int] = field(default_factory=list)
    master: int | None = None
    epoch: int = 0
    members: list[int] = field(default_factory=list)
    set_epoch: int = 0
    masters: dict[int, int | None] = field(default_factory=dict)  # by epoch
    sets: dict[int, list[int]] = field(default_factory=dict)

    def tenure(self, master: int | None) -> None:
        self.epoch += 1
        self.master = master
        assert self.epoch not in self.masters
        self.masters[self.epoch] = master

    def change_set(self, members: list[int]) -> None:
        self.set_epoch += 1
        self.members = sorted(members)
        assert self.set_epoch not in self.sets
        self.sets[self.set_epoch] = self.members


class Decisions(RuleBasedStateMachine):
    @initialize(unclean=st.booleans())
    def begin(self, unclean: bool) -> None:
        self.registry = Registry(unclean=unclean)
        self.replica = cs.State()  # another controller
        self.model = Model()

    def settle(self, decision: Decision) -> int:
        entry = cs.encode_events(decision.events)
        for event in cs.decode_events(entry):
            cs.apply(self.replica, event)
        return self.registry.settle(decision).code

    def alive(self, brokers: list[int]) -> list[int]:
        return [i for i in brokers if i in self.registry.alive]

    # -- what happens ------------------------------------------------------------------------------

    @rule()
    def a_broker_joins(self) -> None:
        broker_id = self.registry.next_id()
        if broker_id > 4:
            return
        for name in self.registry.state.groups:
            assert name == NAME
        before = self.registry.state.copy()
        assert self.registry.register(broker_id).code == 0
        self._copy_registration(before, broker_id)
        self.model.known.append(broker_id)

    def _copy_registration(self, before: cs.State, broker_id: int) -> None:
        address = f"h{broker_id}:1"
        event = cs.ApplyBrokerIdEvent("c", NAME, broker_id, address, f"{address};17")
        cs.apply(before, event)
        cs.apply(self.replica, event)
        assert before == self.registry.state

    @rule(broker=IDS, epoch=st.integers(0, 3), offset=st.integers(0, 3), priority=st.integers(0, 1))
    def a_broker_lives(self, broker: int, epoch: int, offset: int, priority: int) -> None:
        self.registry.alive[broker] = LiveInfo(epoch, offset, 0, priority)

    @rule(broker=IDS)
    def a_broker_dies(self, broker: int) -> None:
        self.registry.alive.pop(broker, None)

    @rule(
        members=st.lists(IDS, min_size=1, max_size=4, unique=True),
        wrong=st.sampled_from(["", "", "", "", "master", "epoch", "set_epoch"]),
    )
    def a_set_is_wanted(self, members: list[int], wrong: str) -> None:
        model = self.model
        by = (model.master or 0) + (wrong == "master")
        epoch = model.epoch - (wrong == "epoch")
        set_epoch = model.set_epoch + (wrong == "set_epoch")
        code = self._code_of_set(members, by, epoch, set_epoch)
        decision = self.registry.decide_alter(
            tuple(members), by=by, epoch=epoch, set_epoch=set_epoch
        )
        same = sorted(members) == model.members
        assert self.settle(decision) == code, decision
        if code == 0 and not same:
            model.change_set(members)

    def _code_of_set(self, members: list[int], by: int, epoch: int, set_epoch: int) -> int:
        model = self.model
        is_master = by == model.master and epoch == model.epoch
        if not model.known:
            return Rc.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if sorted(members) == model.members:
            return 0 if is_master else Rc.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if by != model.master:
            return Rc.CONTROLLER_INVALID_MASTER
        if epoch != model.epoch:
            return Rc.CONTROLLER_FENCED_MASTER_EPOCH
        if set_epoch != model.set_epoch:
            return Rc.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        for member in members:
            if member not in model.known:
                return Rc.CONTROLLER_INVALID_REPLICAS
            if member not in self.registry.alive:
                return Rc.CONTROLLER_BROKER_NOT_ALIVE
        return 0 if by in members else Rc.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED

    @rule(asker=st.sampled_from([-1, 1, 2, 3, 4]), designate=st.booleans())
    def an_election_is_wanted(self, asker: int, designate: bool) -> None:
        model = self.model
        before = model.master
        code, winner = self._election(asker, designate)
        assert self.settle(self.registry.decide_elect(asker, designate=designate)) == code
        if code == 0:
            model.tenure(winner)
            assert winner is not None
            model.change_set([winner])
        elif code == Rc.CONTROLLER_MASTER_NOT_AVAILABLE and before is not None:
            assert before not in self.registry.alive
            model.tenure(None)

    def _election(self, asker: int, designate: bool) -> tuple[int, int | None]:
        model, alive = self.model, self.registry.alive
        if not model.known or asker not in (-1, *model.known):
            return Rc.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, None
        if model.master is None and not model.members and asker != -1:
            return 0, asker
        pools = [model.members, *([sorted(model.known)] if self.registry.unclean else [])]
        for pool in map(self.alive, pools):
            if designate and asker in pool:
                return (Rc.CONTROLLER_MASTER_STILL_EXIST if asker == model.master else 0), asker
            is_other = designate and asker not in (-1, model.master)
            if model.master in pool and not is_other:
                return Rc.CONTROLLER_MASTER_STILL_EXIST, model.master
            if pool and not (designate and asker != -1):
                best = sorted(
                    pool,
                    key=lambda i: (-alive[i].epoch, -alive[i].max_offset, alive[i].priority, i),
                )
                return 0, best[0]
        failed = Rc.CONTROLLER_MASTER_NOT_AVAILABLE if asker == -1 else None
        return failed or Rc.CONTROLLER_ELECT_MASTER_FAILED, None

    @rule(broker=IDS, living=st.booleans())
    def a_broker_is_cleaned(self, broker: int, living: bool) -> None:
        model = self.model
        before = self.registry.state.copy()
        code = self.registry.clean(str(broker), living=living).code
        if not model.known or (broker in self.registry.alive and not living):
            assert code == Rc.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
            assert before == self.registry.state
            return
        assert code == 0
        cs.apply(self.replica, cs.CleanBrokerDataEvent(NAME, (broker,)))
        if broker in model.members:
            model.change_set([i for i in model.members if i != broker])
        if broker == model.master:
            model.tenure(None)
        if broker in model.known:
            model.known.remove(broker)

    @rule()
    def a_controller_restarts_from_a_snapshot(self) -> None:
        self.replica = cs.decode(cs.encode(self.replica))

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_state_is_the_models(self) -> None:
        model, state = self.model, self.registry.state
        assert self.replica == state
        if not model.known:
            assert NAME not in state.groups
            return
        sync = state.groups[NAME].sync
        assert list(state.groups[NAME].replicas.replicas) == sorted(model.known)
        assert (sync.master, sync.master_epoch) == (model.master, model.epoch)
        assert (list(sync.members), sync.set_epoch) == (model.members, model.set_epoch)
        assert model.master is None or model.master in model.members


TestDecisions = Decisions.TestCase
TestDecisions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
