/* Draws that depend on a seed and on what they are for, and on nothing else. */
#ifndef FAULTFS_RANDOM_H
#define FAULTFS_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* A stream of its own for each seed, purpose, and name. */
struct random random_for(uint64_t seed, const char *purpose, const char *name);
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t bound); /* bound > 0 */
double random_unit(struct random *random);                    /* in [0, 1) */

#endif
