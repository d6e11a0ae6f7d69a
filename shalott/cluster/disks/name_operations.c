/* What the kernel asks of names and directories. The lock is held in all of them. */
#include "faultfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_VALID_S = 3600 };

/* A directory as it was when its reader began. */
struct listing {
    size_t count;
    struct listed {
        uint64_t number;
        uint32_t type;
        char *name;
    } entries[];
};

static int check_new(const struct inode *directory, const char *name)
{
    if (!*name || strlen(name) > NAME_BYTES_MAX)
        return *name ? -ENAMETOOLONG : -ENOENT;
    if (directory == fs.root && strcmp(name, STAGE) == 0)
        return -EACCES;
    return names_get(&directory->entries, name) ? -EEXIST : 0;
}

void answer_entry(struct inode *inode, struct fuse_entry_out *entry)
{
    if (!inode->lookups++)
        inode_hold(inode);
    *entry = (struct fuse_entry_out){
        .nodeid = (uintptr_t)inode,
        .entry_valid = NAMES_VALID_S,
        .attr_valid = NAMES_VALID_S,
    };
    inode_attributes(inode, &entry->attr);
}

static int answer(struct request *request, struct inode *inode)
{
    answer_entry(inode, request->answer);
    request->answered = sizeof(struct fuse_entry_out);
    return 0;
}

int do_lookup(struct request *request)
{
    struct inode *found = names_get(&request->inode->entries, request->body);
    return found ? answer(request, found) : -ENOENT;
}

int add_inode(struct request *request, const char *name, mode_t mode, dev_t device,
              const char *target, struct inode **made)
{
    struct inode *directory = request->inode;
    gid_t gid = directory->mode & S_ISGID ? directory->gid : request->header->gid;
    int error = check_new(directory, name);
    if (error)
        return error;
    if (S_ISDIR(mode) && directory->mode & S_ISGID)
        mode |= S_ISGID;
    *made = inode_new(mode, request->header->uid, gid, device, target, &error);
    if (!*made)
        return error;
    if (S_ISDIR(mode))
        (*made)->parent = directory;
    struct name_change change = {directory, *made, (char *)name};
    tree_change(&change, 1);
    fs.counters.creations++;
    return 0;
}

static int add(struct request *request, const char *name, mode_t mode, dev_t device,
               const char *target)
{
    struct inode *made;
    int error = add_inode(request, name, mode, device, target, &made);
    return error ? error : answer(request, made);
}

int do_mkdir(struct request *request)
{
    const struct fuse_mkdir_in *in = request->body;
    return add(request, (const char *)(in + 1), (in->mode & 07777) | S_IFDIR, 0, NULL);
}

int do_mknod(struct request *request)
{
    const struct fuse_mknod_in *in = request->body;
    return add(request, (const char *)(in + 1), in->mode, in->rdev, NULL);
}

int do_symlink(struct request *request)
{
    const char *name = request->body, *target = name + strlen(name) + 1;
    return add(request, name, S_IFLNK | 0777, 0, target);
}

int do_readlink(struct request *request)
{
    char name[32];
    inode_stage_name(request->inode, name);
    ssize_t length = readlinkat(fs.stage, name, request->answer, PATH_BYTES_MAX);
    if (length < 0)
        return -errno;
    request->answered = (size_t)length;
    return 0;
}

int do_link(struct request *request)
{
    const struct fuse_link_in *in = request->body;
    struct inode *inode = (struct inode *)(uintptr_t)in->oldnodeid;
    const char *name = (const char *)(in + 1);
    int error = check_new(request->inode, name);
    if (error || inode->stale)
        return error ? error : -ESTALE;
    struct name_change change = {request->inode, inode, (char *)name};
    tree_change(&change, 1);
    fs.counters.creations++;
    return answer(request, inode);
}

static int remove_name(struct request *request, bool wants_directory)
{
    const char *name = request->body;
    struct inode *found = names_get(&request->inode->entries, name);
    if (!found)
        return -ENOENT;
    if (!S_ISDIR(found->mode) == wants_directory)
        return wants_directory ? -ENOTDIR : -EISDIR;
    if (found->entries.count)
        return -ENOTEMPTY;
    struct name_change change = {request->inode, NULL, (char *)name};
    tree_change(&change, 1);
    fs.counters.removals++;
    return 0;
}

int do_unlink(struct request *request)
{
    return remove_name(request, false);
}

int do_rmdir(struct request *request)
{
    return remove_name(request, true);
}

static int rename_to(struct request *request, uint64_t target, const char *names, uint32_t flags)
{
    struct inode *from = request->inode;
    struct inode *to = target == FUSE_ROOT_ID ? fs.root : (struct inode *)(uintptr_t)target;
    const char *old_name = names, *new_name = names + strlen(names) + 1;
    struct inode *moved = names_get(&from->entries, old_name);
    if (to->stale)
        return -ESTALE;
    if (flags & ~(uint32_t)RENAME_NOREPLACE)
        return -EINVAL;
    if (!moved)
        return -ENOENT;
    int error = check_new(to, new_name);
    if (error && (error != -EEXIST || flags & RENAME_NOREPLACE))
        return error;
    struct inode *replaced = names_get(&to->entries, new_name);
    if (replaced == moved)
        return 0;
    if (replaced && S_ISDIR(replaced->mode) != S_ISDIR(moved->mode))
        return S_ISDIR(moved->mode) ? -ENOTDIR : -EISDIR;
    if (replaced && replaced->entries.count)
        return -ENOTEMPTY;
    struct name_change changes[] = {{from, NULL, (char *)old_name}, {to, moved, (char *)new_name}};
    tree_change(changes, 2);
    fs.counters.renames++;
    return 0;
}

int do_rename(struct request *request)
{
    const struct fuse_rename_in *in = request->body;
    return rename_to(request, in->newdir, (const char *)(in + 1), 0);
}

int do_rename2(struct request *request)
{
    const struct fuse_rename2_in *in = request->body;
    return rename_to(request, in->newdir, (const char *)(in + 1), in->flags);
}

int do_opendir(struct request *request)
{
    struct fuse_open_out *out = request->answer;
    struct handle *handle = allocate(sizeof *handle);
    handle->inode = request->inode;
    handle->life = fs.life;
    inode_hold(request->inode);
    request->inode->opens++;
    *out = (struct fuse_open_out){.fh = (uintptr_t)handle};
    request->answered = sizeof *out;
    return 0;
}

static struct listing *list(const struct inode *directory)
{
    size_t count = directory->entries.count;
    struct listing *listing = allocate(sizeof *listing + (count + 2) * sizeof(struct listed));
    struct entry **all = names_sorted(&directory->entries);
    listing->entries[0] = (struct listed){directory->number, DT_DIR, strdup(".")};
    listing->entries[1] = (struct listed){directory->parent->number, DT_DIR, strdup("..")};
    listing->count = count + 2;
    for (size_t i = 0; i < count; i++)
        listing->entries[i + 2] = (struct listed){
            all[i]->inode->number, (all[i]->inode->mode & S_IFMT) >> 12, strdup(all[i]->name)};
    free(all);
    return listing;
}

void free_listing(struct listing *listing)
{
    for (size_t i = 0; listing && i < listing->count; i++)
        free(listing->entries[i].name);
    free(listing);
}

int do_readdir(struct request *request)
{
    const struct fuse_read_in *in = request->body;
    struct handle *handle = (struct handle *)(uintptr_t)in->fh;
    if (handle->life != fs.life)
        return -EIO;
    if (in->offset == 0 || !handle->listing) {
        free_listing(handle->listing);
        handle->listing = list(handle->inode);
    }
    for (size_t i = in->offset; i < handle->listing->count; i++) {
        const struct listed *listed = &handle->listing->entries[i];
        size_t length = strlen(listed->name);
        size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
        if (request->answered + size > in->size)
            break;
        struct fuse_dirent *entry =
            (struct fuse_dirent *)((char *)request->answer + request->answered);
        memset(entry, 0, size);
        entry->ino = listed->number;
        entry->off = i + 1;
        entry->namelen = (uint32_t)length;
        entry->type = listed->type;
        memcpy(entry->name, listed->name, length);
        request->answered += size;
    }
    return 0;
}

int do_fsyncdir(struct request *request)
{
    const struct fuse_fsync_in *in = request->body;
    if (((struct handle *)(uintptr_t)in->fh)->life != fs.life)
        return -EIO;
    request->held_at_syncs = faults_count_sync();
    fs.counters.directory_syncs++;
    if (faults_fail(CALL_SYNC))
        return -EIO;
    if (fs.planted == PLANTED_SYNCS_NOTHING)
        return 0;
    if (fs.names_rule == NAMES_JOURNAL)
        tree_sync_all();
    else
        tree_sync(request->inode);
    return 0;
}
