/* The set monitor (ours): when was each element added, and removed?
 *
 * Without reads of the whole set, elements are objects of their own (Herlihy & Wing's locality).
 *
 * An element that no operation removes is added at one instant p: after the call of its first add
 * (of the one that says it changed the set) and of each operation that missed it; before the
 * return of all its other adds and of each that found it. Reads of the whole set must then be a
 * chain by inclusion, which puts reads and elements in layers: those added before the smallest,
 * its reads, those added before the next... Linearizable iff none returns before one of a lower
 * layer is called; elements have the bounds of p in place of call and return.
 *
 * An element that is added once and removed is there from p to an instant q, that of one of its
 * removes. An operation that found it must overlap [p, q], and one that missed it, or removed it
 * in vain, must not be within it. If p and q can be neighbours, all of these hold. If they can't,
 * the latest p and the earliest q are the best, and independent of each other: lowering p would
 * only help where p and q could be neighbours. */
#include "internal_monitors.h"

typedef struct {
    int32_t first_add; /* the first called, or SHL_NONE */
    int32_t added;     /* one that says it changed the set, or SHL_NONE */
    int32_t soonest;   /* the first to return of those that it is there for, or SHL_NONE */
    int32_t missed;    /* the last called of those that missed it, or SHL_NONE */
    int32_t found;     /* an operation that found it there, or SHL_NONE */
    int32_t layer;     /* the smallest set read that has it, or SHL_NONE */
    int32_t listed;    /* the last of its operations; if it is removed */
    uint8_t several_adds, several_added, is_removed, is_observed;
} element;

/* Bounds of one layer: a slot of elements and the reads that follow it. */
typedef struct {
    int32_t slot_after, slot_before; /* the last called, the first to return; or SHL_NONE */
    int32_t read_after, read_before;
} layer;

typedef struct {
    const shl_history *history;
    const shl_read_sets *sets;
    element *elements;
    layer *layers;     /* one per set, and one above */
    int32_t *layer_of; /* per set */
    int32_t *previous; /* per operation: the one before it on the same element */
    int32_t a_remove, a_read;
    shl_answer *answer;
} set_monitor;

static int answered(set_monitor *set, int32_t verdict, int32_t violation, int32_t op0, int32_t op1,
                    int32_t op2)
{
    int32_t cause = verdict == SHL_UNKNOWN ? SHL_NOT_THIS_MONITOR : SHL_DECIDED;
    *set->answer = (shl_answer){verdict, cause, violation, {op0, op1, op2, SHL_NONE}};
    return 0;
}

static int invalid(set_monitor *set, int32_t violation, int32_t op0, int32_t op1, int32_t op2)
{
    return answered(set, SHL_INVALID, violation, op0, op1, op2);
}

/* The rank of an operation's call or return, where there is one. */
static int32_t call_of(const set_monitor *set, int32_t op)
{
    return op == SHL_NONE ? -1 : set->history->call[op];
}

static int32_t ret_of(const set_monitor *set, int32_t op)
{
    return op == SHL_NONE ? SHL_NEVER : set->history->ret[op];
}

static int32_t later_called(const set_monitor *set, int32_t one, int32_t other)
{
    return call_of(set, one) > call_of(set, other) ? one : other;
}

static int32_t sooner_back(const set_monitor *set, int32_t one, int32_t other)
{
    return ret_of(set, one) < ret_of(set, other) ? one : other;
}

/* --- gathering ---------------------------------------------------------------------------------*/

static void gather_element(set_monitor *set, int32_t op)
{
    const shl_history *h = set->history;
    element *here = &set->elements[h->a[op]];
    int32_t f = h->f[op];
    if (f == SHL_SET_ADD || f == SHL_SET_ADDED) {
        here->several_adds |= here->first_add != SHL_NONE;
        here->first_add = here->first_add == SHL_NONE ? op : here->first_add;
    }
    if (f == SHL_SET_ADDED) {
        here->several_added |= here->added != SHL_NONE;
        here->added = op;
    }
    if (f == SHL_SET_ADD || f == SHL_SET_ADDED || f == SHL_SET_HAS)
        here->soonest = sooner_back(set, op, here->soonest);
    if (f == SHL_SET_LACKS)
        here->missed = op; /* calls ascend */
    if (f == SHL_SET_HAS || f == SHL_SET_REMOVED)
        here->found = sooner_back(set, op, here->found);
    here->is_removed |= f == SHL_SET_REMOVE || f == SHL_SET_REMOVED;
    here->is_observed |= f != SHL_SET_ADD && f != SHL_SET_REMOVE;
}

static void gather(set_monitor *set)
{
    const shl_history *h = set->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] < SHL_SET_READ)
            gather_element(set, (int32_t)i);
        if (h->f[i] == SHL_SET_READ)
            set->a_read = (int32_t)i;
        if (h->f[i] == SHL_SET_REMOVE || h->f[i] == SHL_SET_REMOVED)
            set->a_remove = (int32_t)i;
    }
}

/* --- an element that no operation removes -----------------------------------------------------*/

static int32_t other_added(const set_monitor *set, int32_t added)
{
    const shl_history *h = set->history;
    int32_t op = 0;
    while (op == added || h->f[op] != SHL_SET_ADDED || h->a[op] != h->a[added])
        op++;
    return op;
}

/* After whose call it was added. */
static int32_t added_after(const set_monitor *set, const element *here)
{
    int32_t add = here->added == SHL_NONE ? here->first_add : here->added;
    return later_called(set, add, here->missed);
}

static int never_removed(set_monitor *set, const element *here)
{
    if (here->first_add == SHL_NONE)
        return here->found == SHL_NONE
               || invalid(set, SHL_SET_FRESH, here->found, SHL_NONE, SHL_NONE);
    if (here->several_added)
        return invalid(set, SHL_SET_AGAIN, other_added(set, here->added), here->added, SHL_NONE);
    int32_t after = added_after(set, here);
    if (call_of(set, after) < ret_of(set, here->soonest))
        return 1;
    if (after == here->missed)
        return invalid(set, SHL_SET_LOST, after, here->soonest, SHL_NONE);
    return invalid(set, SHL_SET_FUTURE, here->soonest, after, SHL_NONE);
}

/* --- an element that was added once, and removed -----------------------------------------------*/

typedef struct {
    int32_t add;
    int32_t removed;      /* the remove that says it changed the set, or SHL_NONE */
    int32_t first_found;  /* the first to return of the add and all that found it */
    int32_t last_found;   /* the last called that found it, or SHL_NONE */
    int32_t after, before; /* bounds of p and q if they are neighbours: ranks */
    int32_t end;          /* the earliest q; SHL_NEVER: it need not be removed */
} stay;

static void list_operations(set_monitor *set)
{
    const shl_history *h = set->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] >= SHL_SET_READ || !set->elements[h->a[i]].is_removed)
            continue;
        set->previous[i] = set->elements[h->a[i]].listed;
        set->elements[h->a[i]].listed = (int32_t)i;
    }
}

static int gather_stay(set_monitor *set, const element *here, stay *found)
{
    const shl_history *h = set->history;
    *found = (stay){here->first_add, SHL_NONE, here->first_add, SHL_NONE, 0, 0, SHL_NEVER};
    for (int32_t op = here->listed; op != SHL_NONE; op = set->previous[op]) {
        if (h->f[op] == SHL_SET_HAS) {
            found->first_found = sooner_back(set, op, found->first_found);
            found->last_found = later_called(set, op, found->last_found);
        }
        if (h->f[op] != SHL_SET_REMOVED)
            continue;
        if (found->removed != SHL_NONE)
            return invalid(set, SHL_SET_AGAIN, op, found->removed, SHL_NONE);
        found->removed = op;
    }
    found->after = later_called(set, found->add, found->last_found);
    found->after = call_of(set, found->after);
    found->before = ret_of(set, found->first_found);
    return 1;
}

static int is_candidate(const set_monitor *set, const stay *found, int32_t op)
{
    return found->removed == SHL_NONE ? set->history->f[op] == SHL_SET_REMOVE
                                      : op == found->removed;
}

/* p and q right after each other, in the time of one of the removes that it may have been. */
static int may_be_brief(const set_monitor *set, const element *here, const stay *found)
{
    const shl_history *h = set->history;
    for (int32_t op = here->listed; op != SHL_NONE; op = set->previous[op]) {
        int32_t after = h->call[op] > found->after ? h->call[op] : found->after;
        int32_t before = h->ret[op] < found->before ? h->ret[op] : found->before;
        if (is_candidate(set, found, op) && after < before)
            return 1;
    }
    return 0;
}

static void find_end(const set_monitor *set, const element *here, stay *found)
{
    const shl_history *h = set->history;
    int32_t last = call_of(set, found->last_found);
    int32_t least = last > found->before ? last : found->before;
    if (found->removed != SHL_NONE)
        least = last;
    for (int32_t op = here->listed; op != SHL_NONE; op = set->previous[op]) {
        int32_t end = h->call[op] > least ? h->call[op] : least;
        if (is_candidate(set, found, op) && h->ret[op] > least && end < found->end)
            found->end = end;
    }
}

/* Bounds that need no weighing: who found it was not too early, nor too late. */
static int bounds_hold(set_monitor *set, const stay *found)
{
    const shl_history *h = set->history;
    if (h->call[found->add] > found->before)
        return invalid(set, SHL_SET_FUTURE, found->first_found, found->add, SHL_NONE);
    if (found->removed == SHL_NONE)
        return 1;
    if (h->call[found->add] > h->ret[found->removed])
        return invalid(set, SHL_SET_FUTURE, found->removed, found->add, SHL_NONE);
    if (call_of(set, found->last_found) > h->ret[found->removed])
        return invalid(set, SHL_SET_STALE, found->removed, found->last_found, SHL_NONE);
    return 1;
}

static int removed_once(set_monitor *set, const element *here)
{
    const shl_history *h = set->history;
    stay found;
    if (!gather_stay(set, here, &found) || !bounds_hold(set, &found))
        return 0;
    if (may_be_brief(set, here, &found))
        return 1;
    find_end(set, here, &found);
    for (int32_t op = here->listed; op != SHL_NONE; op = set->previous[op]) {
        int vain = h->f[op] == SHL_SET_LACKS
                   || (h->f[op] == SHL_SET_REMOVE && h->ret[op] != SHL_NEVER);
        if (!vain || h->call[op] < found.before || h->ret[op] > found.end)
            continue;
        int there_after = call_of(set, found.last_found) > h->ret[op];
        int32_t last = there_after ? found.last_found : found.removed;
        if (h->f[op] == SHL_SET_REMOVE)
            return invalid(set, SHL_SET_STALE, op, last, SHL_NONE);
        return invalid(set, SHL_SET_LOST, op, found.first_found, last);
    }
    return 1;
}

static int several_adds(set_monitor *set, const element *here)
{
    const shl_history *h = set->history;
    for (int32_t op = here->first_add + 1;; op++)
        if (h->f[op] <= SHL_SET_ADDED && h->a[op] == h->a[here->first_add])
            return answered(set, SHL_UNKNOWN, SHL_SET_SEVERAL, here->first_add, op, SHL_NONE);
}

static int removed(set_monitor *set, const element *here)
{
    if (!here->is_observed)
        return 1; /* adds and removes that say nothing are always possible */
    if (here->first_add == SHL_NONE)
        return here->found == SHL_NONE
               || invalid(set, SHL_SET_FRESH, here->found, SHL_NONE, SHL_NONE);
    if (here->several_adds)
        return several_adds(set, here);
    if (ret_of(set, here->first_add) == SHL_NEVER && here->found == SHL_NONE)
        return 1; /* it need not have been added */
    return removed_once(set, here);
}

/* --- reads of the whole set --------------------------------------------------------------------*/

static int32_t reader_of(const set_monitor *set, int32_t which)
{
    const shl_history *h = set->history;
    int32_t op = 0;
    while (h->f[op] != SHL_SET_READ || h->a[op] != which)
        op++;
    return op;
}

/* Sets come smallest first, so each must have all of the one before it. */
static int reads_are_a_chain(set_monitor *set)
{
    const shl_read_sets *sets = set->sets;
    int64_t before = 0;
    for (int32_t at = 0; at < sets->count; at++) {
        int64_t size = sets->starts[at + 1] - sets->starts[at], known = 0;
        int same = at > 0 && size == before;
        set->layer_of[at] = same ? set->layer_of[at - 1] : at;
        for (int64_t i = sets->starts[at]; i < sets->starts[at + 1]; i++) {
            element *here = &set->elements[sets->elements[i]];
            if (here->first_add == SHL_NONE)
                return invalid(set, SHL_SET_FRESH, reader_of(set, at), SHL_NONE, SHL_NONE);
            known += here->layer != SHL_NONE;
            here->layer = here->layer == SHL_NONE ? set->layer_of[at] : here->layer;
        }
        if (known < before)
            return invalid(set, SHL_SET_DIFFERENT, reader_of(set, at - 1), reader_of(set, at),
                           SHL_NONE);
        before = size;
    }
    return 1;
}

static void lay(set_monitor *set)
{
    const shl_history *h = set->history;
    for (int32_t at = 0; at < h->values; at++) {
        const element *here = &set->elements[at];
        if (here->first_add == SHL_NONE)
            continue;
        layer *slot = &set->layers[here->layer == SHL_NONE ? set->sets->count : here->layer];
        slot->slot_after = later_called(set, added_after(set, here), slot->slot_after);
        slot->slot_before = sooner_back(set, here->soonest, slot->slot_before);
    }
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_SET_READ)
            continue;
        layer *read = &set->layers[set->layer_of[h->a[i]]];
        read->read_after = (int32_t)i; /* calls ascend */
        read->read_before = sooner_back(set, (int32_t)i, read->read_before);
    }
}

static int layers_agree(set_monitor *set)
{
    int32_t latest = SHL_NONE;
    for (int32_t at = 0; at <= set->sets->count; at++) {
        const layer *here = &set->layers[at];
        if (ret_of(set, here->slot_before) < call_of(set, latest))
            return invalid(set, SHL_SET_ORDER, here->slot_before, latest, SHL_NONE);
        latest = later_called(set, here->slot_after, latest);
        if (ret_of(set, here->read_before) < call_of(set, latest))
            return invalid(set, SHL_SET_ORDER, here->read_before, latest, SHL_NONE);
        latest = later_called(set, here->read_after, latest);
    }
    return 1;
}

/* An element that can't be decided does not hide one that is wrong. */
static int elements_hold(set_monitor *set)
{
    for (int32_t at = 0; at < set->history->values; at++) {
        const element *here = &set->elements[at];
        if (!(here->is_removed ? removed(set, here) : never_removed(set, here))
            && set->answer->verdict == SHL_INVALID)
            return 0;
    }
    return set->answer->verdict == SHL_VALID;
}

static int check(set_monitor *set, shl_budget *budget)
{
    gather(set);
    if (shl_monitor_stops(budget, set->answer))
        return 0;
    if (set->a_remove != SHL_NONE)
        list_operations(set);
    if (!elements_hold(set))
        return 0;
    if (set->a_remove != SHL_NONE && set->a_read != SHL_NONE)
        return answered(set, SHL_UNKNOWN, SHL_SET_WHOLE, set->a_remove, set->a_read, SHL_NONE);
    if (set->a_read == SHL_NONE || shl_monitor_stops(budget, set->answer))
        return set->a_read == SHL_NONE;
    if (!reads_are_a_chain(set))
        return 0;
    lay(set);
    return layers_agree(set);
}

void shl_check_set(const shl_history *history, const shl_read_sets *sets, shl_budget *budget,
                   shl_answer *answer)
{
    int64_t element_bytes = history->values * (int64_t)sizeof(element);
    int64_t layer_bytes = (sets->count + 1) * (int64_t)sizeof(layer);
    int64_t set_bytes = sets->count * (int64_t)sizeof(int32_t);
    int64_t operation_bytes = history->n * (int64_t)sizeof(int32_t);
    set_monitor set = {.history = history, .sets = sets, .answer = answer, .a_remove = SHL_NONE,
                    .a_read = SHL_NONE};
    set.elements = shl_alloc(budget, element_bytes);
    set.layers = shl_alloc(budget, layer_bytes);
    set.layer_of = shl_alloc(budget, set_bytes);
    set.previous = shl_alloc(budget, operation_bytes);
    shl_monitor_valid(answer);
    if (set.elements && set.layers && set.layer_of && set.previous) {
        for (int32_t at = 0; at < history->values; at++)
            set.elements[at] = (element){SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE,
                                         SHL_NONE, SHL_NONE, 0, 0, 0, 0};
        for (int32_t at = 0; at <= sets->count; at++)
            set.layers[at] = (layer){SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE};
        check(&set, budget);
    } else {
        shl_monitor_stops(budget, answer);
    }
    shl_free(budget, set.previous, operation_bytes);
    shl_free(budget, set.layer_of, set_bytes);
    shl_free(budget, set.layers, layer_bytes);
    shl_free(budget, set.elements, element_bytes);
}
