/* Inodes and what is cached of their contents: made, counted, described, written back, freed.

   Pages lie in a hash table with open addressing; only a shrinking file removes single ones. */
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct faultfs fs;

void inode_stage_name(const struct inode *inode, char name[32])
{
    snprintf(name, 32, "%c%llu", S_ISDIR(inode->mode) ? 'd' : 'f',
             (unsigned long long)inode->number);
}

struct inode *inode_blank(mode_t mode)
{
    struct inode *inode = allocate(sizeof *inode);
    inode->number = fs.next_number++;
    inode->mode = mode;
    inode->descriptor = -1;
    inode->next = fs.inodes;
    if (fs.inodes)
        fs.inodes->previous = inode;
    fs.inodes = inode;
    clock_gettime(CLOCK_REALTIME, &inode->modified);
    inode->accessed = inode->changed = inode->modified;
    return inode;
}

static void discard(struct inode *inode)
{
    if (inode->previous)
        inode->previous->next = inode->next;
    else
        fs.inodes = inode->next;
    if (inode->next)
        inode->next->previous = inode->previous;
    free(inode);
}

/* The object in the stage that will be the inode's in the backing directory. */
static int make_staged(const struct inode *inode, const char *target)
{
    char name[32];
    inode_stage_name(inode, name);
    mode_t kept = S_ISDIR(inode->mode) ? 0700 : 0600;
    int made;
    if (S_ISDIR(inode->mode))
        made = mkdirat(fs.stage, name, kept);
    else if (S_ISLNK(inode->mode))
        made = symlinkat(target, fs.stage, name);
    else
        made = mknodat(fs.stage, name, (inode->mode & S_IFMT) | kept, inode->device);
    if (made != 0)
        return -errno;
    if (fs.owns_backing) {
        if (fchownat(fs.stage, name, inode->uid, inode->gid, AT_SYMLINK_NOFOLLOW) != 0)
            return -errno;
        if (!S_ISLNK(inode->mode) && fchmodat(fs.stage, name, inode->mode & 07777, 0) != 0)
            return -errno;
    }
    return 0;
}

struct inode *inode_new(mode_t mode, uid_t uid, gid_t gid, dev_t device, const char *target,
                        int *error)
{
    struct inode *inode = inode_blank(mode);
    inode->uid = uid;
    inode->gid = gid;
    inode->device = device;
    *error = make_staged(inode, target);
    if (!*error && S_ISDIR(mode))
        *error = inode_descriptor(inode) < 0 ? -EIO : 0;
    if (S_ISLNK(mode))
        cache_clear(&inode->cached, strlen(target));
    if (*error) {
        discard(inode);
        return NULL;
    }
    return inode;
}

/* Files are opened when they are first needed, and closed with their last handle. */
int inode_descriptor(struct inode *inode)
{
    if (inode->descriptor < 0) {
        char name[32];
        inode_stage_name(inode, name);
        int flags = S_ISDIR(inode->mode) ? O_RDONLY | O_DIRECTORY : O_RDWR | O_NOFOLLOW;
        inode->descriptor = openat(fs.stage, name, flags | O_CLOEXEC);
    }
    return inode->descriptor;
}

void inode_hold(struct inode *inode)
{
    inode->references++;
}

/* A directory that no path reaches takes its names with it: they led nowhere. */
static void drop_names(struct inode *directory)
{
    struct entry **seen = names_sorted(&directory->entries);
    for (size_t i = 0; i < directory->entries.count; i++)
        inode_release(seen[i]->inode);
    free(seen);
    names_clear(&directory->entries);
    struct entry **all = names_sorted(&directory->durable);
    size_t count = directory->durable.count;
    for (size_t i = 0; i < count; i++) {
        struct inode *child = all[i]->inode;
        if (S_ISDIR(child->mode)) {
            char name[32];
            inode_stage_name(child, name);
            renameat(directory->descriptor, all[i]->name, fs.stage, name);
        } else {
            unlinkat(directory->descriptor, all[i]->name, 0);
        }
        inode_release(child);
    }
    free(all);
    names_clear(&directory->durable);
}

void inode_release(struct inode *inode)
{
    if (--inode->references > 0)
        return;
    if (!inode->stale) {
        char name[32];
        if (S_ISDIR(inode->mode))
            drop_names(inode);
        inode_stage_name(inode, name);
        unlinkat(fs.stage, name, S_ISDIR(inode->mode) ? AT_REMOVEDIR : 0);
        file_forget_changes(inode);
        cache_clear(&inode->cached, 0);
        if (inode->descriptor >= 0)
            close(inode->descriptor);
    }
    discard(inode);
}

void inode_touch(struct inode *inode, bool modified)
{
    clock_gettime(CLOCK_REALTIME, &inode->changed);
    if (modified)
        inode->modified = inode->changed;
}

void inode_attributes(const struct inode *inode, struct fuse_attr *attributes)
{
    *attributes = (struct fuse_attr){
        .ino = inode->number,
        .size = S_ISDIR(inode->mode) ? PAGE_BYTES : inode->cached.size,
        .atime = (uint64_t)inode->accessed.tv_sec,
        .mtime = (uint64_t)inode->modified.tv_sec,
        .ctime = (uint64_t)inode->changed.tv_sec,
        .atimensec = (uint32_t)inode->accessed.tv_nsec,
        .mtimensec = (uint32_t)inode->modified.tv_nsec,
        .ctimensec = (uint32_t)inode->changed.tv_nsec,
        .mode = inode->mode,
        /* 1 tells programs that a directory's links don't count its directories, as btrfs does */
        .nlink = S_ISDIR(inode->mode) ? 1 : inode->links,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev = (uint32_t)inode->device,
        .blksize = PAGE_BYTES,
    };
    attributes->blocks = (attributes->size + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

bool inode_takes_room(const struct inode *inode)
{
    return S_ISREG(inode->mode) && !inode->stale && (inode->links || inode->opens);
}

/* Sizes count, holes included, as on the simulation's disk. */
uint64_t room_bytes(void)
{
    uint64_t limit = fs.capacity_bytes;
    if (!limit) {
        struct statvfs stats;
        if (fstatvfs(fs.stage, &stats) != 0)
            return 0;
        /* What waits for a sync will need the room that the backing file system still shows. */
        uint64_t room = (uint64_t)stats.f_bavail * stats.f_frsize;
        limit = fs.used_bytes + (room > fs.dirty_bytes ? room - fs.dirty_bytes : 0);
    }
    if (fs.faults.full && fs.full_at_bytes < limit)
        limit = fs.full_at_bytes;
    return limit > fs.used_bytes ? limit - fs.used_bytes : 0;
}

enum { FIRST_SLOTS = 8 };

static size_t least(uint64_t a, uint64_t b)
{
    return (size_t)(a < b ? a : b);
}

static struct page **place_of(const struct cache *cache, uint64_t index)
{
    size_t slot = (size_t)(index * 0x9e3779b97f4a7c15u >> 20) & (cache->slot_count - 1);
    while (cache->slots[slot] && cache->slots[slot]->index != index)
        slot = (slot + 1) & (cache->slot_count - 1);
    return &cache->slots[slot];
}

struct page *cache_page(const struct cache *cache, uint64_t index)
{
    return cache->count ? *place_of(cache, index) : NULL;
}

/* Moves the pages before `end` to a table of `slot_count`; frees the others. */
static void rehash(struct cache *cache, size_t slot_count, uint64_t end)
{
    struct cache fresh = {cache->size, cache->visible, NULL, slot_count, 0};
    fresh.slots = allocate(slot_count * sizeof *fresh.slots);
    for (size_t slot = 0; slot < cache->slot_count; slot++) {
        struct page *page = cache->slots[slot];
        if (page && page->index < end) {
            *place_of(&fresh, page->index) = page;
            fresh.count++;
        } else {
            free(page);
        }
    }
    free(cache->slots);
    *cache = fresh;
}

/* Bytes of the backing file, zeros where it has none or they do not show. */
static int read_backing(int backing, uint64_t visible, uint8_t *into, size_t length,
                        uint64_t offset)
{
    size_t wanted = offset < visible ? least(length, visible - offset) : 0, had = 0;
    while (had < wanted) {
        ssize_t got = pread(backing, into + had, wanted - had, (off_t)(offset + had));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        had += (size_t)got;
    }
    memset(into + had, 0, length - had);
    return 0;
}

int cache_read(const struct cache *cache, int backing, uint8_t *into, size_t length,
               uint64_t offset)
{
    if (!cache->count)
        return read_backing(backing, cache->visible, into, length, offset);
    while (length) {
        uint64_t index = offset / PAGE_BYTES;
        size_t within = offset % PAGE_BYTES, part = least(length, PAGE_BYTES - within);
        struct page *page = cache_page(cache, index);
        if (page) {
            memcpy(into, page->bytes + within, part);
        } else {
            int error = read_backing(backing, cache->visible, into, part, offset);
            if (error)
                return error;
        }
        into += part, offset += part, length -= part;
    }
    return 0;
}

int cache_write(struct cache *cache, int backing, const uint8_t *data, size_t length,
                uint64_t offset)
{
    uint64_t end = offset + length;
    while (length) {
        uint64_t index = offset / PAGE_BYTES;
        size_t within = offset % PAGE_BYTES, part = least(length, PAGE_BYTES - within);
        if (cache->count * 2 >= cache->slot_count)
            rehash(cache, cache->slot_count ? cache->slot_count * 2 : FIRST_SLOTS, UINT64_MAX);
        struct page **place = place_of(cache, index);
        if (!*place) {
            struct page *page = allocate(sizeof *page);
            page->index = index;
            if (part < PAGE_BYTES) {
                int error = read_backing(backing, cache->visible, page->bytes, PAGE_BYTES,
                                         index * PAGE_BYTES);
                if (error) {
                    free(page);
                    return error;
                }
            }
            *place = page;
            cache->count++;
        }
        memcpy((*place)->bytes + within, data, part);
        data += part, offset += part, length -= part;
    }
    if (end > cache->size)
        cache->size = end;
    return 0;
}

void cache_resize(struct cache *cache, uint64_t size)
{
    if (size < cache->size) {
        uint64_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES;
        struct page *last = size % PAGE_BYTES ? cache_page(cache, size / PAGE_BYTES) : NULL;
        if (last)
            memset(last->bytes + size % PAGE_BYTES, 0, PAGE_BYTES - size % PAGE_BYTES);
        if (cache->count)
            rehash(cache, cache->slot_count, pages);
        if (size < cache->visible)
            cache->visible = size;
    }
    cache->size = size;
}

void cache_clear(struct cache *cache, uint64_t size)
{
    for (size_t slot = 0; slot < cache->slot_count; slot++)
        free(cache->slots[slot]);
    free(cache->slots);
    *cache = (struct cache){.size = size, .visible = size};
}

/* -- A file's changes since its last sync: seen in its cache, and waiting to be written.
 *
 * A sync that fails leaves the pages clean and their content in the cache, as Linux does: readers
 * see what no later sync will write. */
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
