/* Which kinds of cycles there are, and a shortest one of each, in every component.
 *
 * Edges of data are searched first, then those with the order of processes, then with that of
 * time. In each component the kinds follow from the worst: a G0 is a G1c too, and a cycle with one
 * rw is also one whose rws do not touch, and one with any; what is implied is not searched again
 * (Elle's rule). So what is searched has a simple form: once there is no G0, a cycle of ww and wr
 * has a wr; once there is no cycle of data alone, one with processes has an edge of a process.
 *
 * What crashed and was read happened, or it was aborted and read nevertheless (G1a). A cycle of ww
 * with such a transaction is therefore evidence against read committed, as a G1c is, and is called
 * that; with a certain one, it is evidence against read uncommitted.
 *
 * That a kind is absent is decided in linear time, by components: of the edges without rw (G0,
 * G1c), and of a graph with every vertex twice in which no rw follows another (G-single and
 * G-nonadjacent: snapshot isolation). Only what is there is searched for. */
#include "internal_txn.h"

#include <string.h>

#define BIT(kind) (1u << (kind))

enum {
    LENGTH_MAX = 1 << 30,
    WRITES = 1 << SHL_EDGE_WW | 1 << SHL_EDGE_PASS,
    FLOWS = WRITES | 1 << SHL_EDGE_WR, /* information: what one wrote, another one read */
    DATA = FLOWS | 1 << SHL_EDGE_RW,
};

static const uint32_t EXTRA[SHL_LEVELS] = {
    0, 1 << SHL_EDGE_PROCESS, 1 << SHL_EDGE_REALTIME,
};

/* What a kind implies of its own level, itself included, as bits. */
static const uint32_t IMPLIES[SHL_CYCLE_KINDS] = {
    BIT(SHL_CYCLE_G0) | BIT(SHL_CYCLE_G1C),
    BIT(SHL_CYCLE_G1C),
    BIT(SHL_CYCLE_SINGLE) | BIT(SHL_CYCLE_NONADJACENT) | BIT(SHL_CYCLE_G2),
    BIT(SHL_CYCLE_NONADJACENT) | BIT(SHL_CYCLE_G2),
    BIT(SHL_CYCLE_G2),
};

typedef struct {
    shl_txns *txns;
    int32_t level;
    uint8_t *known; /* of each transaction: the kinds whose cycle of data begins there */
} search;

/* One component at one level. best: the steps of the shortest cycle so far; way: of another. */
typedef struct {
    search *of;
    const shl_part *part;
    shl_walk walk;
    uint32_t allowed;
    shl_txn_step *best, *way;
    int32_t best_steps, way_steps;
    int64_t best_room, way_room;
    int64_t steps; /* edges looked at for this kind */
    int32_t is_used_up;
    int32_t only_certain; /* what crashed is left out */
} hunt;

static int is_txn(const hunt *h, int32_t vertex)
{
    return h->part->origin[vertex] < h->of->txns->count;
}

/* --- one cycle --------------------------------------------------------------------------------*/

static int push_step(hunt *h, int32_t vertex, int64_t edge)
{
    const shl_part *part = h->part;
    if (part->kind[edge] == SHL_EDGE_PASS) { /* it belongs to the step before it */
        if (h->way_steps && part->version[edge] != SHL_NONE)
            h->way[h->way_steps - 1].version = part->version[edge];
        return 1;
    }
    if (!shl_txn_room(h->of->txns->budget, (void **)&h->way, &h->way_room, h->way_steps,
                      sizeof(shl_txn_step)))
        return 0;
    h->way[h->way_steps++] =
        (shl_txn_step){part->origin[vertex], part->kind[edge], part->version[edge]};
    return 1;
}

static int way_is_simple(const hunt *h)
{
    for (int32_t i = 0; i < h->way_steps; i++)
        for (int32_t j = 0; j < i; j++)
            if (h->way[i].txn == h->way[j].txn)
                return 0;
    return 1;
}

/* The way is the best so far. */
static void keep_way(hunt *h)
{
    shl_txn_step *best = h->best;
    int64_t best_room = h->best_room;
    h->best = h->way;
    h->best_room = h->way_room;
    h->best_steps = h->way_steps;
    h->way = best;
    h->way_room = best_room;
}

/* Keeps the way of the walk, which `first` (an edge from `begin`; SHL_NONE: none) leads to, if it
 * meets no transaction twice. 0: no memory. */
static int keep_walk(hunt *h, int32_t begin, int64_t first)
{
    shl_walk *walk = &h->walk;
    int64_t length = 0, state = walk->goal;
    do { /* backwards, in what the next walk begins anew */
        walk->now[length++] = (int32_t)state;
        state = walk->from[state];
    } while (state != walk->start);
    h->way_steps = 0;
    if (first != SHL_NONE && !push_step(h, begin, first))
        return 0;
    for (int64_t i = length - 1; i >= 0; i--) {
        int64_t to = walk->now[i];
        if (!push_step(h, walk->from[to] / 2, walk->edge[to]))
            return 0;
    }
    if (way_is_simple(h))
        keep_way(h);
    return 1;
}

static int is_certain(const hunt *h, int32_t txn)
{
    return h->of->txns->txns[txn].type == SHL_TXN_OK;
}

static int32_t kind_of(const hunt *h)
{
    int32_t rw = 0, wr = 0, adjacent = 0, crashed = 0;
    for (int32_t i = 0; i < h->best_steps; i++) {
        int32_t next = h->best[(i + 1) % h->best_steps].kind;
        wr += h->best[i].kind == SHL_EDGE_WR;
        crashed += !is_certain(h, h->best[i].txn);
        rw += h->best[i].kind == SHL_EDGE_RW;
        adjacent += h->best[i].kind == SHL_EDGE_RW && next == SHL_EDGE_RW;
    }
    if (!rw)
        return wr || crashed ? SHL_CYCLE_G1C : SHL_CYCLE_G0;
    if (rw == 1)
        return SHL_CYCLE_SINGLE;
    return adjacent ? SHL_CYCLE_G2 : SHL_CYCLE_NONADJACENT;
}

static int32_t level_of(const hunt *h)
{
    int32_t level = SHL_LEVEL_DATA;
    for (int32_t i = 0; i < h->best_steps; i++) {
        if (h->best[i].kind == SHL_EDGE_REALTIME)
            level = SHL_LEVEL_REALTIME;
        if (h->best[i].kind == SHL_EDGE_PROCESS)
            level = SHL_LEVEL_PROCESS;
    }
    return level;
}

/* A cycle is told from its first rw on, where it has one: what was not seen is the strangest. */
static int32_t first_step(const hunt *h)
{
    int32_t first = 0;
    for (int32_t i = 0; i < h->best_steps; i++) {
        const shl_txn_step *step = &h->best[i], *begin = &h->best[first];
        int is_rw = step->kind == SHL_EDGE_RW, begins_rw = begin->kind == SHL_EDGE_RW;
        if (is_rw > begins_rw || (is_rw == begins_rw && step->txn < begin->txn))
            first = i;
    }
    return first;
}

/* The best cycle becomes an answer. Returns the kinds that it shows, or 0: no memory. */
static uint32_t record(hunt *h)
{
    shl_txns *txns = h->of->txns;
    int32_t kind = kind_of(h), level = level_of(h);
    uint32_t shows = IMPLIES[kind];
    if (level == SHL_LEVEL_DATA)
        h->of->known[h->best[0].txn] |= (uint8_t)BIT(kind);
    if (txns->cycle_count[level * SHL_CYCLE_KINDS + kind]++ >= txns->options.kept)
        return shows;
    if (!shl_txn_room(txns->budget, (void **)&txns->cycles, &txns->cycle_room, txns->cycle_total,
                      sizeof(shl_txn_cycle)))
        return 0;
    int32_t is_shortest = !h->is_used_up || h->best_steps == 2;
    txns->cycles[txns->cycle_total++] =
        (shl_txn_cycle){kind, level, h->best_steps, is_shortest, txns->step_total};
    int32_t first = first_step(h);
    for (int32_t i = 0; i < h->best_steps; i++) {
        if (!shl_txn_room(txns->budget, (void **)&txns->steps, &txns->step_room,
                          txns->step_total, sizeof(shl_txn_step)))
            return 0;
        txns->steps[txns->step_total++] = h->best[(first + i) % h->best_steps];
    }
    return shows;
}

/* --- cycles of two ----------------------------------------------------------------------------*/

/* Whether one edge leads from a transaction to another one: its kind, or SHL_NONE. */
static int32_t edge_between(const hunt *h, uint32_t allowed, int32_t from, int32_t to,
                            int32_t *version)
{
    const shl_part *part = h->part;
    for (int64_t e = part->starts[from]; e < part->starts[from + 1]; e++)
        if (part->to[e] == to && allowed >> part->kind[e] & 1) {
            *version = part->version[e];
            return part->kind[e];
        }
    const shl_txn *one = &h->of->txns->txns[part->origin[from]];
    const shl_txn *other = &h->of->txns->txns[part->origin[to]];
    *version = SHL_NONE;
    if (one->type != SHL_TXN_OK)
        return SHL_NONE;
    if ((allowed >> SHL_EDGE_PROCESS & 1) && one->process == other->process && one < other)
        return SHL_EDGE_PROCESS;
    if ((allowed >> SHL_EDGE_REALTIME & 1) && other->call != SHL_NONE && one->ret < other->call)
        return SHL_EDGE_REALTIME;
    return SHL_NONE;
}

/* Looks for an edge of a kind in `there` that one of a kind in `back` answers. 0: no memory. */
static int find_pair(hunt *h, uint32_t there, uint32_t back)
{
    const shl_part *part = h->part;
    for (int32_t v = 0; v < part->vertices; v++) {
        for (int64_t e = part->starts[v]; is_txn(h, v) && e < part->starts[v + 1]; e++) {
            int32_t to = part->to[e], version;
            if (!(there >> part->kind[e] & 1) || part->kind[e] == SHL_EDGE_PASS || !is_txn(h, to))
                continue;
            if (h->only_certain &&
                (!is_certain(h, part->origin[v]) || !is_certain(h, part->origin[to])))
                continue;
            int32_t kind = edge_between(h, back, to, v, &version);
            if (kind == SHL_NONE)
                continue;
            h->way_steps = 0;
            if (!push_step(h, v, e) || !push_step(h, v, e))
                return 0;
            h->way[1] = (shl_txn_step){part->origin[to], kind, version};
            keep_way(h);
            return 1;
        }
    }
    return 1;
}

/* --- the search for one kind ------------------------------------------------------------------*/

static int has_stopped(hunt *h)
{
    h->is_used_up |= shl_walk_is_used_up(&h->walk);
    return h->best_steps == 2 || h->is_used_up || h->of->txns->budget->stopped;
}

static int open_walk(hunt *h, const shl_part *part, uint32_t allowed, int32_t mode)
{
    h->part = part;
    if (!shl_walk_open(&h->walk, h->of->txns->budget, part))
        return 0;
    h->walk.allowed = allowed;
    h->walk.mode = mode;
    h->walk.steps = h->walk.checked_at = h->steps;
    h->walk.steps_max = h->of->txns->options.search_steps;
    return 1;
}

static void close_walk(hunt *h)
{
    h->steps = h->walk.steps;
    shl_walk_close(&h->walk);
}

/* What crashed, marked; NULL: no memory. */
static uint8_t *uncertain(const hunt *h, const shl_part *part)
{
    uint8_t *marks = shl_alloc(h->of->txns->budget, part->vertices);
    for (int64_t v = 0; marks && v < part->vertices; v++)
        marks[v] = part->origin[v] < h->of->txns->count && !is_certain(h, part->origin[v]);
    return marks;
}

/* Around from each transaction of a part that the edges that are allowed hold together. */
static int32_t hunt_around(void *user, const shl_part *part)
{
    hunt *h = user;
    uint8_t *blocked = h->only_certain ? uncertain(h, part) : NULL;
    int done = open_walk(h, part, h->allowed, SHL_WALK_FREE) &&
               (blocked || !h->only_certain) && find_pair(h, h->allowed, h->allowed);
    h->walk.blocked = blocked;
    for (int32_t v = 0; done && v < part->vertices && !has_stopped(h); v++) {
        if (!is_txn(h, v) || (blocked && blocked[v]))
            continue;
        int32_t longest = h->best_steps ? h->best_steps - 1 : LENGTH_MAX;
        if (shl_walk_to(&h->walk, v, 0, v, longest) > 0)
            done = keep_walk(h, v, SHL_NONE);
    }
    shl_free(h->of->txns->budget, blocked, part->vertices);
    close_walk(h);
    return done && !h->of->txns->budget->stopped;
}

/* From each edge of rw that is a candidate (NULL: each is) back to where it begins. */
static int hunt_from_rw(hunt *h, uint32_t allowed, int32_t mode, const uint8_t *is_candidate)
{
    const shl_part *part = h->part;
    int done = open_walk(h, part, allowed, mode);
    if (done && mode == SHL_WALK_FREE)
        done = find_pair(h, 1 << SHL_EDGE_RW, allowed);
    for (int32_t v = 0; done && v < part->vertices && !has_stopped(h); v++) {
        for (int64_t e = part->starts[v]; done && e < part->starts[v + 1] && !has_stopped(h); e++) {
            if (part->kind[e] != SHL_EDGE_RW || (is_candidate && !is_candidate[e]))
                continue;
            int32_t longest = h->best_steps ? h->best_steps - 2 : LENGTH_MAX;
            if (shl_walk_to(&h->walk, part->to[e], 1, v, longest) > 0)
                done = keep_walk(h, v, e);
        }
    }
    close_walk(h);
    return done && !h->of->txns->budget->stopped;
}

/* --- snapshot isolation -----------------------------------------------------------------------*/

/* Two vertices for each: an edge of rw leads from the first of one to the second of the other,
 * others from both to the first; passing edges stay where they are. */
static int double_part(shl_budget *budget, const shl_part *part, shl_part *twice)
{
    *twice = (shl_part){.vertices = 2 * part->vertices, .edge_room = 2 * part->edges};
    twice->starts = shl_alloc(budget, (twice->vertices + 1) * 8);
    twice->to = shl_alloc(budget, twice->edge_room * 4);
    if (!twice->starts || !twice->to)
        return 0;
    for (int64_t state = 0; state < twice->vertices; state++) {
        twice->starts[state] = twice->edges;
        for (int64_t e = part->starts[state / 2]; e < part->starts[state / 2 + 1]; e++) {
            int32_t second = part->kind[e] == SHL_EDGE_RW     ? 1
                             : part->kind[e] == SHL_EDGE_PASS ? (int32_t)(state & 1)
                                                              : 0;
            if (part->kind[e] != SHL_EDGE_RW || !(state & 1))
                twice->to[twice->edges++] = 2 * part->to[e] + second;
        }
    }
    twice->starts[twice->vertices] = twice->edges;
    return 1;
}

/* Marks edges of rw on some way around without two of them in a row. Returns how many there are,
 * or -1: no memory. */
static int64_t mark_candidates(hunt *h, const shl_part *part, uint8_t *is_candidate)
{
    shl_budget *budget = h->of->txns->budget;
    shl_part twice;
    int64_t marked = -1;
    int32_t *component = shl_alloc(budget, 2 * part->vertices * 4);
    if (double_part(budget, part, &twice) && component) {
        shl_rows rows = {twice.vertices, twice.starts, twice.to, NULL, 0};
        marked = shl_txn_components(budget, &rows, component) < 0 ? -1 : 0;
    }
    for (int64_t v = 0; marked >= 0 && v < part->vertices; v++)
        for (int64_t e = part->starts[v]; e < part->starts[v + 1]; e++) {
            is_candidate[e] = part->kind[e] == SHL_EDGE_RW &&
                              component[2 * v] == component[2 * (int64_t)part->to[e] + 1];
            marked += is_candidate[e];
        }
    shl_free(budget, component, 2 * part->vertices * 4);
    shl_free(budget, twice.starts, (twice.vertices + 1) * 8);
    shl_free(budget, twice.to, twice.edge_room * 4);
    return marked;
}

/* --- one component ----------------------------------------------------------------------------*/

static void begin(hunt *h)
{
    h->best_steps = h->is_used_up = h->only_certain = 0;
    h->steps = 0;
}

/* The best cycle, if there is one, becomes an answer; its kinds are added to *shown. */
static int end(hunt *h, int32_t kind, uint32_t *shown)
{
    shl_txns *txns = h->of->txns;
    txns->searches_stopped += h->is_used_up;
    if (h->best_steps) {
        uint32_t shows = record(h);
        *shown |= shows;
        return shows != 0;
    }
    if (h->is_used_up)
        txns->exists_count[h->of->level * SHL_CYCLE_KINDS + kind]++;
    return 1;
}

static int hunt_without_rw(hunt *h, const shl_part *part, uint32_t *shown)
{
    static const uint32_t ALLOWED[] = {WRITES, FLOWS};
    for (int32_t kind = SHL_CYCLE_G0; kind <= SHL_CYCLE_G1C; kind++) {
        if (*shown & BIT(kind))
            continue;
        begin(h);
        h->allowed = ALLOWED[kind] | EXTRA[h->of->level];
        h->only_certain = kind == SHL_CYCLE_G0;
        if (!shl_txn_each_part(h->of->txns->budget, part, h->allowed, hunt_around, h) ||
            !end(h, kind, shown))
            return 0;
    }
    return 1;
}

static int hunt_without_adjacent(hunt *h, const shl_part *part, uint32_t *shown)
{
    static const int32_t MODES[] = {SHL_WALK_FREE, SHL_WALK_ALTERNATING};
    static const uint32_t ALLOWED[] = {FLOWS, DATA};
    uint8_t *is_candidate = shl_alloc(h->of->txns->budget, part->edges);
    int64_t candidates = is_candidate ? mark_candidates(h, part, is_candidate) : -1;
    int done = candidates >= 0;
    for (int32_t at = 0; done && candidates && at < 2; at++) {
        int32_t kind = SHL_CYCLE_SINGLE + at;
        if (*shown & BIT(kind))
            continue;
        begin(h);
        h->part = part;
        done = hunt_from_rw(h, ALLOWED[at] | EXTRA[h->of->level], MODES[at], is_candidate) &&
               end(h, kind, shown);
    }
    shl_free(h->of->txns->budget, is_candidate, part->edges);
    return done;
}

static int32_t search_part(void *user, const shl_part *part)
{
    search *of = user;
    hunt h = {.of = of};
    uint32_t shown = 0;
    for (int64_t v = 0; v < part->vertices; v++)
        for (int32_t kind = 0; kind < SHL_CYCLE_KINDS; kind++)
            if (part->origin[v] < of->txns->count && of->known[part->origin[v]] >> kind & 1)
                shown |= IMPLIES[kind];
    int32_t done = hunt_without_rw(&h, part, &shown) &&
                   ((shown & BIT(SHL_CYCLE_SINGLE)) || hunt_without_adjacent(&h, part, &shown));
    if (done && !(shown & BIT(SHL_CYCLE_G2))) {
        begin(&h);
        h.part = part;
        done = hunt_from_rw(&h, DATA | EXTRA[of->level], SHL_WALK_FREE, NULL) &&
               end(&h, SHL_CYCLE_G2, &shown);
    }
    shl_free(of->txns->budget, h.best, h.best_room * (int64_t)sizeof *h.best);
    shl_free(of->txns->budget, h.way, h.way_room * (int64_t)sizeof *h.way);
    return done;
}

/* --- all of them ------------------------------------------------------------------------------*/

static int32_t search_levels(void *user, const shl_part *part)
{
    search *of = user;
    for (of->level = SHL_LEVEL_DATA; of->level < SHL_LEVELS; of->level++)
        if (!shl_txn_each_part(of->txns->budget, part, DATA | EXTRA[of->level], search_part, of))
            return 0;
    return 1;
}

int32_t shl_txn_search(shl_txns *txns)
{
    const shl_graph *graph = &txns->graph;
    shl_part whole = {
        .vertices = graph->vertices, .edges = graph->count, .starts = graph->starts,
        .to = graph->to, .version = graph->version, .kind = graph->kind,
    };
    search of = {txns, SHL_LEVEL_DATA, shl_alloc_zeroed(txns->budget, txns->count)};
    int32_t done = of.known && shl_txn_each_part(txns->budget, &whole,
                                                 DATA | EXTRA[SHL_LEVEL_PROCESS] |
                                                     EXTRA[SHL_LEVEL_REALTIME],
                                                 search_levels, &of);
    shl_free(txns->budget, of.known, txns->count);
    return done;
}
