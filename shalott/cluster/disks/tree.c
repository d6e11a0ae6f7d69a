/* Directories: the names that are seen and those that are durable; cluster/sim/disk/names.py.
 *
 * Creating, renaming, and removing change the cache at once, and the disk when a directory is
 * synced. Until then they are in one log, in order. The backing directory holds the durable names.
 * An inode lies in the stage as well, from where durable names are linked: a directory only while
 * it has no durable name. */
#include "faultfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_MAX = 1 << 16 }; /* then a journal's commit is due, as every few seconds in a kernel */

/* Make a name of the backing directory lead to `inode`, or to nothing. */
static void set_durable(struct inode *directory, const char *name, struct inode *inode)
{
    struct inode *old = names_get(&directory->durable, name);
    char staged[32];
    if (old == inode)
        return;
    if (old && S_ISDIR(old->mode)) {
        inode_stage_name(old, staged);
        renameat(directory->descriptor, name, fs.stage, staged);
    } else if (old && (!inode || S_ISDIR(inode->mode))) {
        unlinkat(directory->descriptor, name, 0);
    }
    if (inode) {
        inode_hold(inode);
        inode_stage_name(inode, staged);
        if (S_ISDIR(inode->mode)) {
            renameat(fs.stage, staged, directory->descriptor, name);
        } else if (linkat(fs.stage, staged, fs.stage, "link", 0) == 0) {
            renameat(fs.stage, "link", directory->descriptor, name);
            unlinkat(fs.stage, "link", 0); /* left where both were one file already */
        }
    }
    names_set(&directory->durable, name, inode);
    if (old)
        inode_release(old);
}

static void make_durable(const struct name_operation *operation)
{
    for (int i = 0; i < operation->count; i++) {
        const struct name_change *change = &operation->changes[i];
        set_durable(change->directory, change->name, change->inode);
    }
}

static void forget(struct name_operation *operation)
{
    for (int i = 0; i < operation->count; i++) {
        struct name_change *change = &operation->changes[i];
        if (change->inode)
            inode_release(change->inode);
        inode_release(change->directory);
        free(change->name);
    }
}

static void set_seen(struct inode *directory, const char *name, struct inode *inode)
{
    struct inode *old = names_get(&directory->entries, name);
    if (inode) {
        inode_hold(inode);
        /* Not counted now: it is new, or renamed, and has lost its other name before. */
        if (S_ISREG(inode->mode) && !inode_takes_room(inode))
            fs.used_bytes += inode->cached.size;
        inode->links++;
        inode_touch(inode, false);
        if (S_ISDIR(inode->mode))
            inode->parent = directory;
    }
    names_set(&directory->entries, name, inode);
    inode_touch(directory, true);
    if (old) {
        bool took = inode_takes_room(old);
        old->links--;
        inode_touch(old, false);
        if (took && !inode_takes_room(old))
            fs.used_bytes -= old->cached.size;
        inode_release(old);
    }
}

void tree_change(const struct name_change *changes, int count)
{
    if (fs.log_count >= LOG_MAX)
        tree_sync_all();
    if (fs.log_count == fs.log_capacity) {
        fs.log_capacity = fs.log_capacity ? fs.log_capacity * 2 : 64;
        fs.log = realloc(fs.log, fs.log_capacity * sizeof *fs.log);
        if (!fs.log)
            abort();
    }
    struct name_operation *operation = &fs.log[fs.log_count++];
    operation->count = count;
    for (int i = 0; i < count; i++) {
        operation->changes[i] = changes[i];
        operation->changes[i].name = strdup(changes[i].name);
        inode_hold(changes[i].directory);
        if (changes[i].inode)
            inode_hold(changes[i].inode);
    }
    for (int i = 0; i < count; i++)
        set_seen(changes[i].directory, changes[i].name, changes[i].inode);
}

/* A set of (directory, name). */
static void key_of(const struct name_change *change, char key[NAME_BYTES_MAX + 32])
{
    snprintf(key, NAME_BYTES_MAX + 32, "%llu/%s", (unsigned long long)change->directory->number,
             change->name);
}

static bool any_in(const struct names *keys, const struct name_operation *operation)
{
    char key[NAME_BYTES_MAX + 32];
    for (int i = 0; i < operation->count; i++) {
        key_of(&operation->changes[i], key);
        if (names_get(keys, key))
            return true;
    }
    return false;
}

static void add_to(struct names *keys, const struct name_operation *operation)
{
    char key[NAME_BYTES_MAX + 32];
    for (int i = 0; i < operation->count; i++) {
        key_of(&operation->changes[i], key);
        names_set(keys, key, fs.root); /* any inode: it is a set */
    }
}

/* Makes the chosen operations durable, in order, and forgets them, or all of them. */
static void settle(const bool *chosen, bool all)
{
    struct name_operation *log = fs.log;
    size_t count = fs.log_count, left = 0;
    for (size_t i = 0; i < count; i++) {
        if (chosen[i])
            make_durable(&log[i]);
        if (chosen[i] || all)
            forget(&log[i]);
        else
            log[left++] = log[i];
    }
    fs.log_count = left;
}

/* What concerns the directory is durable now, with all that it rests on. */
void tree_sync(struct inode *directory)
{
    struct names needed = {0};
    bool *chosen = allocate(fs.log_count + 1);
    for (size_t i = fs.log_count; i-- > 0;) {
        const struct name_operation *operation = &fs.log[i];
        bool concerns = any_in(&needed, operation);
        for (int n = 0; n < operation->count; n++)
            concerns = concerns || operation->changes[n].directory == directory;
        if (concerns) {
            chosen[i] = true;
            add_to(&needed, operation);
        }
    }
    settle(chosen, false);
    names_clear(&needed);
    free(chosen);
}

void tree_sync_all(void)
{
    bool *chosen = allocate(fs.log_count + 1);
    memset(chosen, true, fs.log_count);
    settle(chosen, true);
    free(chosen);
}

void tree_forget_log(void)
{
    for (size_t i = 0; i < fs.log_count; i++)
        forget(&fs.log[i]);
    fs.log_count = 0;
}

/* Removes everything, durably. */
void tree_wipe(void)
{
    tree_forget_log();
    struct entry **all = names_sorted(&fs.root->durable);
    for (size_t i = fs.root->durable.count; i-- > 0;)
        set_durable(fs.root, all[i]->name, NULL);
    free(all);
}

static void tell_lost(const struct name_operation *operation, struct text *text, bool first)
{
    text_add(text, first ? "\"" : ", \"");
    for (int i = 0; i < operation->count; i++) {
        const struct name_change *change = &operation->changes[i];
        char path[PATH_BYTES_MAX];
        tree_path(change->directory, change->name, path);
        text_add(text, i ? " " : "");
        text_add(text, change->inode ? "+" : "-");
        text_escape(text, path);
    }
    text_add(text, "\"");
}

bool tree_is_evidence(const char *path)
{
    size_t length = strcspn(path, "/");
    for (int i = 0; i < EVIDENCE_MAX && fs.evidence[i]; i++)
        if (strlen(fs.evidence[i]) == length && memcmp(path, fs.evidence[i], length) == 0)
            return true;
    return false;
}

static bool concerns_evidence(const struct name_operation *operation)
{
    char path[PATH_BYTES_MAX];
    for (int i = 0; fs.evidence[0] && i < operation->count; i++) {
        tree_path(operation->changes[i].directory, operation->changes[i].name, path);
        if (tree_is_evidence(path))
            return true;
    }
    return false;
}

uint64_t tree_lose_power(enum loss loss, struct random *draws, struct text *text, uint64_t shown)
{
    bool *chosen = allocate(fs.log_count + 1);
    uint64_t lost = 0;
    struct names gone = {0};
    bool prefix = loss == LOSS_DROP || fs.names_rule == NAMES_JOURNAL;
    if (loss == LOSS_KEEP) {
        memset(chosen, true, fs.log_count);
    } else if (loss == LOSS_ALL) {
        /* none of them */
    } else if (prefix || random_unit(draws) < 0.5) {
        memset(chosen, true, random_below(draws, fs.log_count + 1));
    } else { /* any, but none that rests on a lost one: all that POSIX promises */
        for (size_t i = 0; i < fs.log_count; i++) {
            chosen[i] = random_unit(draws) < 0.5 && !any_in(&gone, &fs.log[i]);
            if (!chosen[i])
                add_to(&gone, &fs.log[i]);
        }
    }
    for (size_t i = 0; i < fs.log_count; i++)
        chosen[i] = chosen[i] || concerns_evidence(&fs.log[i]);
    for (size_t i = 0; i < fs.log_count; i++)
        if (!chosen[i] && lost++ < shown)
            tell_lost(&fs.log[i], text, lost == 1);
    settle(chosen, true);
    names_clear(&gone);
    free(chosen);
    return lost;
}

void tree_path(const struct inode *directory, const char *name, char path[PATH_BYTES_MAX])
{
    char rest[PATH_BYTES_MAX];
    snprintf(path, PATH_BYTES_MAX, "%s", name);
    while (directory != fs.root && directory->parent) {
        struct entry **all = names_sorted(&directory->parent->entries);
        const char *own = "?"; /* it was removed */
        for (size_t i = 0; i < directory->parent->entries.count; i++)
            if (all[i]->inode == directory)
                own = all[i]->name;
        if (snprintf(rest, sizeof rest, "%s/%s", own, path) >= (int)sizeof rest) {
            free(all);
            return;
        }
        memcpy(path, rest, sizeof rest);
        free(all);
        directory = directory->parent;
    }
}

bool tree_is_durable(const char *path)
{
    char copy[PATH_BYTES_MAX], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", path);
    struct inode *seen = fs.root, *durable = fs.root;
    while ((name = strsep(&rest, "/"))) {
        if (!seen || !durable || !S_ISDIR(seen->mode) || !S_ISDIR(durable->mode))
            return false;
        seen = names_get(&seen->entries, name);
        durable = names_get(&durable->durable, name);
    }
    return seen && seen == durable;
}

static void walk(struct inode *directory, char *path, size_t length, tree_visitor *visit,
                 void *context)
{
    struct entry **all = names_sorted(&directory->entries);
    size_t count = directory->entries.count;
    for (size_t i = 0; i < count; i++) {
        size_t more = strlen(all[i]->name);
        if (length + more + 2 > PATH_BYTES_MAX)
            continue;
        memcpy(path + length, all[i]->name, more + 1);
        visit(path, all[i]->inode, context);
        if (S_ISDIR(all[i]->inode->mode)) {
            strcpy(path + length + more, "/");
            walk(all[i]->inode, path, length + more + 1, visit, context);
        }
    }
    free(all);
}

/* Every name that is seen, parents before children, in order; the path is below the root. */
void tree_walk(tree_visitor *visit, void *context)
{
    char path[PATH_BYTES_MAX] = "";
    walk(fs.root, path, 0, visit, context);
}

/* -- Reads what the backing directory holds, once, before it is mounted: all of it is durable. */
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
