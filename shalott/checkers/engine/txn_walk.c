/* Shortest ways in a part of the graph, breadth first. Edges that only pass on take no step, so
 * that a way through what stands for several transactions is as long as the edge that it stands
 * for. A state is a vertex, twice: the second if the last edge was one of rw and another one may
 * not follow (SHL_WALK_ALTERNATING). */
#include "internal_txn.h"

int32_t shl_walk_open(shl_walk *walk, shl_budget *budget, const shl_part *part)
{
    int64_t bytes = 2 * part->vertices * 4;
    *walk = (shl_walk){.budget = budget, .part = part};
    walk->length = shl_alloc(budget, bytes);
    walk->edge = shl_alloc(budget, 2 * bytes);
    walk->from = shl_alloc(budget, bytes);
    walk->reached = shl_alloc(budget, bytes);
    walk->now = shl_alloc(budget, bytes);
    walk->next = shl_alloc(budget, bytes);
    if (!walk->length || !walk->edge || !walk->from || !walk->reached || !walk->now || !walk->next)
        return 0;
    for (int64_t s = 0; s < 2 * part->vertices; s++)
        walk->length[s] = SHL_NONE;
    return 1;
}

void shl_walk_close(shl_walk *walk)
{
    int64_t bytes = 2 * walk->part->vertices * 4;
    shl_free(walk->budget, walk->length, bytes);
    shl_free(walk->budget, walk->edge, 2 * bytes);
    shl_free(walk->budget, walk->from, bytes);
    shl_free(walk->budget, walk->reached, bytes);
    shl_free(walk->budget, walk->now, bytes);
    shl_free(walk->budget, walk->next, bytes);
}

int shl_walk_is_used_up(const shl_walk *walk)
{
    return walk->steps_max && walk->steps > walk->steps_max;
}

/* The state behind an edge, or SHL_NONE: it may not be taken from there. */
static int64_t behind(const shl_walk *walk, int64_t state, int64_t e)
{
    uint8_t kind = walk->part->kind[e];
    if (!(walk->allowed >> kind & 1) || (walk->blocked && walk->blocked[walk->part->to[e]]))
        return SHL_NONE;
    int64_t vertex = 2 * (int64_t)walk->part->to[e];
    if (walk->mode == SHL_WALK_FREE)
        return vertex;
    if (kind == SHL_EDGE_PASS)
        return vertex + (state & 1);
    if (kind != SHL_EDGE_RW)
        return vertex;
    return state & 1 ? SHL_NONE : vertex + 1;
}

static void forget(shl_walk *walk)
{
    for (int64_t i = 0; i < walk->count; i++)
        walk->length[walk->reached[i]] = SHL_NONE;
    walk->count = 0;
}

static void reach(shl_walk *walk, int64_t state, int32_t length, int64_t from, int64_t edge)
{
    if (walk->length[state] == SHL_NONE)
        walk->reached[walk->count++] = (int32_t)state;
    walk->length[state] = length;
    walk->from[state] = (int32_t)from;
    walk->edge[state] = edge;
}

/* Takes all edges of a state that is so far away: what lies as far joins `now`, the rest `next`. */
static void expand(shl_walk *walk, int64_t state, int32_t length, int32_t length_max)
{
    const shl_part *part = walk->part;
    for (int64_t e = part->starts[state / 2]; e < part->starts[state / 2 + 1]; e++) {
        int64_t to = behind(walk, state, e);
        if (to == SHL_NONE)
            continue;
        int32_t longer = length + (part->kind[e] != SHL_EDGE_PASS);
        if (longer > length_max || (walk->length[to] != SHL_NONE && walk->length[to] <= longer))
            continue;
        reach(walk, to, longer, state, e);
        if (longer == length)
            walk->now[walk->now_count++] = (int32_t)to;
        else
            walk->next[walk->next_count++] = (int32_t)to;
    }
    walk->steps += part->starts[state / 2 + 1] - part->starts[state / 2];
}

/* Whether the goal is among those that are so far away; if not, `next` holds those behind. */
static int pass_shell(shl_walk *walk, int32_t length, int64_t goal, int32_t length_max)
{
    while (walk->now_count) {
        int64_t state = walk->now[--walk->now_count];
        if (walk->length[state] != length)
            continue; /* a shorter way was found since */
        if (state == goal)
            return 1;
        expand(walk, state, length, length_max);
    }
    return 0;
}

int32_t shl_walk_to(shl_walk *walk, int32_t start, int after_rw, int32_t goal, int32_t length_max)
{
    forget(walk);
    walk->now_count = walk->next_count = 0;
    walk->start = 2 * (int64_t)start + (after_rw && walk->mode == SHL_WALK_ALTERNATING);
    walk->goal = 2 * (int64_t)goal;
    /* where it begins is never reached again, unless that is the goal */
    reach(walk, walk->start, walk->start == walk->goal ? SHL_NEVER : 0, SHL_NONE, SHL_NONE);
    expand(walk, walk->start, 0, length_max);
    for (int32_t length = 0; length <= length_max; length++) {
        if (pass_shell(walk, length, walk->goal, length_max))
            return length;
        if (!walk->next_count || shl_walk_is_used_up(walk))
            return SHL_NONE;
        if (walk->steps > walk->checked_at + (1 << 20)) {
            walk->checked_at = walk->steps;
            if (shl_check_budget(walk->budget))
                return SHL_NONE;
        }
        int32_t *emptied = walk->now;
        walk->now = walk->next;
        walk->next = emptied;
        walk->now_count = walk->next_count;
        walk->next_count = 0;
    }
    return SHL_NONE;
}
