/* Inodes: how they are made, counted, described, and freed with what lies in the stage of them. */
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fputs("faultfs: out of memory\n", stderr);
        abort();
    }
    return memory;
}

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
