/* All searches in one width: included by a file that defines WORDS, of 64 slots each. */
#include <string.h>

#include "internal_mask.h"

#include "internal_depth.h"
#include "internal_passes.h"

const searches SIZED(searches) = {
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
