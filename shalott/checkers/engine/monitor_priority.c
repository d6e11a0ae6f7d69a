/* Priority queues with distinct elements, greedily by priority.
 *
 * (The values whose removal preserves linearizability, one after the other: Lee & Mathur,
 * "Efficient decrease-and-conquer linearizability monitoring", OOPSLA 2025. The greedy intervals
 * and crashed operations are ours.) A dequeue may take effect while nothing is there that comes
 * before its element. What comes first of all is hindered by nothing: it is there for the shortest
 * time, which every other choice covers, if it is enqueued as late and dequeued as early as can be;
 * and not at all if both fit into one moment. The others follow in the order of their turns, each
 * as early as what came before leaves a moment. A dequeue that found nothing comes last.
 *
 * Moments are the gaps before each rank, in each of which any number of operations can take effect:
 * dequeues in the order of their turns, then enqueues of what stays longer.
 *
 * A dequeue that crashed may have taken any element that no other dequeue returned, later than its
 * call, or none. Taken for as many as are wanted, the earliest of them refutes for certain; given
 * each one element, a guess, they may show that the history is linearizable. Else it is for another
 * to decide. */
#include "internal_monitors.h"

#include <string.h>

typedef struct {
    queue_check *check;
    const int32_t *turn;
    int32_t turns, gaps;
    int32_t *by_turn;    /* enqueues that count, those whose turn it is first first */
    int64_t count;
    int32_t *dequeue_of; /* [n] by enqueue; SHL_NONE */
    int32_t *leaves;     /* [n] by enqueue that no dequeue is known of: a crashed one's call */
    int32_t *gone;       /* [n] by enqueue: the gap in which it leaves; 0: at once, or not yet */
    int32_t *vacant;     /* [gaps + 1] a gap at or behind it in which none of those done is there */
} by_priority;

static int64_t ints(int64_t count)
{
    return count * (int64_t)sizeof(int32_t);
}

static int32_t vacant_from(by_priority *p, int32_t gap)
{
    while (p->vacant[gap] != gap) {
        p->vacant[gap] = p->vacant[p->vacant[gap]];
        gap = p->vacant[gap];
    }
    return gap;
}

static void occupy(by_priority *p, int32_t from, int32_t until)
{
    for (int32_t gap = vacant_from(p, from); gap < until; gap = vacant_from(p, gap))
        p->vacant[gap] = gap + 1;
}

/* Of an enqueue: the last gap in which it may take effect, and in which its dequeue may. */
typedef struct {
    int32_t latest, from, until;
} span_of_gaps;

static span_of_gaps gaps_of(const by_priority *p, int32_t enqueue)
{
    const shl_queue_history *h = p->check->history;
    int32_t dequeue = p->dequeue_of[enqueue], called = h->call[enqueue];
    span_of_gaps gaps = {queue_ret(p->check, enqueue), p->leaves[enqueue], p->gaps};
    if (dequeue != SHL_NONE) {
        gaps.from = h->call[dequeue];
        gaps.until = h->ret[dequeue];
        gaps.latest = gaps.latest < gaps.until ? gaps.latest : gaps.until;
    }
    gaps.from = gaps.from < called ? called : gaps.from;
    gaps.from = gaps.from == SHL_NEVER ? p->gaps : gaps.from + 1;
    return gaps;
}

/* Who is there in a gap, of those whose turn came before, and stays longest. */
static int32_t who_is_there(const by_priority *p, int64_t before, int32_t gap, int32_t *until)
{
    int32_t found = SHL_NONE;
    *until = gap;
    for (int64_t i = 0; i < before; i++) {
        int32_t row = p->by_turn[i];
        if (p->gone[row] > *until && gaps_of(p, row).latest < gap) {
            *until = p->gone[row];
            found = row;
        }
    }
    return found;
}

static void refuse(by_priority *p, int32_t violation, int32_t dequeue, int64_t before,
                   span_of_gaps gaps)
{
    int32_t there[3] = {SHL_NONE, SHL_NONE, SHL_NONE}, gap = gaps.from;
    for (int i = 0; i < 3 && gap <= gaps.until && gap < p->gaps; i++)
        there[i] = who_is_there(p, before, gap, &gap);
    queue_violation(p->check, violation, dequeue, there[0], there[1], there[2]);
}

/* Those of one turn: first each finds its gap, then they hinder others. */
static int place_turn(by_priority *p, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        int32_t row = p->by_turn[i];
        span_of_gaps gaps = gaps_of(p, row);
        int32_t gap = vacant_from(p, gaps.from < p->gaps ? gaps.from : p->gaps);
        if (gap > gaps.until) {
            refuse(p, SHL_QUEUE_TURN, p->dequeue_of[row], from, gaps);
            return 0;
        }
        p->gone[row] = gap > gaps.latest ? gap : 0;
    }
    for (int64_t i = from; i < to; i++) {
        int32_t row = p->by_turn[i];
        if (p->gone[row])
            occupy(p, gaps_of(p, row).latest + 1, p->gone[row]);
    }
    return 1;
}

static int place_empties(by_priority *p)
{
    const shl_queue_history *h = p->check->history;
    const int32_t *rows = queue_rows(p->check, EMPTIES);
    for (int64_t i = 0; i < queue_count(p->check, EMPTIES); i++) {
        span_of_gaps gaps = {0, h->call[rows[i]] + 1, h->ret[rows[i]]};
        if (vacant_from(p, gaps.from) > gaps.until) {
            refuse(p, SHL_QUEUE_EMPTY, rows[i], p->count, gaps);
            return 0;
        }
    }
    return 1;
}

/* 1: there is an order, as far as `leaves` is true. 0: there is none, the answer says why; or the
 * budget is spent, and it says that. */
static int place_all(by_priority *p)
{
    for (int32_t gap = 0; gap <= p->gaps; gap++)
        p->vacant[gap] = gap;
    memset(p->gone, 0, (size_t)ints(p->check->n));
    for (int64_t from = 0, to = 0; from < p->count; from = to) {
        while (to < p->count && p->turn[p->by_turn[to]] == p->turn[p->by_turn[from]])
            to++;
        if (!(from & 0xfff) && shl_monitor_stops(p->check->budget, p->check->answer))
            return 0;
        if (!place_turn(p, from, to))
            return 0;
    }
    return place_empties(p);
}

/* Enqueues that completed or whose element was dequeued, by turn; counting. */
static int sort_by_turn(by_priority *p)
{
    queue_check *check = p->check;
    const int32_t *rows = queue_rows(check, ENQUEUES), *dequeues = queue_rows(check, DEQUEUES);
    int64_t bytes = ints(p->turns + 1);
    int32_t *next = shl_alloc_zeroed(check->budget, bytes);
    if (!next)
        return 0;
    memset(p->dequeue_of, 0xff, (size_t)ints(check->n));
    for (int64_t i = 0; i < queue_count(check, DEQUEUES); i++)
        p->dequeue_of[queue_span(check, dequeues[i]).enqueue] = dequeues[i];
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < queue_count(check, ENQUEUES); i++) {
            int32_t row = rows[i];
            if (p->dequeue_of[row] == SHL_NONE && queue_ret(check, row) == SHL_NEVER)
                continue;
            if (pass)
                p->by_turn[next[p->turn[row]]++] = row;
            else
                next[p->turn[row] + 1]++, p->count++;
        }
        for (int32_t turn = 0; !pass && turn < p->turns; turn++)
            next[turn + 1] += next[turn];
    }
    shl_free(check->budget, next, bytes);
    return 1;
}

/* Every element that none is known to have taken may leave from `call` on. */
static void all_leave(by_priority *p, int32_t call)
{
    for (int64_t i = 0; i < p->check->n; i++)
        p->leaves[i] = call;
}

/* By when an element must have been dequeued that was there: of those whose turn comes after it and
 * that were dequeued later for sure, the first. `behind`: where those begin. */
static int32_t due_by(const by_priority *p, int64_t behind, int32_t enqueue)
{
    const shl_queue_history *h = p->check->history;
    int32_t by = SHL_NEVER;
    for (int64_t at = behind; at < p->count; at++) {
        int32_t dequeue = p->dequeue_of[p->by_turn[at]];
        if (dequeue != SHL_NONE && h->call[dequeue] > h->ret[enqueue] && h->ret[dequeue] < by)
            by = h->ret[dequeue];
    }
    return by;
}

/* Gives crashed dequeues to elements that are due, the first first; then to what came first of all
 * that is left. 0: no memory. */
static int guess(by_priority *p)
{
    queue_check *check = p->check;
    int64_t bytes = check->residual * (int64_t)sizeof(due), count = 0, behind = 0, looks = 0;
    due *dues = shl_alloc(check->budget, bytes);
    if (!dues)
        return 0;
    all_leave(p, SHL_NEVER);
    for (int64_t at = 0; at < p->count && looks < LOOKS; at++) {
        int32_t row = p->by_turn[at], by = SHL_NEVER;
        while (behind < p->count && p->turn[p->by_turn[behind]] <= p->turn[row])
            behind++;
        if (p->dequeue_of[row] != SHL_NONE)
            continue;
        by = due_by(p, behind, row);
        looks += p->count - behind;
        if (by != SHL_NEVER)
            dues[count++] = (due){by, row};
    }
    int64_t served = queue_serve(check, dues, count, p->leaves);
    const int32_t *crashed = queue_rows(check, CRASHED);
    for (int64_t at = 0; at < p->count && served < queue_count(check, CRASHED); at++) {
        int32_t row = p->by_turn[at];
        if (p->dequeue_of[row] == SHL_NONE && p->leaves[row] == SHL_NEVER)
            p->leaves[row] = check->history->call[crashed[served++]];
    }
    shl_free(check->budget, dues, bytes);
    return 1;
}

static void decide(by_priority *p)
{
    queue_check *check = p->check;
    int64_t crashed = queue_count(check, CRASHED);
    const int32_t *first = queue_rows(check, CRASHED);
    all_leave(p, crashed ? check->history->call[*first] : SHL_NEVER);
    if (!place_all(p) || !crashed)
        return;
    if (!guess(p))
        shl_monitor_stops(check->budget, check->answer);
    else if (!place_all(p) && check->answer->verdict == SHL_INVALID)
        *check->answer = (shl_answer){SHL_UNKNOWN, SHL_NOT_THIS_MONITOR, SHL_QUEUE_CRASHED,
                                      {*first, SHL_NONE, SHL_NONE, SHL_NONE}};
}

void shl_check_priority(const shl_queue_history *history, const int32_t *turn, int32_t turns,
                        shl_budget *budget, shl_answer *answer)
{
    queue_check check = {
        .history = history, .until = SHL_NEVER, .budget = budget, .answer = answer};
    by_priority p = {.check = &check, .turn = turn, .turns = turns, .gaps = history->ranks + 1};
    int64_t bytes = ints(history->n), gap_bytes = ints(p.gaps + 1);
    if (queue_open(&check, 0) && queue_check_empties(&check)) {
        p.by_turn = shl_alloc(budget, bytes);
        p.dequeue_of = shl_alloc(budget, bytes);
        p.leaves = shl_alloc(budget, bytes);
        p.gone = shl_alloc(budget, bytes);
        p.vacant = shl_alloc(budget, gap_bytes);
        if (p.by_turn && p.dequeue_of && p.leaves && p.gone && p.vacant && sort_by_turn(&p))
            decide(&p);
        else
            shl_monitor_stops(budget, answer);
    }
    shl_free(budget, p.by_turn, bytes);
    shl_free(budget, p.dequeue_of, bytes);
    shl_free(budget, p.leaves, bytes);
    shl_free(budget, p.gone, bytes);
    shl_free(budget, p.vacant, gap_bytes);
    queue_close(&check);
}
