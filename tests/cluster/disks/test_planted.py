"""A file system that lies about syncs, and one that never loses anything, fail the contract of
crashes: so the contract says something."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.cluster.disks.mounting import DiskOptions, Planted
from tests.cluster.disks import test_crash_contract as contract
from tests.world.disk.disk_worlds import DiskWorld, MountedWorld
from tests.world.disk.mounted_disk import MountWorld

pytestmark = pytest.mark.local

Held = Callable[[DiskWorld], None]


SYNCED_IS_THERE = (
    contract.test_what_was_synced_survives_every_power_loss,
    contract.test_a_later_write_to_a_sector_never_survives_without_the_earlier_one,
    contract.test_a_rename_over_a_file_before_its_sync_may_leave_an_empty_file,
)
UNSYNCED_IS_LOST = (
    contract.test_unsynced_writes_are_lost_kept_or_torn_at_sectors,
    contract.test_drop_only_disks_lose_whole_operations_from_the_end,
    contract.test_syncing_a_file_does_not_make_its_name_durable,
    contract.test_a_rename_is_done_or_undone_never_half_also_between_directories,
)


@pytest.mark.parametrize(
    ("planted", "broken"),
    [
        *(("syncs-nothing", each) for each in SYNCED_IS_THERE),
        *(("keeps-all", each) for each in UNSYNCED_IS_LOST),
    ],
)
def test_a_planted_error_is_found(planted: Planted, broken: Held) -> None:
    mount = MountWorld(DiskOptions(planted=planted))
    try:
        with pytest.raises((AssertionError, FileNotFoundError)):
            broken(MountedWorld(mount))
    finally:
        mount.close()
