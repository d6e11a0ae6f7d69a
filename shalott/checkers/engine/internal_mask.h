/* A set of slots, WORDS * 64 wide. Included once for each width (search_narrow.c, search_wide.c):
 * nearly every history needs one word, and then a mask is a register. */
#ifndef SHL_INTERNAL_MASK_H
#define SHL_INTERNAL_MASK_H

#include "internal_search.h"

#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SIZED(name) JOIN(name##_, WORDS)

typedef struct {
    uint64_t w[WORDS];
} mask;

static inline int mask_has(const mask *m, int32_t slot)
{
    return (int)(m->w[slot >> 6] >> (slot & 63) & 1);
}

static inline void mask_set(mask *m, int32_t slot)
{
    m->w[slot >> 6] |= (uint64_t)1 << (slot & 63);
}

static inline void mask_clear(mask *m, int32_t slot)
{
    m->w[slot >> 6] &= ~((uint64_t)1 << (slot & 63));
}

static inline mask mask_or(mask a, const mask *b)
{
    for (int i = 0; i < WORDS; i++)
        a.w[i] |= b->w[i];
    return a;
}

static inline mask mask_minus(mask a, const mask *b)
{
    for (int i = 0; i < WORDS; i++)
        a.w[i] &= ~b->w[i];
    return a;
}

static inline int mask_equal(const mask *a, const mask *b)
{
    uint64_t differ = 0;
    for (int i = 0; i < WORDS; i++)
        differ |= a->w[i] ^ b->w[i];
    return differ == 0;
}

/* Is a, seen through `through`, within b? */
static inline int mask_within(const mask *a, const mask *b, const mask *through)
{
    uint64_t outside = 0;
    for (int i = 0; i < WORDS; i++)
        outside |= a->w[i] & through->w[i] & ~b->w[i];
    return outside == 0;
}

static inline uint64_t mask_hash(const mask *m, uint64_t hash)
{
    for (int i = 0; i < WORDS; i++) {
        hash ^= m->w[i];
        hash *= 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

/* for each set bit: FOR_EACH(slot, m) statement */
#define FOR_EACH(slot, m)                                                                          \
    for (int word_ = 0; word_ < WORDS; word_++)                                                    \
        for (uint64_t bits_ = (m).w[word_];                                                        \
             bits_ && (slot = word_ * 64 + __builtin_ctzll(bits_), 1); bits_ &= bits_ - 1)

/* Who is pending before return e, as masks over a walker's slots. */
typedef struct {
    walker at;
    mask live;
    mask pure; /* those whose kind never changes a state */
    mask resets; /* those that lead to one state from every other; none while that is not known */
} view;

static inline int is_reset(const problem *p, int32_t op)
{
    return foreseen_reset(p, op) != NO_STATE;
}

static inline void view_call(view *v, const problem *p, int32_t op)
{
    int32_t place = p->place[op];
    if (problem_is_crashed(p, op)) {
        if (place >= 0)
            v->at.available[place]++;
        return;
    }
    v->at.slot_op[place] = op;
    walker_passes(&v->at, p, op);
    mask_set(&v->live, place);
    if (p->table->pure[p->ops->kind[op]])
        mask_set(&v->pure, place);
    if (is_reset(p, op))
        mask_set(&v->resets, place);
}

static inline void view_uncall(view *v, const problem *p, int32_t op)
{
    int32_t place = p->place[op];
    if (problem_is_crashed(p, op)) {
        if (place >= 0)
            v->at.available[place]--;
        return;
    }
    v->at.slot_op[place] = -1;
    walker_passes_back(&v->at, p, op);
    mask_clear(&v->live, place);
    mask_clear(&v->pure, place);
    mask_clear(&v->resets, place);
}

/* From before return e to before return e + 1: e's operation leaves, later calls come. */
static inline void view_forward(view *v, const problem *p)
{
    int32_t e = v->at.e, from = 0;
    if (e >= 0) {
        int32_t slot = p->place[p->order[e]];
        v->at.slot_op[slot] = -1;
        mask_clear(&v->live, slot);
        mask_clear(&v->pure, slot);
        mask_clear(&v->resets, slot);
        from = p->called[e];
    }
    v->at.e = ++e;
    int32_t until = e < p->returns ? p->called[e] : from;
    for (int32_t op = from; op < until; op++)
        view_call(v, p, op);
}

static inline void view_backward(view *v, const problem *p)
{
    int32_t e = v->at.e--;
    if (e < p->returns)
        for (int32_t op = p->called[e] - 1; op >= p->called[e - 1]; op--)
            view_uncall(v, p, op);
    int32_t op = p->order[e - 1], slot = p->place[op];
    v->at.slot_op[slot] = op;
    mask_set(&v->live, slot);
    if (p->table->pure[p->ops->kind[op]])
        mask_set(&v->pure, slot);
    if (is_reset(p, op))
        mask_set(&v->resets, slot);
}

/* The view was made before anything was foreseen. 0: no memory. */
static inline int32_t view_foresee(view *v, const problem *p)
{
    int32_t slot;
    FOR_EACH(slot, v->live)
        if (is_reset(p, v->at.slot_op[slot]))
            mask_set(&v->resets, slot);
    return walker_foresee(&v->at, p);
}

/* When, at the latest, the object will have been in each state, and a reset have taken effect. */
typedef struct {
    int32_t reset;
    int32_t state[STATES_MOST];
} certain;

static inline void foresee_calls(const view *v, const problem *p, certain *by)
{
    const foresight *seen = p->seen;
    by->reset = seen->soonest[p->called[v->at.e]];
    for (int32_t state = 0; state < seen->states; state++) {
        int32_t first = v->at.ahead[state];
        by->state[state] = first < 0 ? SHL_NEVER : seen->returns[first];
    }
}

/* What is pending and must still take effect. */
static inline void foresee_pending(const view *v, const problem *p, const mask *left, certain *by)
{
    const foresight *seen = p->seen;
    int32_t slot;
    FOR_EACH(slot, *left)
    {
        int32_t op = v->at.slot_op[slot], kind = p->ops->kind[op], ret = p->ops->ret[op];
        if (seen->resets[kind] != NO_STATE && ret < by->reset)
            by->reset = ret;
        for (int32_t which = 0; which < PASSED; which++) {
            int32_t state = seen->passes[kind * PASSED + which];
            if (state != NO_STATE && ret < by->state[state])
                by->state[state] = ret;
        }
    }
}

/* Can a pending operation that changes no state, or a reset, take effect later, whatever else
 * does? */
static inline int may_wait(const problem *p, int32_t op, const certain *by)
{
    const foresight *seen = p->seen;
    int32_t kind = p->ops->kind[op], ret = p->ops->ret[op];
    for (int32_t which = 0; which < PASSED && seen->resets[kind] != NO_STATE; which++) {
        int32_t state = seen->passes[kind * PASSED + which];
        if (by->reset < ret || (state != NO_STATE && by->state[state] < ret))
            return 1;
    }
    for (int32_t word = 0; word < seen->words; word++)
        for (uint64_t bits = seen->allows[(int64_t)kind * seen->words + word]; bits;
             bits &= bits - 1)
            if (by->state[word * 64 + __builtin_ctzll(bits)] < ret)
                return 1;
    return 0;
}

/* Of resets and of operations that change no state, those that are done and must be done in another
 * configuration that can do all that this one can. `left`: all that are not done, and must be. */
static inline mask needs(const view *v, const problem *p, const mask *done, const mask *left,
                         int32_t state)
{
    mask found = mask_or(v->resets, &v->pure), open = mask_minus(found, done);
    certain by;
    int32_t slot;
    found = mask_minus(found, &open);
    if (!p->seen)
        return found;
    foresee_calls(v, p, &by);
    foresee_pending(v, p, left, &by);
    mask have = found;
    FOR_EACH(slot, have)
    {
        int32_t op = v->at.slot_op[slot];
        if (foreseen_reset(p, op) == state || may_wait(p, op, &by))
            mask_clear(&found, slot);
    }
    return found;
}

static inline int32_t view_init(view *v, const problem *p)
{
    memset(v, 0, sizeof *v);
    return walker_init(&v->at, p);
}

static inline void view_copy(view *to, const view *from, const problem *p)
{
    to->live = from->live;
    to->pure = from->pure;
    to->resets = from->resets;
    walker_copy(&to->at, &from->at, p);
}

/* Pending reads and the like that are legal in this state take effect now: that can't hurt, since
 * they change no state, and saves every configuration in which they have not. (Never an operation
 * that only happens to change nothing here: a later state may need it.) Answers -1 if the model
 * failed. */
static inline int settle_pure(const view *v, const problem *p, mask *m, int32_t state)
{
    mask waiting = mask_minus(v->pure, m);
    int32_t slot;
    FOR_EACH(slot, waiting)
    {
        int32_t next = shl_next(p->table, state, p->ops->kind[v->at.slot_op[slot]]);
        if (next == SHL_ASK_FAILED)
            return -1;
        if (next == state)
            mask_set(m, slot);
    }
    return 0;
}

#endif
