/* FIFO queues with distinct values: what a bag must satisfy, and the order.
 *
 * Value b overtook value a if a's enqueue returned before b's was called, and b's dequeue
 * returned before a's was called. With neither that nor what a bag forbids, the history of the
 * dequeued values is linearizable: "enqueued before" and "dequeued before" are interval
 * orders, so a shortest cycle of the two has length two (Gibbons, Bruno & Phillips 2002 for
 * complete histories). It takes one sweep over time with the latest dequeue call among the
 * values enqueued so far.
 *
 * A residual value a (enqueued, never returned by a dequeue) must have been removed by a
 * crashed dequeue before the first return of any b enqueued after it: its deadline. Deadlines
 * grow with the time of the enqueue, so if the i-th residual value has a deadline, all before
 * it have, and what is needed (Hall) is that the i-th crashed dequeue was called before it. */
#include "internal_monitors.h"

/* The first return among the dequeues of values that overtook one; none: more than any rank. */
static uint32_t first_overtaking(const queue_check *check)
{
    const int32_t *timeline = check->timeline;
    int32_t latest_call = 0;
    uint32_t first = UINT32_MAX;
    for (int32_t rank = 0, ranks = check->ranks; rank < ranks; rank++) {
        int32_t call = dequeue_called(timeline[rank]);
        uint32_t ret = dequeue_returned(timeline[rank]);
        latest_call = call > latest_call ? call : latest_call;
        ret = ret < (uint32_t)latest_call ? ret : UINT32_MAX;
        first = ret < first ? ret : first;
    }
    return first;
}

static value_span overtaker(const queue_check *check, int32_t ret)
{
    const int32_t *rows = queue_rows(check, DEQUEUES);
    while (check->history->ret[*rows] != ret)
        rows++;
    return queue_span(check, *rows);
}

/* The first dequeue that was called after `rank`; they are in the order of their calls. */
static int64_t first_called_after(const queue_check *check, int32_t rank)
{
    const int32_t *rows = queue_rows(check, DEQUEUES);
    int64_t low = 0, high = queue_count(check, DEQUEUES);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (check->history->call[rows[middle]] > rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Of the values that b overtook, the one that was dequeued first: the proof that ends earliest. */
static void explain_order(queue_check *check, value_span b)
{
    const int32_t *rows = queue_rows(check, DEQUEUES);
    value_span found = b;
    int32_t ret = SHL_NEVER;
    for (int64_t i = first_called_after(check, b.dequeue_ret); i < queue_count(check, DEQUEUES);
         i++) {
        if (check->history->call[rows[i]] > ret)
            break; /* all that comes now returns later still */
        if (check->history->ret[rows[i]] > ret)
            continue;
        value_span a = queue_span(check, rows[i]);
        if (a.enqueue_ret < b.enqueue_call) {
            found = a;
            ret = a.dequeue_ret;
        }
    }
    queue_violation(check, SHL_QUEUE_ORDER, found.enqueue, found.dequeue, b.enqueue, b.dequeue);
}

static int check_order(queue_check *check)
{
    uint32_t first = first_overtaking(check);
    if (first == UINT32_MAX)
        return 1;
    explain_order(check, overtaker(check, (int32_t)first));
    return 0;
}

/* The first residual value, in the order of their returns, that no crashed dequeue can have removed
 * in time; its deadline is given. Going back in time finds it last. SHL_NONE: there is none. */
static int32_t first_lost(const queue_check *check, int32_t *deadline)
{
    const int32_t *crashed = queue_rows(check, CRASHED);
    int64_t left = check->residual, takers = queue_count(check, CRASHED);
    uint32_t earliest = UINT32_MAX, ranks = (uint32_t)check->ranks;
    int32_t found = SHL_NONE;
    for (int32_t rank = check->ranks - 1; left > 0; rank--) {
        int32_t event = check->timeline[rank];
        uint32_t ret = dequeue_returned(event);
        earliest = ret < earliest ? ret : earliest;
        if (event != NEVER_DEQUEUED)
            continue;
        left--;
        if (earliest < ranks &&
            (left >= takers || (uint32_t)check->history->call[crashed[left]] > earliest)) {
            found = rank;
            *deadline = (int32_t)earliest;
        }
    }
    return found;
}

static int check_lost(queue_check *check)
{
    int32_t deadline = 0, ret = check->residual ? first_lost(check, &deadline) : SHL_NONE;
    if (ret == SHL_NONE)
        return 1;
    const int32_t *rows = queue_rows(check, ENQUEUES);
    while (check->history->ret[*rows] != ret)
        rows++;
    value_span b = overtaker(check, deadline);
    queue_violation(check, SHL_QUEUE_LOST, *rows, b.enqueue, b.dequeue, SHL_NONE);
    return 0;
}

void shl_check_fifo(const shl_queue_history *history, int32_t until, shl_budget *budget,
                    shl_answer *answer)
{
    queue_check check = {
        .history = history, .until = until, .budget = budget, .answer = answer};
    if (queue_open(&check, 1) && check_order(&check) && check_lost(&check))
        queue_check_empties(&check);
    queue_close(&check);
}
