/* What FIFO and unordered queues have in common: values, their enqueues and dequeues,
 * emptiness.
 *
 * Distinct values make a queue's history a set of spans: a value was certainly not there
 * before its enqueue was called or after its dequeue returned, and certainly there between its
 * enqueue's return and its dequeue's call. Crashed operations are taken into account so (n
 * operations, O(n)): - a crashed enqueue whose value no dequeue saw is left out: at best it did
 * not happen; - one whose value a dequeue returned had taken effect by that return; - a
 * crashed dequeue may have removed, at any time after its call, any one value that no other
 * dequeue returned (a residual one), or nothing. A dequeue that found the queue empty needs a
 * moment within it at which no dequeued value was certainly there and at which the residual
 * values enqueued so far are at most as many as the crashed dequeues called so far. That is
 * Hall's condition, since both sides are chains: whichever residual values must be gone by
 * some moment are the first ones, and any crashed dequeue called by then will do. Moments do
 * not compete with each other, for the same reason.
 *
 * Bad patterns: Henzinger, Sezgin, Vafeiadis (CONCUR 2013); Bouajjani et al. (ICALP 2015). */
#include "internal_monitors.h"

#include <stdlib.h>
#include <string.h>

enum { FAILED = 1, INTEGERS = 1, FORMS = 2, BLOCK = 1 << 16, FEWEST = 16, AHEAD = 16 };

void queue_violation(queue_check *check, int32_t violation, int32_t a, int32_t b, int32_t c,
                     int32_t d)
{
    *check->answer = (shl_answer){SHL_INVALID, SHL_DECIDED, violation, {a, b, c, d}};
}

static int another_monitor(queue_check *check, int32_t why, int32_t a, int32_t b)
{
    *check->answer =
        (shl_answer){SHL_UNKNOWN, SHL_NOT_THIS_MONITOR, why, {a, b, SHL_NONE, SHL_NONE}};
    return 0;
}

static int stopped(queue_check *check)
{
    int32_t why = shl_check_budget(check->budget);
    if (why)
        *check->answer = (shl_answer){SHL_UNKNOWN, why, 0, {-1, -1, -1, -1}};
    return why != 0;
}

/* After a refused allocation: the budget says why. */
static int give_up(queue_check *check)
{
    stopped(check);
    return 0;
}

/* --- rows by what they are ---------------------------------------------------------------------*/

/* The class of a row from five facts about it, looked up: data decides, not branches. */
static void fill_classes(uint8_t classes[64])
{
    for (int fact = 0; fact < 64; fact++) {
        int means = fact & 3, failed = fact >> 2 & 1, crashed = fact >> 3 & 1;
        int argument = fact >> 4 & 1, result = fact >> 5 & 1;
        uint8_t class = STRANGE;
        if (failed)
            class = LEFT_OUT;
        else if (means == SHL_ENQUEUE && argument)
            class = ENQUEUES;
        else if (means == SHL_DEQUEUE)
            class = crashed ? CRASHED : result ? DEQUEUES : EMPTIES;
        classes[fact] = class;
    }
}

enum { FEW = 255 }; /* rows that are counted in one byte a class */

static void classify(queue_check *check, uint8_t *restrict class_of)
{
    const shl_queue_history history = *check->history;
    int32_t until = check->until;
    uint8_t classes[64];
    fill_classes(classes);
    for (int64_t from = 0; from < check->n; from += FEW) {
        int64_t to = from + FEW < check->n ? from + FEW : check->n;
        uint64_t counts = 0;
        for (int64_t i = from; i < to; i++) {
            int32_t ret = history.ret[i];
            unsigned facts = history.means[history.f[i]];
            facts |= (unsigned)(history.type[i] == FAILED) << 2;
            facts |= (unsigned)((ret > until) | (ret == SHL_NEVER)) << 3;
            facts |= (unsigned)(history.argument_kind[i] != 0) << 4;
            facts |= (unsigned)(history.result_kind[i] != 0) << 5;
            class_of[i] = classes[facts];
            counts += (uint64_t)1 << (8 * classes[facts]);
        }
        for (int class = 0; class < CLASSES; class++)
            check->from[class + 1] += counts >> (8 * class) & FEW;
    }
    for (int class = 0; class < CLASSES; class++)
        check->from[class + 1] += check->from[class];
}

static void sort_by_class(queue_check *check, const uint8_t *class_of)
{
    int64_t next[CLASSES];
    int32_t *rows = check->rows;
    memcpy(next, check->from, sizeof next);
    for (int64_t i = 0; i < check->n; i++)
        rows[next[class_of[i]]++] = (int32_t)i;
}

static int split_rows(queue_check *check)
{
    check->rows = shl_alloc_used(check->budget, check->n * (int64_t)sizeof(int32_t));
    uint8_t *class_of = shl_alloc_used(check->budget, check->n);
    if (check->rows && class_of) {
        classify(check, class_of);
        sort_by_class(check, class_of);
    }
    shl_free(check->budget, class_of, check->n);
    if (stopped(check))
        return 0;
    if (!queue_count(check, STRANGE))
        return 1;
    int32_t row = queue_rows(check, STRANGE)[0];
    int is_enqueue = check->history->means[check->history->f[row]] == SHL_ENQUEUE;
    return another_monitor(check, is_enqueue ? SHL_QUEUE_NOTHING : SHL_QUEUE_OTHER, row, SHL_NONE);
}

/* --- a value's enqueue -------------------------------------------------------------------------*/

static void find_range(queue_check *check)
{
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, ENQUEUES);
    int64_t count = queue_count(check, ENQUEUES), low = INT64_MAX, high = INT64_MIN;
    for (int64_t i = 0; i < count; i++) {
        if (history->argument_kind[rows[i]] != INTEGERS)
            continue;
        int64_t number = history->argument[rows[i]];
        low = number < low ? number : low;
        high = number > high ? number : high;
    }
    uint64_t range = high < low ? 0 : (uint64_t)high - (uint64_t)low;
    int64_t most = 4 * check->n + 64; /* beyond this, hashing takes less memory */
    check->values.low = low;
    check->values.range = range > (uint64_t)most ? INT64_MAX : high < low ? 0 : (int64_t)range + 1;
    check->values.forms = history->forms;
    if (check->values.range == INT64_MAX || check->values.range + history->forms > most)
        check->values.range = -1;
}

static int make_marks(queue_check *check)
{
    marks_by_value *values = &check->values;
    find_range(check);
    int64_t marks = values->range + values->forms;
    if (values->range < 0) {
        values->slots = FEWEST;
        while (values->slots * 3 < queue_count(check, ENQUEUES) * 4)
            values->slots *= 2;
        marks = values->slots;
    }
    values->bytes = marks * (int64_t)sizeof(int32_t);
    values->marks = shl_alloc_used_zeroed(check->budget, values->bytes);
    return values->marks != NULL;
}

/* Where the search for a value begins. */
static inline uint64_t hashed(int32_t kind, int64_t number)
{
    uint64_t at = ((uint64_t)number + ((uint64_t)kind << 61)) * 0x9e3779b97f4a7c15u;
    at ^= at >> 32;
    at *= 0xd6e8feb86659fd93u;
    return at >> 32;
}

/* The mark of a value, or a free place if it has none yet. */
static inline int32_t *hashed_mark(const queue_check *check, int32_t kind, int64_t number)
{
    const marks_by_value *values = &check->values;
    for (uint64_t at = hashed(kind, number);; at++) {
        int32_t *mark = &values->marks[at & (uint64_t)(values->slots - 1)];
        int32_t row = (*mark < 0 ? -*mark : *mark) - 1;
        if (row < 0 || (check->history->argument[row] == number &&
                        check->history->argument_kind[row] == kind))
            return mark;
    }
}

/* NULL: no enqueue has such a value. */
static inline int32_t *mark_of(const queue_check *check, int32_t kind, int64_t number)
{
    const marks_by_value *values = &check->values;
    if (values->slots)
        return hashed_mark(check, kind, number);
    uint64_t at = (uint64_t)number - (uint64_t)values->low;
    if (kind == INTEGERS)
        return at < (uint64_t)values->range ? &values->marks[at] : NULL;
    return (uint64_t)number < (uint64_t)values->forms ? &values->marks[values->range + number]
                                                      : NULL;
}

/* Values come in any order, so their marks are far apart: each is asked for some rows ahead. */
__attribute__((always_inline)) /* else gcc takes it for one without effect, and leaves it out */
static inline void fetch_mark(const queue_check *check, const uint8_t *kinds,
                              const int64_t *numbers, const int32_t *row, const int32_t *end)
{
    const marks_by_value *values = &check->values;
    if (row + AHEAD >= end || values->slots || kinds[row[AHEAD]] != INTEGERS)
        return;
    uint64_t at = (uint64_t)numbers[row[AHEAD]] - (uint64_t)values->low;
    if (at < (uint64_t)values->range)
        __builtin_prefetch(&values->marks[at], 1);
}

static inline int32_t *dequeue_mark(const queue_check *check, int32_t row)
{
    return mark_of(check, check->history->result_kind[row], check->history->result[row]);
}

static inline int32_t *enqueue_mark(const queue_check *check, int32_t row)
{
    return mark_of(check, check->history->argument_kind[row], check->history->argument[row]);
}

int queue_is_residual(const queue_check *check, int32_t enqueue)
{
    return queue_ret(check, enqueue) != SHL_NEVER && *enqueue_mark(check, enqueue) > 0;
}

static int compare_dues(const void *a, const void *b)
{
    const due *one = a, *other = b;
    return one->by < other->by ? -1 : one->by > other->by;
}

int64_t queue_serve(const queue_check *check, due *dues, int64_t count, int32_t *leaves)
{
    const int32_t *crashed = queue_rows(check, CRASHED);
    int64_t served = queue_count(check, CRASHED);
    served = served < count ? served : count;
    qsort(dues, (size_t)count, sizeof *dues, compare_dues);
    for (int64_t i = 0; i < served; i++)
        leaves[dues[i].enqueue] = check->history->call[crashed[i]];
    return served;
}

/* --- pairing, and the timeline -----------------------------------------------------------------*/

static inline value_span span_of(const queue_check *check, int32_t enqueue, int32_t dequeue)
{
    const shl_queue_history *history = check->history;
    value_span span = {enqueue, dequeue, history->call[enqueue], queue_ret(check, enqueue),
                       history->call[dequeue], history->ret[dequeue]};
    if (span.enqueue_ret > span.dequeue_ret)
        span.enqueue_ret = span.dequeue_ret;
    return span;
}

value_span queue_span(const queue_check *check, int32_t dequeue)
{
    int32_t mark = *dequeue_mark(check, dequeue);
    return span_of(check, (mark < 0 ? -mark : mark) - 1, dequeue);
}

/* An event that does not come is written to the timeline's last place, which is not read. */
static int mark_enqueues(queue_check *check, int64_t from, int64_t to)
{
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, ENQUEUES);
    int32_t *timeline = check->timeline, ranks = check->ranks;
    int64_t completed = 0;
    for (int64_t i = from; i < to; i++) {
        fetch_mark(check, history->argument_kind, history->argument, rows + i, rows + to);
        int32_t row = rows[i], *mark = enqueue_mark(check, row), ret = queue_ret(check, row);
        if (*mark)
            return another_monitor(check, SHL_QUEUE_TWICE, *mark - 1, row);
        *mark = row + 1;
        completed += ret != SHL_NEVER;
        if (timeline)
            timeline[ret < ranks ? ret : ranks] = NEVER_DEQUEUED;
    }
    check->residual += completed;
    return 1;
}

/* A dequeue returned a value that was not enqueued, or that another dequeue had returned. */
static int bad_value(queue_check *check, int32_t row, int32_t mark)
{
    if (mark >= 0) {
        queue_violation(check, SHL_QUEUE_FRESH, row, mark - 1, SHL_NONE, SHL_NONE);
        return 0;
    }
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, DEQUEUES);
    while (history->result_kind[*rows] != history->result_kind[row] ||
           history->result[*rows] != history->result[row])
        rows++;
    queue_violation(check, SHL_QUEUE_REPEATED, *rows, row, -mark - 1, SHL_NONE);
    return 0;
}

static int pair_dequeues(queue_check *check, int64_t from, int64_t to)
{
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, DEQUEUES);
    int32_t *timeline = check->timeline, ranks = check->ranks;
    int64_t paired = 0;
    for (int64_t i = from; i < to; i++) {
        fetch_mark(check, history->result_kind, history->result, rows + i, rows + to);
        int32_t row = rows[i], *mark = dequeue_mark(check, row);
        if (!mark || *mark <= 0)
            return bad_value(check, row, mark ? *mark : 0);
        int32_t enqueue = *mark - 1, completed = queue_ret(check, enqueue);
        value_span span = span_of(check, enqueue, row);
        if (span.dequeue_ret < span.enqueue_call)
            return bad_value(check, row, *mark);
        *mark = -*mark;
        paired += completed != SHL_NEVER;
        if (!timeline)
            continue;
        timeline[completed < ranks ? completed : ranks] = 0;
        timeline[span.enqueue_ret] = -(span.dequeue_call + 1);
        timeline[span.enqueue_call] = span.dequeue_ret + 1;
        timeline[span.enqueue_ret < span.dequeue_call ? span.dequeue_call : ranks] = DEQUEUE_CALLED;
    }
    check->residual -= paired;
    return 1;
}

typedef int pass(queue_check *check, int64_t from, int64_t to);

static int in_blocks(queue_check *check, enum row_class class, pass *some)
{
    int64_t count = queue_count(check, class);
    for (int64_t from = 0; from < count; from += BLOCK) {
        if (stopped(check) || !some(check, from, from + BLOCK < count ? from + BLOCK : count))
            return 0;
    }
    return 1;
}

static int64_t called_by(const shl_queue_history *history, int32_t until)
{
    int64_t low = 0, high = history->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (history->call[middle] <= until)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int queue_open(queue_check *check, int with_timeline)
{
    check->n = called_by(check->history, check->until);
    check->ranks = check->until < check->history->ranks ? check->until + 1 : check->history->ranks;
    *check->answer = (shl_answer){SHL_VALID, SHL_DECIDED, 0, {-1, -1, -1, -1}};
    if (!split_rows(check))
        return 0;
    if (!make_marks(check))
        return give_up(check);
    if (with_timeline || queue_count(check, EMPTIES)) {
        check->timeline_bytes = ((int64_t)check->ranks + 1) * (int64_t)sizeof(int32_t);
        check->timeline = shl_alloc_used_zeroed(check->budget, check->timeline_bytes);
        if (!check->timeline)
            return give_up(check);
    }
    return in_blocks(check, ENQUEUES, mark_enqueues) && in_blocks(check, DEQUEUES, pair_dequeues);
}

void queue_close(queue_check *check)
{
    marks_by_value *values = &check->values;
    shl_free(check->budget, check->rows, check->n * (int64_t)sizeof(int32_t));
    shl_free(check->budget, values->marks, values->bytes);
    shl_free(check->budget, check->timeline, check->timeline_bytes);
    __atomic_add_fetch(&check->budget->done, check->n, __ATOMIC_RELAXED);
}

/* --- empty dequeues ----------------------------------------------------------------------------*/

/* Replaces each event by the last moment, up to the one after it, at which the queue may have been
 * empty; a moment is named by the event before it. -1: there was none. */
static void last_empty_moments(queue_check *check)
{
    int32_t *timeline = check->timeline, last = SHL_NONE, present = 0, spare = 0;
    const int32_t *crashed = queue_rows(check, CRASHED);
    for (int64_t i = 0; i < queue_count(check, CRASHED); i++)
        timeline[check->history->call[crashed[i]]] = CRASHED_CALLED;
    for (int32_t rank = 0, ranks = check->ranks; rank < ranks; rank++) {
        int32_t event = timeline[rank];
        present += dequeue_called(event) > rank;
        present -= event == DEQUEUE_CALLED;
        spare += (event == CRASHED_CALLED) - (event == NEVER_DEQUEUED);
        last = (present == 0) & (spare >= 0) ? rank : last;
        timeline[rank] = last;
    }
}

/* What was there at a moment of an empty dequeue, and stays the longest. Of the n residual values
 * enqueued by then, crashed dequeues can't have taken all before the n-th of them is called. */
static int32_t what_was_there(const queue_check *check, int32_t moment, int32_t *gone_at)
{
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, ENQUEUES), *crashed = queue_rows(check, CRASHED);
    int32_t found = SHL_NONE;
    int64_t residual = 0;
    *gone_at = moment;
    for (int64_t i = 0; i < queue_count(check, ENQUEUES); i++) {
        if (history->ret[rows[i]] > moment || !queue_is_residual(check, rows[i]))
            continue;
        residual++;
        if (found == SHL_NONE || history->ret[rows[i]] > history->ret[found])
            found = rows[i];
    }
    if (residual > 0)
        *gone_at = residual > queue_count(check, CRASHED) ? SHL_NEVER
                                                          : history->call[crashed[residual - 1]];
    if (*gone_at <= moment) {
        *gone_at = moment;
        found = SHL_NONE;
    }
    for (int64_t i = 0; i < queue_count(check, DEQUEUES); i++) {
        value_span span = queue_span(check, queue_rows(check, DEQUEUES)[i]);
        if (span.enqueue_ret <= moment && span.dequeue_call > *gone_at) {
            *gone_at = span.dequeue_call;
            found = span.enqueue;
        }
    }
    return found;
}

static void explain_empty(queue_check *check, int32_t row)
{
    int32_t there[3] = {SHL_NONE, SHL_NONE, SHL_NONE};
    int32_t moment = check->history->call[row];
    for (int i = 0; i < 3 && moment < check->history->ret[row]; i++)
        there[i] = what_was_there(check, moment, &moment);
    queue_violation(check, SHL_QUEUE_EMPTY, row, there[0], there[1], there[2]);
}

int queue_check_empties(queue_check *check)
{
    const shl_queue_history *history = check->history;
    const int32_t *rows = queue_rows(check, EMPTIES);
    int64_t count = queue_count(check, EMPTIES);
    if (!count || stopped(check))
        return !count;
    last_empty_moments(check);
    for (int64_t i = 0; i < count; i++) {
        if (check->timeline[history->ret[rows[i]] - 1] < history->call[rows[i]]) {
            explain_empty(check, rows[i]);
            return 0;
        }
    }
    return 1;
}

/* Unordered queues (bags) with distinct values: no value from nowhere, none twice, and no empty
 * dequeue while something was certainly there. */
void shl_check_bag(const shl_queue_history *history, int32_t until, shl_budget *budget,
                   shl_answer *answer)
{
    queue_check check = {
        .history = history, .until = until, .budget = budget, .answer = answer};
    if (queue_open(&check, 0))
        queue_check_empties(&check);
    queue_close(&check);
}
