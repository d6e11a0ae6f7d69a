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
} view;

static inline void view_call(view *v, const problem *p, int32_t op)
{
    int32_t place = p->place[op];
    if (problem_is_crashed(p, op)) {
        if (place >= 0)
            v->at.available[place]++;
        return;
    }
    v->at.slot_op[place] = op;
    mask_set(&v->live, place);
    if (p->table->pure[p->ops->kind[op]])
        mask_set(&v->pure, place);
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
    mask_clear(&v->live, place);
    mask_clear(&v->pure, place);
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
