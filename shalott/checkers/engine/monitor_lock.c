/* The lock monitors. Both decide every history of processes that do one thing at a time.
 *
 * Anonymous locks (Knossos's mutex) and semaphores of single permits: all acquires are alike and so
 * are all releases, so it is enough to linearize as late as possible. When an operation returns, it
 * takes effect then, unless it has; if it can't, one of the other sort must go before it, and the
 * one of those called so far that will return first is never a worse choice than another. (Ours:
 * take any linearization, with each operation moved to as late as its return and its successors
 * allow. What goes together at one return can be reordered so that only what is needed goes, since
 * operations of one sort can change places if the deadlines allow, and the bounds on how many
 * permits are out stay met.) A crashed operation is one that never has to return.
 *
 * Owned locks: a hold, from an acquire to the release that ends it, is one block, because no other
 * process can do anything meanwhile. It lasts for sure from the acquire's return to the release's
 * call; so two such intervals may not meet, and if they don't, they are a linearization's order
 * (the zones of Gibbons & Korach, SICOMP 1997; here all of them are forward). A crashed acquire is
 * dropped: no other operation saw it, and its process is gone. A crashed release counts from its
 * call. */
#include "internal_monitors.h"

/* --- anyone may release ------------------------------------------------------------------------*/

/* Operations of one sort that were called and have not taken effect: those that will return,
 * soonest first, and how many crashed. */
typedef struct {
    int32_t *heap; /* the ranks of their returns */
    int64_t count;
    int64_t crashed;
    int32_t last; /* the last one that took effect */
} waiting;

typedef struct {
    const shl_history *history;
    const int32_t *returner; /* per rank: the operation that returns there */
    waiting sorts[2];        /* acquires, releases */
    int32_t out, permits;
    shl_answer *answer;
} anonymous;

static void push(waiting *sort, int32_t rank)
{
    int64_t at = sort->count++;
    for (; at > 0 && sort->heap[(at - 1) / 2] > rank; at = (at - 1) / 2)
        sort->heap[at] = sort->heap[(at - 1) / 2];
    sort->heap[at] = rank;
}

static int32_t pop(waiting *sort)
{
    int32_t soonest = sort->heap[0], moved = sort->heap[--sort->count];
    int64_t at = 0;
    for (int64_t child = 1; child < sort->count; child = 2 * at + 1) {
        child += child + 1 < sort->count && sort->heap[child + 1] < sort->heap[child];
        if (sort->heap[child] >= moved)
            break;
        sort->heap[at] = sort->heap[child];
        at = child;
    }
    sort->heap[at] = moved;
    return soonest;
}

static int possible(const anonymous *lock, int32_t f)
{
    return f == SHL_LOCK_ACQUIRE ? lock->out < lock->permits : lock->out > 0;
}

static void take_effect(anonymous *lock, int32_t f, int32_t op)
{
    lock->out += f == SHL_LOCK_ACQUIRE ? 1 : -1;
    lock->sorts[f].last = op;
}

/* One of the other sort goes first: 0 if there is none. */
static int make_room(anonymous *lock, int32_t f)
{
    waiting *others = &lock->sorts[1 - f];
    if (!possible(lock, 1 - f))
        return 0; /* no permits at all */
    if (others->count)
        take_effect(lock, 1 - f, lock->returner[pop(others)]);
    else if (others->crashed)
        others->crashed--, take_effect(lock, 1 - f, others->last);
    else
        return 0;
    return 1;
}

static int returns(anonymous *lock, int32_t op)
{
    int32_t f = lock->history->f[op];
    waiting *sort = &lock->sorts[f];
    if (!sort->count || sort->heap[0] != lock->history->ret[op])
        return 1; /* it has taken effect before */
    pop(sort);
    if (!possible(lock, f) && !make_room(lock, f)) {
        *lock->answer =
            (shl_answer){SHL_INVALID,
                         SHL_DECIDED,
                         f == SHL_LOCK_ACQUIRE ? SHL_LOCK_HELD : SHL_LOCK_FREE,
                         {op, sort->last, SHL_NONE, SHL_NONE}};
        return 0;
    }
    take_effect(lock, f, op);
    return 1;
}

static void called(anonymous *lock, int32_t op)
{
    waiting *sort = &lock->sorts[lock->history->f[op]];
    if (lock->history->ret[op] == SHL_NEVER)
        sort->crashed++;
    else
        push(sort, lock->history->ret[op]);
}

static void replay(anonymous *lock, shl_budget *budget)
{
    const shl_history *h = lock->history;
    int64_t next = 0;
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        if (!(rank & 0xffff) && shl_monitor_stops(budget, lock->answer))
            return;
        int is_call = next < h->n && h->call[next] == rank;
        int32_t op = is_call ? (int32_t)next : lock->returner[rank];
        next += is_call;
        if (op == SHL_NONE || h->f[op] > SHL_LOCK_RELEASE)
            continue;
        if (is_call)
            called(lock, op);
        else if (!returns(lock, op))
            return;
    }
}

void shl_check_anonymous_lock(const shl_history *history, int32_t permits, shl_budget *budget,
                              shl_answer *answer)
{
    int64_t bytes = history->n * (int64_t)sizeof(int32_t);
    int64_t rank_bytes = history->ranks * (int64_t)sizeof(int32_t);
    int32_t *returner = shl_monitor_returners(history, budget);
    int32_t *heaps[2] = {shl_alloc(budget, bytes), shl_alloc(budget, bytes)};
    anonymous lock = {.history = history, .returner = returner, .permits = permits,
                      .answer = answer, .sorts = {{.heap = heaps[0], .last = SHL_NONE},
                                                  {.heap = heaps[1], .last = SHL_NONE}}};
    shl_monitor_valid(answer);
    if (returner && heaps[0] && heaps[1])
        replay(&lock, budget);
    else
        shl_monitor_stops(budget, answer);
    shl_free(budget, heaps[0], bytes);
    shl_free(budget, heaps[1], bytes);
    shl_free(budget, returner, rank_bytes);
}

/* --- owners ------------------------------------------------------------------------------------*/

typedef struct {
    int32_t first;    /* the acquire that began the hold */
    int32_t times;    /* how often it is held now */
    int32_t last_ret; /* of what it did last; SHL_NEVER: it crashed */
} owner;

typedef struct {
    int32_t acquire;
    int32_t release; /* or SHL_NONE */
} hold;

typedef struct {
    const shl_history *history;
    int32_t limit;
    const int64_t *tokens;
    const uint8_t *known;
    owner *owners; /* per process */
    hold *holds;   /* per rank: the hold whose acquire returns there */
    shl_answer *answer;
} owned;

static int answered(owned *lock, int32_t verdict, int32_t violation, int32_t op0, int32_t op1,
                    int32_t op2)
{
    int32_t cause = verdict == SHL_UNKNOWN ? SHL_NOT_THIS_MONITOR : SHL_DECIDED;
    *lock->answer = (shl_answer){verdict, cause, violation, {op0, op1, op2, SHL_NONE}};
    return 0;
}

static int one_at_a_time(owned *lock)
{
    const shl_history *h = lock->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] > SHL_LOCK_RELEASE)
            continue;
        owner *process = &lock->owners[h->a[i]];
        if (process->last_ret > h->call[i])
            return answered(lock, SHL_UNKNOWN, SHL_LOCK_PROCESS, (int32_t)i, SHL_NONE, SHL_NONE);
        process->last_ret = h->ret[i];
    }
    return 1;
}

static int acquires(owned *lock, owner *process, int32_t op)
{
    if (lock->history->ret[op] == SHL_NEVER)
        return 1;
    if (process->times && lock->limit && process->times >= lock->limit)
        return answered(lock, SHL_INVALID, SHL_LOCK_REENTERED, op, process->first, SHL_NONE);
    if (!process->times++) {
        process->first = op;
        lock->holds[lock->history->ret[op]] = (hold){op, SHL_NONE};
    }
    return 1;
}

static int releases(owned *lock, owner *process, int32_t op)
{
    int crashed = lock->history->ret[op] == SHL_NEVER;
    if (!process->times)
        return crashed
               || answered(lock, SHL_INVALID, SHL_LOCK_NOT_OWNED, op, SHL_NONE, SHL_NONE);
    if (process->times == 1)
        lock->holds[lock->history->ret[process->first]].release = op;
    process->times--;
    return 1;
}

static int find_holds(owned *lock)
{
    const shl_history *h = lock->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] > SHL_LOCK_RELEASE)
            continue;
        owner *process = &lock->owners[h->a[i]];
        if (!(h->f[i] == SHL_LOCK_ACQUIRE ? acquires(lock, process, (int32_t)i)
                                          : releases(lock, process, (int32_t)i)))
            return 0;
    }
    return 1;
}

static int holds_agree(owned *lock)
{
    const shl_history *h = lock->history;
    hold last = {SHL_NONE, SHL_NONE};
    int32_t until = -1, last_known = SHL_NONE;
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        hold here = lock->holds[rank];
        if (here.acquire == SHL_NONE)
            continue;
        if (until > rank)
            return answered(lock, SHL_INVALID, SHL_LOCK_OVERLAP, last.acquire, here.acquire,
                            last.release);
        until = here.release == SHL_NONE ? SHL_NEVER : h->call[here.release];
        last = here;
        if (!lock->tokens || !lock->known[here.acquire])
            continue;
        if (last_known != SHL_NONE && lock->tokens[here.acquire] <= lock->tokens[last_known])
            return answered(lock, SHL_INVALID, SHL_LOCK_TOKEN, last_known, here.acquire, SHL_NONE);
        last_known = here.acquire;
    }
    return 1;
}

void shl_check_owned_lock(const shl_history *history, int32_t limit, const int64_t *tokens,
                          const uint8_t *known, shl_budget *budget, shl_answer *answer)
{
    int64_t owner_bytes = history->values * (int64_t)sizeof(owner);
    int64_t hold_bytes = history->ranks * (int64_t)sizeof(hold);
    owned lock = {.history = history, .limit = limit, .tokens = tokens, .known = known,
                  .answer = answer};
    lock.owners = shl_alloc(budget, owner_bytes);
    lock.holds = shl_alloc(budget, hold_bytes);
    shl_monitor_valid(answer);
    if (lock.owners && lock.holds && !shl_monitor_stops(budget, answer)) {
        for (int32_t process = 0; process < history->values; process++)
            lock.owners[process] = (owner){SHL_NONE, 0, -1};
        for (int32_t rank = 0; rank < history->ranks; rank++)
            lock.holds[rank] = (hold){SHL_NONE, SHL_NONE};
        if (one_at_a_time(&lock) && find_holds(&lock) && !shl_monitor_stops(budget, answer))
            holds_agree(&lock);
    } else {
        shl_monitor_stops(budget, answer);
    }
    shl_free(budget, lock.holds, hold_bytes);
    shl_free(budget, lock.owners, owner_bytes);
}
