/* Persistent, hash-consed counts; see internal_search.h. (Filliatre and Conchon, "Type-safe modular
 * hash-consing", 2006, for the technique.) */
#include "internal_search.h"

#include <string.h>

enum { FIRST_NODES = 64, FIRST_SLOTS = 256 };

int32_t used_init(used_maps *maps, int32_t classes, shl_budget *budget)
{
    memset(maps, 0, sizeof *maps);
    maps->budget = budget;
    maps->depth = 1;
    for (int64_t reach = USED_WAYS; reach < classes; reach *= USED_WAYS)
        maps->depth++;
    return 1;
}

void used_free(used_maps *maps)
{
    shl_free(maps->budget, maps->nodes, maps->room * (int64_t)sizeof *maps->nodes);
    shl_free(maps->budget, maps->table, maps->slots * (int64_t)sizeof *maps->table);
    maps->nodes = NULL;
    maps->table = NULL;
    maps->count = maps->room = 0;
    maps->slots = 0;
}

static uint64_t hash_of(const used_node *node)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int32_t way = 0; way < USED_WAYS; way++) {
        hash ^= (uint32_t)node->to[way];
        hash *= 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

static void insert(used_maps *maps, int32_t number)
{
    uint64_t mask = (uint64_t)maps->slots - 1, at = hash_of(&maps->nodes[number]) & mask;
    while (maps->table[at])
        at = (at + 1) & mask;
    maps->table[at] = number;
}

static int make_room(used_maps *maps)
{
    if (maps->count < maps->room && (maps->count + 1) * 2 <= maps->slots)
        return 1;
    if (maps->count >= maps->room) {
        int32_t room = maps->room ? maps->room * 2 : FIRST_NODES;
        used_node *nodes = shl_resize(maps->budget, maps->nodes,
                                      maps->room * (int64_t)sizeof *nodes,
                                      room * (int64_t)sizeof *nodes);
        if (!nodes)
            return 0;
        maps->nodes = nodes;
        maps->room = room;
        if (maps->count == 0)
            memset(&maps->nodes[maps->count++], 0, sizeof *nodes);
    }
    if ((maps->count + 1) * 2 > maps->slots) {
        int64_t slots = maps->slots ? maps->slots * 2 : FIRST_SLOTS;
        int32_t *table = shl_alloc_zeroed(maps->budget, slots * (int64_t)sizeof *table);
        if (!table)
            return 0;
        shl_free(maps->budget, maps->table, maps->slots * (int64_t)sizeof *maps->table);
        maps->table = table;
        maps->slots = slots;
        for (int32_t number = 1; number < maps->count; number++)
            insert(maps, number);
    }
    return 1;
}

/* The one node with this content. */
static int32_t shared(used_maps *maps, const used_node *wanted)
{
    if (!make_room(maps))
        return -1;
    uint64_t mask = (uint64_t)maps->slots - 1, at = hash_of(wanted) & mask;
    for (; maps->table[at]; at = (at + 1) & mask)
        if (!memcmp(&maps->nodes[maps->table[at]], wanted, sizeof *wanted))
            return maps->table[at];
    maps->nodes[maps->count] = *wanted;
    maps->table[at] = maps->count;
    return maps->count++;
}

static int32_t way_at(int32_t class, int32_t level)
{
    return (int32_t)((uint32_t)class >> (3 * level)) & (USED_WAYS - 1);
}

int32_t used_count(const used_maps *maps, int32_t map, int32_t class)
{
    for (int32_t level = maps->depth - 1; level >= 0 && map; level--)
        map = maps->nodes[map].to[way_at(class, level)];
    return map;
}

static int32_t add_at(used_maps *maps, int32_t map, int32_t class, int32_t level)
{
    used_node node;
    if (map)
        node = maps->nodes[map];
    else
        memset(&node, 0, sizeof node);
    int32_t way = way_at(class, level);
    if (level == 0)
        node.to[way]++;
    else
        node.to[way] = add_at(maps, node.to[way], class, level - 1);
    return node.to[way] < 0 ? -1 : shared(maps, &node);
}

int32_t used_add(used_maps *maps, int32_t map, int32_t class)
{
    return add_at(maps, map, class, maps->depth - 1);
}

static int32_t within_at(const used_maps *maps, int32_t a, int32_t b, int32_t level)
{
    if (a == b || a == 0)
        return 1;
    if (b == 0)
        return 0;
    for (int32_t way = 0; way < USED_WAYS; way++) {
        int32_t in_a = maps->nodes[a].to[way], in_b = maps->nodes[b].to[way];
        if (level == 0 ? in_a > in_b : !within_at(maps, in_a, in_b, level - 1))
            return 0;
    }
    return 1;
}

int32_t used_within(const used_maps *maps, int32_t a, int32_t b)
{
    return within_at(maps, a, b, maps->depth - 1);
}
