"""What a fault does to the nodes it hits, in words that a checker may go by.

A fault's record says it, its row in the history carries it (``extra.effects``), and checkers read
it there: they know no kinds, so a fault of somebody else's is judged as ours are.
"""

from __future__ import annotations

from typing import Literal

# - ends-processes: the nodes' processes end, and are started again
# - in-order: they end as an operator ends them, with time to flush and hand over
# - loses-unsynced: what had not been flushed to disk may be gone
# - suspends: the processes stand still, and go on later without knowing it
# - cuts-links: nodes don't hear each other
# - cuts-clients: clients don't hear nodes, or are not heard
# - troubles-disk: calls to the disk fail, do less, or take longer
# - fills-disk: there is no room, until the fault ends
# - breaks-disk: calls fail; what was dropped then may be missed at any later time
# - damages-data: what was written is not what is read
# - empties-disk: what was written is gone
# - slows: the processes get too little CPU, and are late
# - starves: memory, files, processes or room for temporary files run out, until the fault ends: the
#   kernel may end processes, and calls fail that ask for more
# - leaves-cluster: from now on the nodes don't belong to the system's cluster, and are down
# - joins-cluster: such nodes belong to it again
Effect = Literal[
    "ends-processes",
    "in-order",
    "loses-unsynced",
    "suspends",
    "cuts-links",
    "cuts-clients",
    "troubles-disk",
    "fills-disk",
    "breaks-disk",
    "damages-data",
    "empties-disk",
    "slows",
    "starves",
    "leaves-cluster",
    "joins-cluster",
]
