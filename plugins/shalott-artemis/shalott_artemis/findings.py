"""What Artemis' manual admits, and how it is found again."""

from __future__ import annotations

import shalott.api as api

FINDINGS = (
    api.PublishedFinding(
        name="artemis-split-brain",
        title="A primary and a backup without a quorum are both active once they are parted",
        source="https://activemq.apache.org/components/artemis/documentation/latest/network-isolation.html",
        system="artemis",
        releases=("2.40.0",),
        newest="2.40.0",
        command=(
            *("--profile", "unsafe", "--nodes", "2", "--queues", "1", "--time-limit", "40"),
            *("--nemesis", "none"),
            *("--sequence", "partition-one n2; wait 20s; end; wait 5s"),
        ),
        seen=(
            api.Seen(checker="mastership", kinds=("dual-master-effective",)),
            api.Seen(checker="total-queue", kinds=("lost",)),
        ),
        published="documented: both serve the same messages, and clients are divided between them",
        minutes=2.5,
    ),
)
