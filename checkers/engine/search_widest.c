/* The searches for up to 4096 operations pending at once. */
#include <string.h>

#define WORDS 64
#include "internal_mask.h"

#include "internal_depth.h"
#include "internal_passes.h"

const searches searches_64 = {
    .depth_new = depth_new,
    .depth_run = depth_run,
    .depth_reached = depth_reached,
    .depth_configurations = depth_configurations,
    .depth_free = depth_free,
    .window = window,
    .layers_new = layers_new,
    .layers_run = layers_run,
    .layers_stuck = layers_stuck,
    .layers_exact = layers_exact,
    .layers_configurations = layers_configurations,
    .layers_free = layers_free,
    .slots_max = WORDS * 64,
};
