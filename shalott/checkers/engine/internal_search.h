/* What the three searches say to the one that directs them (search.c). */
#ifndef SHL_INTERNAL_SEARCH_H
#define SHL_INTERNAL_SEARCH_H

#include "internal_problem.h"
#include "internal_used.h"

/* How a search paused or ended. */
enum {
    GOES_ON = 0,    /* its allowance of steps is used up */
    WITNESS = 1,    /* a linearization was found */
    NO_WITNESS = 2, /* there is none */
    UNCLEAR = 3,    /* this search can't tell: a window too wide, or everything survived it */
    STOPPED = 4,    /* the budget, or the model */
};

/* The searches, in one width. An opaque pointer is NULL when there was no memory. */
typedef struct {
    /* Depth first. reached: the first return that no configuration has passed yet. */
    void *(*depth_new)(const problem *p);
    int (*depth_run)(void *depth, int64_t steps);
    int32_t (*depth_reached)(const void *depth);
    int64_t (*depth_configurations)(const void *depth);
    void (*depth_free)(void *depth);
    /* From any state before return `from`, to beyond return `to`. stuck: where none was left. */
    int (*window)(const problem *p, int32_t from, int32_t to, int64_t steps, int32_t *stuck);
    /* All layers. stuck as above; exact: 1 if no crashed class was left unlimited. */
    void *(*layers_new)(const problem *p);
    int (*layers_run)(void *layers, int64_t steps);
    int32_t (*layers_stuck)(const void *layers);
    int (*layers_exact)(const void *layers);
    int64_t (*layers_configurations)(const void *layers);
    void (*layers_free)(void *layers);
    int32_t slots_max;
} searches;

extern const searches searches_1;  /* up to 64 pending at once */
extern const searches searches_8;  /* up to 512 */
extern const searches searches_64; /* up to 4096 */

#endif
