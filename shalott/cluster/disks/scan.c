/* Reads what the backing directory holds, once, before it is mounted: all of it is durable. */
#include "faultfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct names linked; /* inodes with several names, by device and number */

static struct inode *known_as(const struct stat *found, bool *is_new)
{
    char key[64];
    struct inode *inode = NULL;
    bool several = !S_ISDIR(found->st_mode) && found->st_nlink > 1;
    snprintf(key, sizeof key, "%llx:%llx", (unsigned long long)found->st_dev,
             (unsigned long long)found->st_ino);
    if (several)
        inode = names_get(&linked, key);
    *is_new = !inode;
    if (inode)
        return inode;
    inode = inode_blank(found->st_mode);
    inode->uid = found->st_uid;
    inode->gid = found->st_gid;
    inode->device = found->st_rdev;
    inode->accessed = found->st_atim;
    inode->modified = found->st_mtim;
    inode->changed = found->st_ctim;
    cache_clear(&inode->cached, S_ISDIR(found->st_mode) ? 0 : (uint64_t)found->st_size);
    if (several)
        names_set(&linked, key, inode);
    return inode;
}

static int scan_directory(struct inode *directory);

static int scan_entry(struct inode *directory, const char *name)
{
    struct stat found;
    bool is_new;
    char staged[32];
    if (fstatat(directory->descriptor, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    struct inode *inode = known_as(&found, &is_new);
    names_set(&directory->entries, name, inode);
    names_set(&directory->durable, name, inode);
    inode->references += 2;
    inode->links++;
    if (S_ISDIR(inode->mode)) {
        inode->parent = directory;
        inode->descriptor =
            openat(directory->descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return inode->descriptor < 0 ? -errno : scan_directory(inode);
    }
    if (!is_new)
        return 0;
    if (S_ISREG(inode->mode))
        fs.used_bytes += inode->cached.size;
    inode_stage_name(inode, staged);
    return linkat(directory->descriptor, name, fs.stage, staged, 0) == 0 ? 0 : -errno;
}

static int scan_directory(struct inode *directory)
{
    int copy = openat(directory->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream)
        return -errno;
    for (struct dirent *entry; !error && (entry = readdir(stream));) {
        bool own = directory == fs.root && strcmp(entry->d_name, STAGE) == 0;
        if (!own && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = scan_entry(directory, entry->d_name);
    }
    closedir(stream);
    return error;
}

/* What another server left there, of inodes that had no durable name. */
static void empty(int directory)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(directory, entry->d_name, 0) == 0)
            continue;
        int below = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (below >= 0) {
            empty(below);
            close(below);
            unlinkat(directory, entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(stream);
}

int scan(const char *backing)
{
    struct stat found;
    fs.next_number = FUSE_ROOT_ID;
    int directory = open(backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fstat(directory, &found) != 0)
        return -errno;
    if (mkdirat(directory, STAGE, 0700) != 0 && errno != EEXIST)
        return -errno;
    fs.stage = openat(directory, STAGE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fs.stage < 0)
        return -errno;
    empty(fs.stage);
    fs.root = inode_blank(found.st_mode);
    fs.root->uid = found.st_uid;
    fs.root->gid = found.st_gid;
    fs.root->descriptor = directory;
    fs.root->parent = fs.root;
    inode_hold(fs.root);
    int error = scan_directory(fs.root);
    names_clear(&linked);
    return error;
}
