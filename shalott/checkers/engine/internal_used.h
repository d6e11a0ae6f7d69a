/* How often each class of crashed operations has been used: a persistent, hash-consed map.
 *
 * A search holds millions of these that differ in one place. Each is a tree of fixed depth over the
 * class number, 8 ways a level, counts at the bottom; equal trees are one tree, so equality is
 * equality of numbers, and the comparison that dominance needs skips what two trees share. 0 is the
 * empty map. */
#ifndef SHL_INTERNAL_USED_H
#define SHL_INTERNAL_USED_H

#include "engine.h"

enum { USED_WAYS = 8 };

typedef struct {
    int32_t to[USED_WAYS]; /* subtrees, or counts at the bottom */
} used_node;

typedef struct {
    shl_budget *budget;
    used_node *nodes; /* node 0 is the empty tree of any depth */
    int32_t *table;   /* node numbers by content; 0: empty slot */
    int32_t count, room;
    int64_t slots;
    int32_t depth;
} used_maps;

/* For classes in [0, classes). 0: no memory. Nothing is held until the first map is made. */
int32_t used_init(used_maps *maps, int32_t classes, shl_budget *budget);
void used_free(used_maps *maps);
int32_t used_count(const used_maps *maps, int32_t map, int32_t class);
/* The map with one more use of class; -1: no memory. */
int32_t used_add(used_maps *maps, int32_t map, int32_t class);
/* 1 if no class was used more often in a than in b. */
int32_t used_within(const used_maps *maps, int32_t a, int32_t b);

#endif
