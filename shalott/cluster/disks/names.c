/* Names in a hash table with chains. */
#include "names.h"

#include "faultfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fputs("faultfs: out of memory\n", stderr);
        abort();
    }
    return memory;
}

enum { FIRST_SLOTS = 8 };

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 0x811c9dc5u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x01000193u;
    return hash;
}

static struct entry **place_of(const struct names *names, const char *name, uint32_t hash)
{
    struct entry **place = &names->slots[hash & (names->slot_count - 1)];
    while (*place && ((*place)->hash != hash || strcmp((*place)->name, name) != 0))
        place = &(*place)->next;
    return place;
}

struct inode *names_get(const struct names *names, const char *name)
{
    if (!names->count)
        return NULL;
    struct entry *found = *place_of(names, name, hash_of(name));
    return found ? found->inode : NULL;
}

static void grow(struct names *names)
{
    struct names grown = {NULL, names->slot_count ? names->slot_count * 2 : FIRST_SLOTS,
                          names->count};
    grown.slots = allocate(grown.slot_count * sizeof *grown.slots);
    for (size_t slot = 0; slot < names->slot_count; slot++)
        for (struct entry *entry = names->slots[slot], *next; entry; entry = next) {
            struct entry **place = &grown.slots[entry->hash & (grown.slot_count - 1)];
            next = entry->next;
            entry->next = *place;
            *place = entry;
        }
    free(names->slots);
    *names = grown;
}

void names_set(struct names *names, const char *name, struct inode *inode)
{
    uint32_t hash = hash_of(name);
    if (!inode) {
        struct entry **place = names->count ? place_of(names, name, hash) : NULL;
        if (place && *place) {
            struct entry *gone = *place;
            *place = gone->next;
            names->count--;
            free(gone);
        }
        return;
    }
    if (names->count >= names->slot_count)
        grow(names);
    struct entry **place = place_of(names, name, hash);
    if (!*place) {
        struct entry *entry = allocate(sizeof *entry + strlen(name) + 1);
        entry->hash = hash;
        strcpy(entry->name, name);
        *place = entry;
        names->count++;
    }
    (*place)->inode = inode;
}

void names_clear(struct names *names)
{
    for (size_t slot = 0; slot < names->slot_count; slot++)
        for (struct entry *entry = names->slots[slot], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    free(names->slots);
    *names = (struct names){0};
}

static int by_name(const void *left, const void *right)
{
    return strcmp((*(struct entry *const *)left)->name, (*(struct entry *const *)right)->name);
}

struct entry **names_sorted(const struct names *names)
{
    struct entry **all = allocate((names->count + 1) * sizeof *all);
    size_t count = 0;
    for (size_t slot = 0; slot < names->slot_count; slot++)
        for (struct entry *entry = names->slots[slot]; entry; entry = entry->next)
            all[count++] = entry;
    qsort(all, count, sizeof *all, by_name);
    return all;
}
