/* A directory's names, each with the inode that it leads to. */
#ifndef FAULTFS_NAMES_H
#define FAULTFS_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct inode;

struct entry {
    struct entry *next;
    struct inode *inode;
    uint32_t hash;
    char name[];
};

struct names {
    struct entry **slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
};

struct inode *names_get(const struct names *names, const char *name);
/* Sets, or removes where `inode` is NULL. Does not count references. */
void names_set(struct names *names, const char *name, struct inode *inode);
void names_clear(struct names *names);
/* All of them, in the order of their names. Free it. */
struct entry **names_sorted(const struct names *names);

#endif
