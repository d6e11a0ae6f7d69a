"""SetReports: tells the controllers which SyncStateSet the master wants, one report at a time.

Source: broker/controller/ReplicasManager.java (doReportSyncStateSetChanged, checkSyncStateSet) and
AutoSwitchHAService.java; docs/protocols.md 2.8. What is wanted is worked out anew for each report,
from the set as it is known then. Upstream once worked out expansion and shrinking side by side, so
that a report based on an older set overwrote a newer one (KB-RKT-11).

Answers. Committed: the set is as the answer says. Refused, or never sent: the proposal is void.
Nothing heard: the outcome is unknown, so the proposal keeps counting (sync_state_set.py), the
controllers are asked, and what is still wanted is reported again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError
from shalott.broker.base.tasks import Tasks
from shalott.broker.rocket.autoswitch.service import AutoSwitchHAService
from shalott.broker.rocket.autoswitch.tenure import Proposal, Tenure
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import OutcomeUnknown
from shalott.broker.rocket.remoting.client import Unanswered

log = logging.getLogger("shalott.broker.replicas")

FIRST_CHECK_MS = 3000
RETRY_MS = 1000
ANSWER_LATE_MS = 2000


class SetReports:
    """``ask``: have the controllers asked for the set, soon."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        service: AutoSwitchHAService,
        client: ControllerClient,
        *,
        ask: Callable[[], None],
    ) -> None:
        self._env = env
        self._group = config.broker.broker_name
        self._period_ms = config.ha.check_sync_state_set_period_ms
        self._service = service
        self._client = client
        self._ask = ask
        self._wrong = asyncio.Event()
        self._side_by_side = env.has_bug("KB-RKT-11")
        self._reports = Tasks()
        service.set_is_wrong = self._wrong.set

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        check_at = loop.time() + FIRST_CHECK_MS / 1000
        try:
            while True:
                is_check = False
                try:
                    async with asyncio.timeout_at(check_at):
                        await self._wrong.wait()
                except TimeoutError:
                    is_check = True
                    check_at = loop.time() + self._period_ms / 1000
                self._wrong.clear()
                await self._report(is_check=is_check)
        finally:
            self._reports.cancel()

    async def _report(self, *, is_check: bool) -> None:
        tenure = self._service.tenure
        proposal = None if tenure is None else tenure.propose(is_check=is_check)
        if tenure is None or proposal is None:
            return
        if self._side_by_side:  # KB-RKT-11: sss_concurrent
            self._reports.start(self._send_until_taken(tenure, proposal))
        elif not await self._send(tenure, proposal):
            await asyncio.sleep(RETRY_MS / 1000)
            self._wrong.set()

    async def _send(self, tenure: Tenure, proposal: Proposal) -> bool:
        """Whether it was committed."""
        report = (proposal.master_epoch, proposal.set_epoch, proposal.members)
        self._env.witness("reports set", *report)
        try:
            known = await self._client.alter_sync_state_set(
                self._group,
                tenure.set.me,
                proposal.master_epoch,
                proposal.members,
                proposal.set_epoch,
            )
            if self._env.buggify("set_reports.answer_late"):
                await pause_ms(ANSWER_LATE_MS)
        except (OutcomeUnknown, Unanswered) as error:
            log.info("it is unknown whether the set is %s: %s", proposal.members, error)
        except BrokerError as error:
            log.info("the set can't be %s: %s", proposal.members, error)
            self._env.witness("set refused", *report)
            if tenure.epoch == proposal.master_epoch:
                tenure.refused(proposal.members)
        else:
            if tenure is self._service.tenure and tenure.epoch == proposal.master_epoch:
                if tenure.learn(known.sync_state_set, known.sync_state_set_epoch):
                    self._service.tell_set(tenure.set.members, tenure.set.epoch)
                else:
                    tenure.refused(proposal.members)
            return True
        self._ask()
        return False

    async def _send_until_taken(self, tenure: Tenure, proposal: Proposal) -> None:
        """KB-RKT-11: what was worked out for an older set is sent with the newer one's epoch."""
        while not await self._send(tenure, proposal) and self._service.tenure is tenure:
            await asyncio.sleep(0.01)
            proposal = Proposal(
                members=proposal.members,
                set_epoch=tenure.set.epoch,
                master_epoch=proposal.master_epoch,
            )
