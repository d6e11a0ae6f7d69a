"""Controllers at work. With what DLedgerControllerTest of RocketMQ checks: elections, lifecycle,
all replicas restart (clean and unclean), and a change of the controllers' leader.
"""

from __future__ import annotations

import pytest

from tests.broker.controller.cluster_fixture import World

pytestmark = pytest.mark.unit


def test_a_leader_is_found_and_brokers_register() -> None:
    world = World()

    async def main() -> None:
        leader = await world.served()
        one, two = await world.broker("b1"), await world.broker("b2")
        assert (one.broker_id, two.broker_id) == (1, 2)
        assert one.client.leader == f"{leader}:9877"
        election = await one.elect()
        assert election.elected
        master = await world.master()
        assert (master.broker_id, master.address, master.epoch) == (1, "b1:10911", 1)
        assert (master.sync_state_set, master.sync_state_set_epoch) == ((1,), 1)
        assert not (await two.elect()).elected
        await world.agreed()

    world.run(main)
