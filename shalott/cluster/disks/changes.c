/* A file's changes since its last sync: seen in its cache, and waiting to be written.
 *
 * A sync that fails leaves the pages clean and their content in the cache, as Linux does: readers
 * see what no later sync will write. */
#include "faultfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void remember(struct inode *inode, struct change *change)
{
    if (inode->last_change)
        inode->last_change->next = change;
    else
        inode->first_change = change;
    inode->last_change = change;
    inode->dirty_bytes += change->length;
    fs.dirty_bytes += change->length;
}

void file_forget_changes(struct inode *inode)
{
    for (struct change *change = inode->first_change, *next; change; change = next) {
        next = change->next;
        free(change);
    }
    inode->first_change = inode->last_change = NULL;
    fs.dirty_bytes -= inode->dirty_bytes;
    inode->dirty_bytes = 0;
}

int file_write(struct inode *inode, const uint8_t *data, size_t length, uint64_t offset)
{
    if (!length)
        return 0;
    int backing = inode_descriptor(inode);
    if (backing < 0)
        return -errno;
    uint64_t before = inode->cached.size;
    int error = cache_write(&inode->cached, backing, data, length, offset);
    if (error)
        return error;
    if (inode_takes_room(inode))
        fs.used_bytes += inode->cached.size - before;
    struct change *change = allocate(sizeof *change + length);
    change->offset = offset;
    change->length = (uint32_t)length;
    memcpy(change->bytes, data, length);
    remember(inode, change);
    inode_touch(inode, true);
    if (fs.dirty_bytes > fs.dirty_limit_bytes && !inode->ghost) {
        /* As a kernel does that holds too many dirty pages: it may write them at any time. */
        fs.counters.written_back_bytes += inode->dirty_bytes;
        return file_sync(inode);
    }
    return 0;
}

int file_truncate(struct inode *inode, uint64_t size)
{
    if (inode_descriptor(inode) < 0)
        return -errno;
    uint64_t before = inode->cached.size;
    cache_resize(&inode->cached, size);
    if (inode_takes_room(inode))
        fs.used_bytes += size - before;
    struct change *change = allocate(sizeof *change);
    change->truncates = true;
    change->offset = size;
    remember(inode, change);
    inode_touch(inode, true);
    return 0;
}

static int write_all(int backing, const uint8_t *bytes, size_t length, uint64_t offset)
{
    while (length) {
        ssize_t wrote = pwrite(backing, bytes, length, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote ? -errno : -EIO;
        bytes += wrote, offset += (uint64_t)wrote, length -= (size_t)wrote;
    }
    return 0;
}

int file_sync(struct inode *inode)
{
    if (!inode->first_change)
        return 0;
    int backing = inode_descriptor(inode);
    if (backing < 0)
        return -errno;
    for (struct change *change = inode->first_change; change; change = change->next) {
        int error = change->truncates
                        ? (ftruncate(backing, (off_t)change->offset) == 0 ? 0 : -errno)
                        : write_all(backing, change->bytes, change->length, change->offset);
        if (error)
            return error;
    }
    fs.counters.synced_bytes += inode->dirty_bytes;
    file_forget_changes(inode);
    if (!inode->ghost)
        cache_clear(&inode->cached, inode->cached.size);
    return 0;
}

void file_fail_sync(struct inode *inode)
{
    inode->ghost = inode->ghost || inode->first_change;
    file_forget_changes(inode);
}

/* A stored bit rots. A reader sees it, unless the byte waits to be written over it. */
int file_flip(struct inode *inode, uint64_t position, int bit)
{
    int backing = inode_descriptor(inode);
    uint8_t byte;
    if (backing < 0 || pread(backing, &byte, 1, (off_t)position) != 1)
        return -EIO;
    byte ^= (uint8_t)(1 << bit);
    if (pwrite(backing, &byte, 1, (off_t)position) != 1)
        return -EIO;
    inode->rotten_bytes++;
    for (struct change *change = inode->first_change; change; change = change->next)
        if (change->truncates ? change->offset <= position
                              : change->offset <= position &&
                                    position < change->offset + change->length)
            return 0;
    struct page *page = cache_page(&inode->cached, position / PAGE_BYTES);
    if (page && position < inode->cached.size)
        page->bytes[position % PAGE_BYTES] ^= (uint8_t)(1 << bit);
    return 0;
}
