/* A history as the searches walk it: return by return, with whatever may take effect before
 * each. */
#ifndef SHL_INTERNAL_PROBLEM_H
#define SHL_INTERNAL_PROBLEM_H

#include "internal_table.h"

/* Return e is the e-th completion in time. Operations are ordered by call, so those called before
 * return e are the first called[e] ones. A completed operation has a slot while it is pending; a
 * crashed one belongs for ever to the class of its kind: crashed operations of one kind are the
 * same thing, used in the order of their calls. */
enum { STATES_MOST = 256 };

typedef struct {
    const shl_operations *ops;
    shl_table *table;
    shl_budget *budget;
    int32_t returns;
    int32_t *order;  /* [returns] the operation that returns */
    int32_t *called; /* [returns] */
    int32_t *place;  /* [n] slot of a completed operation; class of a crashed one */
    int32_t slots;
    int32_t classes;
    int32_t *class_of;    /* [kinds] -1: no crashed operation is of that kind */
    int32_t *class_kind;  /* [classes] */
    int32_t *class_start; /* [classes + 1] into members */
    int32_t *members;     /* crashed operations by class, in the order of their calls */
    int32_t crashed;
    uint64_t *weaker; /* [classes] see problem_relate_classes; NULL: nothing is known */
    int32_t state_count; /* of `states`; 0: not asked yet; -1: too many to list */
    int32_t states[STATES_MOST];
} problem;

/* 0: no memory (budget->stopped says so). */
int32_t problem_init(problem *p, const shl_operations *ops, shl_table *table, shl_budget *budget);
void problem_free(problem *p);

static inline int problem_is_crashed(const problem *p, int32_t op)
{
    return p->ops->ret[op] == SHL_NEVER;
}

/* A walker stands before return e and knows who is pending. */
typedef struct {
    int32_t e;
    int32_t *slot_op;   /* [slots] the operation pending there, or -1 */
    int32_t *available; /* [classes] crashed operations called so far */
} walker;

int32_t walker_init(walker *w, const problem *p);
void walker_free(walker *w, const problem *p);
void walker_copy(walker *to, const walker *from, const problem *p);

/* Finds, when the states are listed and the classes are at most 64, which classes can only do what
 * another one can do, too: their bits stand in the `weaker` of that one. 0: the model failed or the
 * budget ended.
 *
 * Where both lead to the same state the weaker one goes first. For should it go later, or be
 * pending and go later, then the two can be exchanged; should it not go at all, it can replace the
 * other. (Crashed operations may take effect at any later time, or never; so what a weaker one does
 * without changing the state the other one need not be able to do.) */
int32_t problem_relate_classes(problem *p);

/* Lists the states that the kinds of this history reach from the initial one, if they are few. 0:
 * the model failed or the budget ended. */
int32_t problem_list_states(problem *p);

#endif
