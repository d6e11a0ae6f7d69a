/* Bits of stored bytes flip. How many, and in which files, the harness decides: cluster/rot.py. */
#include "faultfs.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct candidates {
    struct inode **inodes;
    uint64_t *sizes;
    size_t count;
    uint64_t total;
    const char *pattern;
    char *const *paths; /* NULL: all */
    int path_count;
};

static bool is_listed(const struct candidates *candidates, const char *path)
{
    if (!candidates->paths)
        return true;
    for (int i = 0; i < candidates->path_count; i++)
        if (strcmp(candidates->paths[i], path) == 0)
            return true;
    return false;
}

static void consider(const char *path, struct inode *inode, void *context)
{
    struct candidates *candidates = context;
    struct stat found;
    if (!S_ISREG(inode->mode) || tree_is_evidence(path) ||
        fnmatch(candidates->pattern, path, 0) != 0 || !is_listed(candidates, path) ||
        !tree_is_durable(path) || inode_descriptor(inode) < 0 ||
        fstat(inode->descriptor, &found) != 0 || found.st_size == 0)
        return;
    size_t bytes = (candidates->count + 1) * sizeof(uint64_t);
    candidates->inodes = realloc(candidates->inodes, bytes);
    candidates->sizes = realloc(candidates->sizes, bytes);
    if (!candidates->inodes || !candidates->sizes)
        abort();
    candidates->inodes[candidates->count] = inode;
    candidates->sizes[candidates->count++] = (uint64_t)found.st_size;
    candidates->total += (uint64_t)found.st_size;
}

/* Flips a bit in each of `count` durable bytes; returns how many. Every byte is equally likely. */
uint64_t rot(uint64_t count, uint64_t seed, const char *pattern, char *const *paths,
             int path_count)
{
    struct random draws = random_for(seed, "rot", "");
    struct candidates candidates = {.pattern = pattern, .paths = paths, .path_count = path_count};
    uint64_t flipped = 0;
    tree_walk(consider, &candidates);
    for (uint64_t i = 0; i < count && candidates.count; i++) {
        uint64_t position = random_below(&draws, candidates.total);
        size_t file = 0;
        while (position >= candidates.sizes[file])
            position -= candidates.sizes[file++];
        int bit = (int)random_below(&draws, 8);
        flipped += file_flip(candidates.inodes[file], position, bit) == 0;
    }
    free(candidates.inodes);
    free(candidates.sizes);
    return flipped;
}
