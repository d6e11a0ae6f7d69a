/* What the kernel asks of files. The lock is held in all of them. */
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTRIBUTES_VALID_S = 3600 }; /* all changes come through the kernel, and power tells it */
enum { ZEROS_AT_ONCE = 1 << 16 };

static struct handle *handle_of(uint64_t number)
{
    return (struct handle *)(uintptr_t)number;
}

static bool is_void(const struct handle *handle)
{
    return handle->life != fs.life;
}

static int open_inode(struct inode *inode, uint32_t flags, struct fuse_open_out *out)
{
    if (S_ISREG(inode->mode) && inode_descriptor(inode) < 0)
        return -errno;
    struct handle *handle = allocate(sizeof *handle);
    handle->inode = inode;
    handle->life = fs.life;
    /* Past the kernel's cache, where a read can be short: else a short read is the file's end. */
    handle->direct = fs.faults.shortened && fs.direct_may_map;
    inode_hold(inode);
    inode->opens++;
    fs.counters.opens++;
    *out = (struct fuse_open_out){
        .fh = (uintptr_t)handle,
        .open_flags = handle->direct ? FOPEN_DIRECT_IO : FOPEN_KEEP_CACHE,
    };
    (void)flags;
    return 0;
}

int do_open(struct request *request)
{
    const struct fuse_open_in *in = request->body;
    request->answered = sizeof(struct fuse_open_out);
    return open_inode(request->inode, in->flags, request->answer);
}

int do_create(struct request *request)
{
    const struct fuse_create_in *in = request->body;
    struct fuse_entry_out *entry = request->answer;
    struct inode *made;
    int error = add_inode(request, (const char *)(in + 1), (in->mode & 07777) | S_IFREG, 0, NULL,
                          &made);
    if (error)
        return error;
    answer_entry(made, entry);
    request->answered = sizeof *entry + sizeof(struct fuse_open_out);
    return open_inode(made, in->flags, (struct fuse_open_out *)(entry + 1));
}

int do_release(struct request *request)
{
    const struct fuse_release_in *in = request->body;
    struct handle *handle = handle_of(in->fh);
    struct inode *inode = handle->inode;
    bool took = inode_takes_room(inode);
    inode->opens--;
    if (took && !inode_takes_room(inode))
        fs.used_bytes -= inode->cached.size;
    if (!inode->stale && !inode->opens && !inode->first_change && S_ISREG(inode->mode) &&
        inode->descriptor >= 0) {
        close(inode->descriptor);
        inode->descriptor = -1;
    }
    free_listing(handle->listing);
    free(handle);
    inode_release(inode);
    return 0;
}

int do_releasedir(struct request *request)
{
    return do_release(request);
}

int do_read(struct request *request)
{
    const struct fuse_read_in *in = request->body;
    struct handle *handle = handle_of(in->fh);
    struct inode *inode = request->inode;
    fs.counters.reads++;
    if (is_void(handle) || faults_fail(CALL_READ))
        return -EIO;
    uint64_t size = inode->cached.size;
    size_t length = in->offset < size ? (size_t)(size - in->offset) : 0;
    if (length > in->size)
        length = in->size;
    if (length > MAX_WRITE)
        length = MAX_WRITE;
    if (handle->direct)
        length = faults_shortened(length);
    int backing = inode_descriptor(inode);
    if (backing < 0)
        return -errno;
    request->answered = length;
    fs.counters.read_bytes += length;
    return cache_read(&inode->cached, backing, request->answer, length, in->offset);
}

int do_write(struct request *request)
{
    const struct fuse_write_in *in = request->body;
    struct fuse_write_out *out = request->answer;
    struct inode *inode = request->inode;
    size_t taken = in->size;
    fs.counters.writes++;
    if (is_void(handle_of(in->fh)) || faults_fail(CALL_WRITE))
        return -EIO;
    if (!(in->write_flags & FUSE_WRITE_CACHE)) { /* what was mapped is within the file */
        taken = faults_shortened(taken);
        uint64_t room = room_bytes() + inode->cached.size;
        if (taken && room <= in->offset) {
            fs.counters.refused_for_space++;
            return -ENOSPC;
        }
        if (taken > room - in->offset)
            taken = (size_t)(room - in->offset);
    }
    int error = file_write(inode, (const uint8_t *)(in + 1), taken, in->offset);
    fs.counters.written_bytes += error ? 0 : taken;
    *out = (struct fuse_write_out){.size = (uint32_t)taken};
    request->answered = sizeof *out;
    return error;
}

int do_fsync(struct request *request)
{
    const struct fuse_fsync_in *in = request->body;
    if (is_void(handle_of(in->fh)))
        return -EIO;
    request->held_at_syncs = faults_count_sync();
    if (faults_fail(CALL_SYNC)) {
        file_fail_sync(request->inode);
        return -EIO;
    }
    if (fs.planted == PLANTED_SYNCS_NOTHING)
        return 0;
    int error = file_sync(request->inode);
    if (!error && fs.names_rule == NAMES_JOURNAL)
        tree_sync_all();
    return error;
}

static int zero(struct inode *inode, uint64_t offset, uint64_t end)
{
    static const uint8_t zeros[ZEROS_AT_ONCE];
    while (offset < end) {
        size_t part = end - offset < ZEROS_AT_ONCE ? (size_t)(end - offset) : ZEROS_AT_ONCE;
        int error = file_write(inode, zeros, part, offset);
        if (error)
            return error;
        offset += part;
    }
    return 0;
}

int do_fallocate(struct request *request)
{
    const struct fuse_fallocate_in *in = request->body;
    struct inode *inode = request->inode;
    uint64_t size = inode->cached.size, end = in->offset + in->length;
    uint32_t known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    if (is_void(handle_of(in->fh)))
        return -EIO;
    fs.counters.others++;
    if (in->mode & ~known)
        return -EOPNOTSUPP;
    bool grows = end > size && !(in->mode & FALLOC_FL_KEEP_SIZE);
    if (grows && end - size > room_bytes()) {
        fs.counters.refused_for_space++;
        return -ENOSPC;
    }
    int error = 0;
    if (in->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        error = zero(inode, in->offset, end < size ? end : size);
    return error || !grows ? error : file_truncate(inode, end);
}

int do_getattr(struct request *request)
{
    struct fuse_attr_out *out = request->answer;
    *out = (struct fuse_attr_out){.attr_valid = ATTRIBUTES_VALID_S};
    inode_attributes(request->inode, &out->attr);
    request->answered = sizeof *out;
    return 0;
}

static struct timespec time_of(uint64_t seconds, uint32_t nanoseconds, bool now)
{
    struct timespec when = {(time_t)seconds, (long)nanoseconds};
    if (now)
        clock_gettime(CLOCK_REALTIME, &when);
    return when;
}

/* Owners, modes, and times are durable at once: the simulation's disk has none to lose. */
static int change_owner_and_mode(struct inode *inode, const struct fuse_setattr_in *in)
{
    if (!(in->valid & (FATTR_MODE | FATTR_UID | FATTR_GID)))
        return 0;
    if (in->valid & FATTR_MODE)
        inode->mode = (inode->mode & S_IFMT) | (in->mode & 07777);
    if (in->valid & FATTR_UID)
        inode->uid = in->uid;
    if (in->valid & FATTR_GID)
        inode->gid = in->gid;
    if (!fs.owns_backing || S_ISLNK(inode->mode))
        return 0;
    if (S_ISREG(inode->mode) || S_ISDIR(inode->mode)) {
        int backing = inode_descriptor(inode);
        bool changed = backing >= 0 && fchown(backing, inode->uid, inode->gid) == 0 &&
                       fchmod(backing, inode->mode & 07777) == 0;
        return changed ? 0 : -errno;
    }
    char name[32];
    inode_stage_name(inode, name);
    return fchmodat(fs.stage, name, inode->mode & 07777, 0) == 0 ? 0 : -errno;
}

int do_setattr(struct request *request)
{
    const struct fuse_setattr_in *in = request->body;
    struct inode *inode = request->inode;
    fs.counters.others++;
    if (in->valid & FATTR_FH && is_void(handle_of(in->fh)))
        return -EIO;
    int error = change_owner_and_mode(inode, in);
    if (!error && in->valid & FATTR_SIZE) {
        if (!S_ISREG(inode->mode))
            return -EINVAL;
        error = faults_fail(CALL_WRITE) ? -EIO : file_truncate(inode, in->size);
    }
    if (error)
        return error;
    inode_touch(inode, false);
    if (in->valid & FATTR_ATIME)
        inode->accessed = time_of(in->atime, in->atimensec, in->valid & FATTR_ATIME_NOW);
    if (in->valid & FATTR_MTIME)
        inode->modified = time_of(in->mtime, in->mtimensec, in->valid & FATTR_MTIME_NOW);
    return do_getattr(request);
}

int do_statfs(struct request *request)
{
    struct fuse_statfs_out *out = request->answer;
    uint64_t room = room_bytes() / PAGE_BYTES;
    *out = (struct fuse_statfs_out){.st = {
                                        .blocks = room + fs.used_bytes / PAGE_BYTES,
                                        .bfree = room,
                                        .bavail = room,
                                        .files = 1 << 20,
                                        .ffree = 1 << 20,
                                        .bsize = PAGE_BYTES,
                                        .frsize = PAGE_BYTES,
                                        .namelen = NAME_BYTES_MAX,
                                    }};
    request->answered = sizeof *out;
    return 0;
}
