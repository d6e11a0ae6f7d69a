"""Rows of Controller mode whose controllers have jRaft for their Raft (controllerType=jRaft, since
5.2.0). It keeps who is alive in its log, and misses brokers by rules of its own."""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, fault, releases

JRAFT = {"controllerType": "jRaft"}
OURS = {"controllerType": None}  # our controllers have one Raft only

JRAFT_ROWS: tuple[Row, ...] = (
    Row(
        id="KB-RKT-28",
        has=releases("5.2.0", "5.3.3"),
        free=releases("5.4.0"),
        read_in="controller/impl/heartbeat/RaftBrokerHeartBeatManager.java, scanNotActiveBroker: "
        "the scan is left out as soon as a second has passed since the first heartbeat; 5.4.0 "
        "compares the other way round",
        setup=Setup(
            replication="controller", policy=JRAFT, time_limit_ms=60_000, max_rto_ms=35_000
        ),
        faults=(fault(1, "pause", "master", 6000, 48_000),),
        shows=Shows(anomalies=("unavailable",)),
        run_on="5.3.3",
        control_on="5.5.0",
        why="The master's node stands still, and no connection to it ends. Nobody misses it, and "
        "nothing is acknowledged until it goes on.",
        ours=Ours(system="controller", bug="KB-RKT-28", policy=OURS),
    ),
    Row(
        id="KB-RKT-29",
        has=releases("5.2.0"),
        read_in="controller/impl/manager/RaftReplicasInfoManager.java, checkNotActiveBroker: what "
        "scanNeedReelectBrokerSets takes for a living broker is a dead one, in every release",
        setup=Setup(replication="controller", policy=JRAFT, time_limit_ms=40_000),
        faults=(fault(1, "kill", "n3", 6000, 28_000),),
        shows=Shows(
            lines=Lines(
                pattern="old master .* is still alive, not need to elect new master",
                least=3,
                service="nameserver",
            )
        ),
        run_on="5.5.0",
        control_policy={"controllerType": "DLedger"},
        why="A slave dies. The scan takes the master, which is alive, for a dead one and the dead "
        "slave for its heir, and has an election held every 5 s, which finds that the master is "
        "there. (That a dead master is not replaced is not seen: who died is told by another list, "
        "and brokers ask for elections themselves.)",
    ),
)
