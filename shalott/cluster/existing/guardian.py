"""The guardian of containers that others made: ``python -m shalott.cluster.existing.guardian``.

It reads ledgers (ledger.py), one a line of standard input, writes each down and says so. When its
input ends without a word, or is silent for the lease, the harness is gone: it undoes what the last
ledger says. The line ``end`` says that all is undone already. It leads a session of its own, so no
signal to the harness's hits it. Its command line says whose it is: ``... guardian RUN``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import msgspec

from shalott.cluster.existing.ledger import Ledger, place_of, undo, write_ledger
from shalott.cluster.owner import start_ticks
from shalott.core.errors import HarnessError

RENEW, END = b"renew\n", b"end\n"
LEASE_S = 60.0  # before the first ledger
RETRY_S, RETRIES = 1.0, 30  # an engine may be away for a moment


async def guard() -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    own = os.getpid(), start_ticks(os.getpid()) or 0
    ledger: Ledger | None = None
    while True:
        try:
            async with asyncio.timeout(LEASE_S if ledger is None else ledger.lease_s):
                line = await reader.readline()
        except TimeoutError:
            line = b""
        if line == END or (not line and ledger is None):
            break
        if not line:
            assert ledger is not None
            await _undo_all(ledger)
            break
        if line != RENEW:
            read = msgspec.json.decode(line, type=Ledger)
            ledger = msgspec.structs.replace(read, guardian=own)
            write_ledger(ledger)
            os.write(1, b"kept\n")
    if ledger is not None:
        place_of(ledger.token).unlink(missing_ok=True)


async def _undo_all(ledger: Ledger) -> None:
    """Raises HarnessError: the ledger stays, for a sweep."""
    for number in range(RETRIES):
        try:
            await undo(ledger)
        except HarnessError as error:
            logging.warning("not everything is undone: %s", error)
            if number == RETRIES - 1:
                raise
            await asyncio.sleep(RETRY_S)
        else:
            return


if __name__ == "__main__":
    asyncio.run(guard())
