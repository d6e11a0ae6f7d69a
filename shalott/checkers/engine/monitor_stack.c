/* Stacks with distinct values, from the outside in.
 *
 * (Values whose removal preserves linearizability: Lee & Mathur, "Efficient decrease-and-conquer
 * linearizability monitoring", OOPSLA 2025; a stack's history cut where it may be empty: Abdulla,
 * Grahn, Jonsson, Krishna & Mishra, "Efficient linearizability monitoring", PLDI 2025. The trees
 * and crashed operations are ours.) A value is there for sure between its push's return and its
 * pop's call. One that is never there for sure is pushed and popped at one moment, and hinders
 * nothing. Of the others:
 * - where none is there for sure, the stack may be empty. What lies before and what lies behind
 *   are two histories: each value fits into one of them, and one order after the other is an
 *   order.
 * - where there is no such moment, one value lies below all the others: it can be pushed before
 *   any other operation returned, and popped after all of them were called. Any that can be will
 *   do, because what it is around does not notice it. If there is none, there is no order. Without
 *   the lowest there are new moments at which the rest may be empty, and so on: n log n.
 *
 * A pop that crashed may have taken any value that no other pop returned, later than its call, or
 * none. Taken for as many as are wanted, the earliest of them refutes for certain; given each one
 * value, a guess, they may show an order. Else it is for another to decide. */
#include "internal_monitors.h"

#include <string.h>

enum { BEYOND = SHL_NEVER - 1, NOBODY = -1 };

/* A value that is there for sure, in the order of the pushes' returns. */
typedef struct {
    int32_t push, push_call, push_ret; /* push: a row */
    int32_t pop_call, pop_ret;
} plate;

/* Over those that are left. */
typedef struct {
    int32_t first_push, last_pop; /* the earliest call of a push; the latest return of a pop */
    int32_t last_call;            /* the latest call of a pop */
} heap_facts;

/* Over places between two plates: how many are there for sure at the least, without what was added
 * above. FAR: it is known to be empty. */
typedef struct {
    int32_t least, added;
} cover;

enum { FAR = 1 << 30 };

typedef struct {
    int32_t from, to; /* plates */
} piece;

typedef struct {
    queue_check *check;
    int32_t *leaves; /* [n] by push that no pop is known of: a crashed one's call, or BEYOND */
    int32_t *dequeue_of;
    plate *plates;
    int32_t count, room; /* room: a power of two */
    heap_facts *facts;   /* [2 room] */
    cover *covers;       /* [2 room] */
    piece *pieces;
    int32_t piece_count;
    piece wrong;
} nesting;

static int64_t ints(int64_t count)
{
    return count * (int64_t)sizeof(int32_t);
}

/* --- who is left ------------------------------------------------------------------------------*/

static heap_facts both(heap_facts a, heap_facts b)
{
    a.first_push = a.first_push < b.first_push ? a.first_push : b.first_push;
    a.last_pop = a.last_pop > b.last_pop ? a.last_pop : b.last_pop;
    a.last_call = a.last_call > b.last_call ? a.last_call : b.last_call;
    return a;
}

static const heap_facts nothing_left = {SHL_NEVER, NOBODY, NOBODY};

static void take_away(nesting *s, int32_t at)
{
    int32_t node = at + s->room;
    s->facts[node] = nothing_left;
    for (node /= 2; node; node /= 2)
        s->facts[node] = both(s->facts[2 * node], s->facts[2 * node + 1]);
}

static heap_facts facts_of(const nesting *s, piece p)
{
    heap_facts found = nothing_left;
    for (int32_t a = p.from + s->room, b = p.to + s->room; a < b; a /= 2, b /= 2) {
        if (a & 1)
            found = both(found, s->facts[a++]);
        if (b & 1)
            found = both(found, s->facts[--b]);
    }
    return found;
}

/* One of a piece that was pushed early and popped late enough, within node, which spans `span`. */
static int32_t lowest(const nesting *s, piece p, int32_t node, piece span, int32_t early,
                      int32_t late)
{
    if (span.to <= p.from || p.to <= span.from || s->facts[node].first_push >= early ||
        s->facts[node].last_pop <= late)
        return NOBODY;
    if (node >= s->room)
        return node - s->room;
    int32_t middle = span.from + (span.to - span.from) / 2;
    int32_t found = lowest(s, p, 2 * node, (piece){span.from, middle}, early, late);
    if (found != NOBODY)
        return found;
    return lowest(s, p, 2 * node + 1, (piece){middle, span.to}, early, late);
}

/* The first that is left of a piece that has some. */
static int32_t first_left(const nesting *s, piece p)
{
    int32_t node = p.from + s->room;
    while (s->facts[node].first_push == SHL_NEVER) {
        while (node & 1)
            node /= 2;
        node++; /* to the right; the piece has some, so there is one */
    }
    while (node < s->room)
        node = 2 * node + (s->facts[2 * node].first_push == SHL_NEVER);
    return node - s->room;
}

/* --- where the stack may be empty --------------------------------------------------------------*/

/* Adds to places [p.from, p.to), within node. */
static void add(nesting *s, piece p, int32_t amount, int32_t node, piece span)
{
    if (span.to <= p.from || p.to <= span.from)
        return;
    if (p.from <= span.from && span.to <= p.to) {
        s->covers[node].least += amount;
        s->covers[node].added += amount;
        return;
    }
    int32_t middle = span.from + (span.to - span.from) / 2;
    add(s, p, amount, 2 * node, (piece){span.from, middle});
    add(s, p, amount, 2 * node + 1, (piece){middle, span.to});
    int32_t a = s->covers[2 * node].least, b = s->covers[2 * node + 1].least;
    s->covers[node].least = (a < b ? a : b) + s->covers[node].added;
}

/* The first empty place of [p.from, p.to) that was not found before; NOBODY. */
static int32_t empty_place(const nesting *s, piece p, int32_t node, piece span, int32_t above)
{
    if (span.to <= p.from || p.to <= span.from || s->covers[node].least + above > 0)
        return NOBODY;
    if (node >= s->room)
        return span.from;
    int32_t middle = span.from + (span.to - span.from) / 2;
    above += s->covers[node].added;
    int32_t found = empty_place(s, p, 2 * node, (piece){span.from, middle}, above);
    if (found != NOBODY)
        return found;
    return empty_place(s, p, 2 * node + 1, (piece){middle, span.to}, above);
}

/* The places that a plate covers: those before plates that were pushed while it was there. */
static piece covered(const nesting *s, int32_t at)
{
    int32_t low = at + 1, high = s->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (s->plates[middle].push_ret < s->plates[at].pop_call)
            low = middle + 1;
        else
            high = middle;
    }
    return (piece){at + 1, low};
}

/* Cuts a piece at the empty places within `where` and puts its parts aside. */
static void cut(nesting *s, piece p, piece where)
{
    piece all = {0, s->room};
    where.from = where.from > p.from ? where.from : p.from + 1;
    where.to = where.to < p.to ? where.to : p.to;
    for (int32_t at; where.from < where.to; where.from = at + 1) {
        at = empty_place(s, where, 1, all, 0);
        if (at == NOBODY)
            break;
        add(s, (piece){at, at + 1}, FAR, 1, all);
        s->pieces[s->piece_count++] = (piece){p.from, at};
        p.from = at;
    }
    s->pieces[s->piece_count++] = p;
}

/* --- from the outside in -----------------------------------------------------------------------*/

static void plant(nesting *s)
{
    piece all = {0, s->room};
    for (int32_t at = 0; at < s->room; at++)
        s->facts[s->room + at] =
            at < s->count ? (heap_facts){s->plates[at].push_call, s->plates[at].pop_ret,
                                         s->plates[at].pop_call}
                          : nothing_left;
    for (int32_t node = s->room - 1; node; node--)
        s->facts[node] = both(s->facts[2 * node], s->facts[2 * node + 1]);
    memset(s->covers, 0, 2 * (size_t)s->room * sizeof *s->covers);
    for (int32_t at = 0; at < s->count; at++) {
        piece where = covered(s, at);
        if (where.from < where.to)
            add(s, where, 1, 1, all);
    }
    s->piece_count = 0;
    if (s->count)
        cut(s, (piece){0, s->count}, (piece){0, s->count});
}

/* 1: there is an order; 0: there is none, `wrong` is the piece without a lowest plate; -1: the
 * budget is spent. */
static int nests(nesting *s)
{
    plant(s);
    for (int64_t step = 1; s->piece_count; step++) {
        piece p = s->pieces[--s->piece_count], all = {0, s->room};
        heap_facts facts = facts_of(s, p);
        if (!(step & 0xfff) && shl_monitor_stops(s->check->budget, s->check->answer))
            return -1;
        if (facts.last_call == NOBODY)
            continue;
        int32_t early = s->plates[first_left(s, p)].push_ret;
        int32_t found = lowest(s, p, 1, all, early, facts.last_call);
        s->wrong = p;
        if (found == NOBODY)
            return 0;
        take_away(s, found);
        piece where = covered(s, found);
        if (where.from < where.to)
            add(s, where, -1, 1, all);
        cut(s, p, where);
    }
    return 1;
}

/* Sets the plates, in the order of the pushes' returns: by counting, so that nothing needs to be
 * compared. 0: no memory. */
static int set_plates(nesting *s)
{
    queue_check *check = s->check;
    const shl_queue_history *h = check->history;
    const int32_t *rows = queue_rows(check, ENQUEUES);
    int32_t *at_rank = shl_alloc(check->budget, ints(h->ranks));
    if (!at_rank)
        return 0;
    memset(at_rank, 0xff, (size_t)ints(h->ranks));
    for (int64_t i = 0; i < queue_count(check, ENQUEUES); i++) {
        int32_t row = rows[i], pop = s->dequeue_of[row], ret = queue_ret(check, row);
        if (pop != SHL_NONE ? ret < h->call[pop] : ret < s->leaves[row])
            at_rank[ret] = row;
    }
    s->count = 0;
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        int32_t row = at_rank[rank], pop = row < 0 ? SHL_NONE : s->dequeue_of[row];
        if (row >= 0)
            s->plates[s->count++] = (plate){row, h->call[row], rank,
                                            pop == SHL_NONE ? s->leaves[row] : h->call[pop],
                                            pop == SHL_NONE ? SHL_NEVER : h->ret[pop]};
    }
    for (s->room = 1; s->room < s->count;)
        s->room *= 2;
    shl_free(check->budget, at_rank, ints(h->ranks));
    return 1;
}

/* By when a value that no pop is known of must have been popped: of those that lay below it for
 * sure, the first to go. `plates` are those that were popped. */
static int32_t due_by(const nesting *s, int32_t push)
{
    const shl_queue_history *h = s->check->history;
    int32_t by = BEYOND;
    for (int32_t at = 0; at < s->count && s->plates[at].push_ret < h->call[push]; at++)
        if (s->plates[at].pop_call > h->ret[push] && s->plates[at].pop_ret < by)
            by = s->plates[at].pop_ret;
    return by;
}

/* Crashed pops go to what is due first. */
static int64_t serve_dues(nesting *s)
{
    queue_check *check = s->check;
    const int32_t *rows = queue_rows(check, ENQUEUES);
    int64_t count = 0, looks = 0, bytes = check->residual * (int64_t)sizeof(due);
    due *dues = shl_alloc(check->budget, bytes);
    if (!dues)
        return -1;
    for (int64_t i = 0; i < queue_count(check, ENQUEUES) && looks < LOOKS; i++) {
        if (!queue_is_residual(check, rows[i]))
            continue;
        int32_t by = due_by(s, rows[i]);
        looks += s->count;
        if (by != BEYOND)
            dues[count++] = (due){by, rows[i]};
    }
    int64_t served = queue_serve(check, dues, count, s->leaves);
    shl_free(check->budget, dues, bytes);
    return served;
}

/* Then each of the others takes the last value pushed before its call that is left. */
static void guess(nesting *s, int32_t *left, int64_t served)
{
    queue_check *check = s->check;
    const shl_queue_history *h = check->history;
    const int32_t *rows = queue_rows(check, ENQUEUES), *crashed = queue_rows(check, CRASHED);
    int64_t count = queue_count(check, ENQUEUES), next = 0;
    int32_t held = 0;
    for (int64_t i = served; i < queue_count(check, CRASHED); i++) {
        int32_t call = h->call[crashed[i]];
        for (; next < count && h->call[rows[next]] < call; next++)
            if (queue_is_residual(check, rows[next]) && s->leaves[rows[next]] == BEYOND)
                left[held++] = rows[next];
        for (int32_t at = held; at-- > 0;)
            if (h->ret[left[at]] < call) {
                s->leaves[left[at]] = call;
                memmove(left + at, left + at + 1, (size_t)ints(held-- - at - 1));
                break;
            }
    }
}

/* Does every pop that found nothing have a moment at which no plate is there? Where pops crashed,
 * queue_check_empties only says that each of them may have one. -1: no memory. */
static int agrees_with_empties(const nesting *s)
{
    const queue_check *check = s->check;
    const shl_queue_history *h = check->history;
    const int32_t *rows = queue_rows(check, EMPTIES);
    int64_t bytes = ints(h->ranks + 1);
    int32_t *there = shl_alloc_zeroed(check->budget, bytes), present = 0, last = NOBODY, agrees = 1;
    if (!there)
        return -1;
    for (int32_t at = 0; at < s->count; at++) {
        there[s->plates[at].push_ret]++;
        there[s->plates[at].pop_call < h->ranks ? s->plates[at].pop_call : h->ranks]--;
    }
    /* A moment is named by the rank before it; `there` becomes the last at which it was empty. */
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        present += there[rank];
        last = present ? last : rank;
        there[rank] = last;
    }
    for (int64_t i = 0; i < queue_count(check, EMPTIES) && agrees; i++)
        agrees = there[h->ret[rows[i]] - 1] >= h->call[rows[i]];
    shl_free(check->budget, there, bytes);
    return agrees;
}

static void refute(nesting *s, int32_t *core)
{
    int32_t count = 0;
    for (int32_t at = s->wrong.from; at < s->wrong.to; at++)
        if (s->facts[s->room + at].last_call != NOBODY)
            core[count++] = s->plates[at].push;
    queue_violation(s->check, SHL_QUEUE_NESTED, SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE);
    s->check->answer->ops[0] = count;
}

static void all_leave(nesting *s, int32_t call)
{
    for (int64_t i = 0; i < s->check->n; i++)
        s->leaves[i] = call;
}

static void decide(nesting *s, int32_t *core)
{
    queue_check *check = s->check;
    int64_t crashed = queue_count(check, CRASHED);
    all_leave(s, crashed ? check->history->call[*queue_rows(check, CRASHED)] : BEYOND);
    int found = set_plates(s) ? nests(s) : -1;
    if (found == 1 && crashed) {
        all_leave(s, NOBODY); /* none of those is a plate */
        int64_t served = set_plates(s) ? (all_leave(s, BEYOND), serve_dues(s)) : -1;
        if (served >= 0)
            guess(s, core, served);
        found = served >= 0 && set_plates(s) ? nests(s) : -1;
        found = found == 1 ? agrees_with_empties(s) : found;
        if (found == 0) {
            int32_t row = *queue_rows(check, CRASHED);
            *check->answer = (shl_answer){SHL_UNKNOWN, SHL_NOT_THIS_MONITOR, SHL_QUEUE_CRASHED,
                                          {row, SHL_NONE, SHL_NONE, SHL_NONE}};
            return;
        }
    }
    if (found == 0)
        refute(s, core);
    else if (found < 0)
        shl_monitor_stops(check->budget, check->answer);
}

static void pair_pops(nesting *s)
{
    const int32_t *pops = queue_rows(s->check, DEQUEUES);
    memset(s->dequeue_of, 0xff, (size_t)ints(s->check->n));
    for (int64_t i = 0; i < queue_count(s->check, DEQUEUES); i++)
        s->dequeue_of[queue_span(s->check, pops[i]).enqueue] = pops[i];
}

void shl_check_stack(const shl_queue_history *history, int32_t *core, shl_budget *budget,
                     shl_answer *answer)
{
    queue_check check = {
        .history = history, .until = SHL_NEVER, .budget = budget, .answer = answer};
    nesting s = {.check = &check};
    int64_t bytes = ints(history->n), room = 1;
    if (queue_open(&check, 0) && queue_check_empties(&check)) {
        while (room < queue_count(&check, ENQUEUES))
            room *= 2;
        s.leaves = shl_alloc(budget, bytes);
        s.dequeue_of = shl_alloc(budget, bytes);
        s.plates = shl_alloc(budget, room * (int64_t)sizeof *s.plates);
        s.facts = shl_alloc(budget, 2 * room * (int64_t)sizeof *s.facts);
        s.covers = shl_alloc(budget, 2 * room * (int64_t)sizeof *s.covers);
        s.pieces = shl_alloc(budget, 2 * room * (int64_t)sizeof *s.pieces);
        if (s.leaves && s.dequeue_of && s.plates && s.facts && s.covers && s.pieces) {
            pair_pops(&s);
            decide(&s, core);
        } else {
            shl_monitor_stops(budget, answer);
        }
    }
    shl_free(budget, s.leaves, bytes);
    shl_free(budget, s.dequeue_of, bytes);
    shl_free(budget, s.plates, room * (int64_t)sizeof *s.plates);
    shl_free(budget, s.facts, 2 * room * (int64_t)sizeof *s.facts);
    shl_free(budget, s.covers, 2 * room * (int64_t)sizeof *s.covers);
    shl_free(budget, s.pieces, 2 * room * (int64_t)sizeof *s.pieces);
    queue_close(&check);
}
