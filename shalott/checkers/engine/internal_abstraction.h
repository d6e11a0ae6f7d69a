/* A history seen through one question: is the object in a state that this operation allows?
 *
 * The states of the model fall into two blocks, those in which the operation can take effect
 * and the others. What each kind may do to the blocks, over all the states in them, makes a
 * model of two states that allows whatever the real one does (existential abstraction: Clarke,
 * Grumberg & Long, 1994), so a history that is not linearizable for it is not linearizable.
 * Few kinds are left, most of them pure, and operations of one kind are interchangeable: a
 * search that drowned in what many pending operations might do to many states has little left
 * to try. */
#ifndef SHL_INTERNAL_ABSTRACTION_H
#define SHL_INTERNAL_ABSTRACTION_H

#include "internal_problem.h"

typedef struct {
    problem p; /* the same operations; kinds and table are the abstraction's */
    shl_operations ops;
    int32_t *kind;
    int32_t about; /* the kind of the operation that was asked about; -1: nothing is built */
} abstraction;

/* Builds the abstraction for an operation of p, whose states must be listed; keeps the one
 * that is there if it is the same. 1: built; 0: it would tell nothing, or cost too much; -1:
 * the budget ended or the model failed. */
int abstraction_build(abstraction *a, const problem *p, int32_t op);
void abstraction_free(abstraction *a, shl_budget *budget);

#endif
