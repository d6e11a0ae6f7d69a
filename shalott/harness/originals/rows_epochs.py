"""Rows of Controller mode about the lists of epochs, and what is cut away by them."""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, between, fault, releases
from shalott.harness.originals.rows_controller import CONTROLLER_AT_N1

# The master's node, with the only controller, is cut off, and restarts meanwhile: nobody else was
# elected, so it is the master of the same epoch again.
_RESTART_IN_EPOCH = (
    fault(1, "partition-halves", "", 6000, 18_000, nodes=(), links=between("n1", "n2+n3")),
    fault(2, "kill", "n1", 9000, 500),
)

# The only controller goes down with the master, and is back with it: nobody asks for an election.
_NOBODY_ELECTS = (fault(1, "kill", "n1", 10_000, 500),)

EPOCH_ROWS: tuple[Row, ...] = (
    Row(
        id="KB-RKT-C",
        has=releases("5.0.0"),
        read_in="store/ha/autoswitch/AutoSwitchHAService.java, changeToMaster: the entry of the "
        "epoch is dropped, and made anew with where the log ends now",
        setup=Setup(
            replication="controller",
            profile="safe",
            services=CONTROLLER_AT_N1,
            time_limit_ms=45_000,
            settle_timeout_ms=40_000,
            must_settle=True,
        ),
        faults=_NOBODY_ELECTS,
        shows=Shows(
            anomalies=("stuck",),
            with_line=Lines(pattern=r"newMasterEpoch:1, startOffset:[1-9]"),
        ),
        run_on="5.5.0",
        why="The node of the only controller is killed with the master, and both come back. Nobody "
        "was elected, so the master is told that it is that of its epoch still; its list says now "
        "that the epoch begins where its log ended. The slaves' lists say that it began at 0, so "
        "they find nothing in common, and with minInSyncReplicas=2 nothing is acknowledged ever "
        "again. With three controllers a restart of all nodes does the same, if the master is back "
        "before somebody else asks for an election.",
        ours=Ours(system="controller", bug="KB-RKT-C", anomalies=("stuck",)),
    ),
    Row(
        id="KB-RKT-22",
        has=releases("5.0.0"),
        read_in="store/ha/autoswitch/AutoSwitchHAClient.java, doTruncate, and EpochFileCache.java, "
        "findConsistentPoint: without an epoch in common it is tried again for ever",
        setup=Setup(
            replication="controller",
            services=CONTROLLER_AT_N1,
            time_limit_ms=35_000,
            rate_hz=40,
            must_settle=True,
        ),
        faults=_RESTART_IN_EPOCH,
        shows=Shows(
            lines=Lines(pattern="Failed to find a consistent point between masterEpoch", least=3)
        ),
        run_on="5.5.0",
        why="KB-RKT-C's plan, after which slaves and master know the one epoch that there was with "
        "different beginnings. No slave ever follows again.",
        ours=Ours(system="controller", bug="KB-RKT-22", anomalies=("stuck",)),
    ),
    Row(
        id="KB-RKT-23",
        has=releases("5.0.0"),
        read_in="store/MappedFileQueue.java, truncateDirtyFiles: positions are set back, and the "
        "bytes behind them stay",
        setup=Setup(replication="controller", time_limit_ms=58_000, must_converge=True),
        faults=(
            fault(1, "partition-isolate-master", "master", 6000, 22_000),
            fault(2, "kill", "n1", 36_000, 500),
        ),
        shows=Shows(anomalies=("diverged",)),
        run_on="5.3.3",
        why="KB-RKT-17's master has cut away what it wrote alone, and copies the new one's log "
        "over it. Before it has come as far as it was, it is killed: recovery reads on into the "
        "old bytes, which are whole messages, and takes them for its own.",
        ours=Ours(system="controller", bug="KB-RKT-23"),
    ),
    Row(
        id="KB-RKT-21",
        has=releases("5.1.1", "5.3.3"),
        free=releases("5.4.0"),
        read_in="store/ha/autoswitch/EpochFileCache.java, appendEntry, and AutoSwitchHAClient.java,"
        " doTruncate: the newest epoch is dropped where nothing is cut; "
        "AutoSwitchHAConnection.java in 5.4.0",
        setup=Setup(
            replication="controller",
            time_limit_ms=60_000,
            rate_hz=1,
            clients_a_node=1,
            must_settle=True,
        ),
        faults=(
            fault(1, "kill", "master", 12_000, 3000),
            fault(2, "kill", "master", 13_200, 6000),
            fault(3, "kill", "master", 36_000, 3000),
            fault(4, "kill", "master", 37_200, 6000),
        ),
        shows=Shows(lines=Lines(pattern="Failed to find epochEntry", least=1)),
        run_on="5.3.3",
        control_on="5.5.0",
        why="Two masters die one after the other, and nothing is written between their elections: "
        "the second epoch begins where the first one did.",
    ),
)
