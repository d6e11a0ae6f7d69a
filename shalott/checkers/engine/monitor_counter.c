/* Counters that are only raised, by one amount: as few raises as possible, as late as possible.
 *
 * All raises are alike, so what matters is how many have taken effect, and when each of the others
 * must. Fewer are never worse than more: what is open can still take effect. So a raise takes
 * effect when it returns, or when a read returns that tells of more than have; then those do that
 * would have to return first (deadlines in order: Jackson, 1955), crashed ones last. A read is
 * right if its number was reached at some moment of it: not passed when it was called, and there
 * to be reached when it returned; on the way the counter passes every number. (Ours. Both kinds of
 * reads that are refused are refused in every order, because at every moment as few raises as
 * possible had taken effect, and with the latest deadlines.) */
#include "internal_monitors.h"

typedef struct {
    const shl_history *history;
    const int32_t *returner; /* per rank: the operation that returns there */
    int32_t *heap;           /* the ranks of the returns of raises that have not taken effect */
    int32_t *at_call;        /* by read: how many there were when it was called */
    int64_t waiting, crashed;
    int32_t raised, raiser; /* how many took effect; what showed that last */
} counter;

static void push(counter *c, int32_t rank)
{
    int64_t at = c->waiting++;
    for (; at > 0 && c->heap[(at - 1) / 2] > rank; at = (at - 1) / 2)
        c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = rank;
}

static void pop(counter *c)
{
    int32_t moved = c->heap[--c->waiting];
    int64_t at = 0;
    for (int64_t child = 1; child < c->waiting; child = 2 * at + 1) {
        child += child + 1 < c->waiting && c->heap[child + 1] < c->heap[child];
        if (c->heap[child] >= moved)
            break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = moved;
}

/* One more takes effect. 0: there is none. */
static int raise_one(counter *c)
{
    if (c->waiting)
        pop(c);
    else if (c->crashed)
        c->crashed--;
    else
        return 0;
    c->raised++;
    return 1;
}

static void refuse(shl_answer *answer, int32_t violation, int32_t read, int32_t by)
{
    *answer = (shl_answer){SHL_INVALID, SHL_DECIDED, violation, {read, by, SHL_NONE, SHL_NONE}};
}

/* 0: it can't have read that. */
static int read_returns(counter *c, int32_t op, int32_t *reached, shl_answer *answer)
{
    int32_t wanted = c->history->a[op];
    if (wanted < c->at_call[2 * op]) {
        *reached = c->at_call[2 * op];
        refuse(answer, SHL_COUNTER_AHEAD, op, c->at_call[2 * op + 1]);
        return 0;
    }
    for (; c->raised < wanted; c->raiser = op)
        if (!raise_one(c)) {
            *reached = c->raised;
            refuse(answer, SHL_COUNTER_BEHIND, op, SHL_NONE);
            return 0;
        }
    return 1;
}

static void called(counter *c, int32_t op)
{
    if (c->history->f[op] == SHL_COUNTER_READ) {
        c->at_call[2 * op] = c->raised;
        c->at_call[2 * op + 1] = c->raiser;
    } else if (c->history->ret[op] == SHL_NEVER) {
        c->crashed++;
    } else {
        push(c, c->history->ret[op]);
    }
}

static int returns(counter *c, int32_t op, int32_t *reached, shl_answer *answer)
{
    if (c->history->f[op] == SHL_COUNTER_READ)
        return read_returns(c, op, reached, answer);
    if (c->waiting && c->heap[0] == c->history->ret[op]) {
        raise_one(c);
        c->raiser = op;
    }
    return 1;
}

static void replay(counter *c, int32_t *reached, shl_budget *budget, shl_answer *answer)
{
    const shl_history *h = c->history;
    int64_t next = 0;
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        if (!(rank & 0xffff) && shl_monitor_stops(budget, answer))
            return;
        int is_call = next < h->n && h->call[next] == rank;
        int32_t op = is_call ? (int32_t)next : c->returner[rank];
        next += is_call;
        if (op == SHL_NONE || h->f[op] > SHL_COUNTER_READ)
            continue;
        if (is_call)
            called(c, op);
        else if (!returns(c, op, reached, answer))
            return;
    }
}

void shl_check_counter(const shl_history *history, int32_t *reached, shl_budget *budget,
                       shl_answer *answer)
{
    int64_t bytes = history->n * (int64_t)sizeof(int32_t);
    int64_t rank_bytes = history->ranks * (int64_t)sizeof(int32_t);
    int32_t *returner = shl_monitor_returners(history, budget);
    counter c = {.history = history,
                 .returner = returner,
                 .heap = shl_alloc(budget, bytes),
                 .at_call = shl_alloc(budget, 2 * bytes),
                 .raiser = SHL_NONE};
    shl_monitor_valid(answer);
    if (returner && c.heap && c.at_call)
        replay(&c, reached, budget, answer);
    else
        shl_monitor_stops(budget, answer);
    shl_free(budget, c.heap, bytes);
    shl_free(budget, c.at_call, 2 * bytes);
    shl_free(budget, returner, rank_bytes);
}
