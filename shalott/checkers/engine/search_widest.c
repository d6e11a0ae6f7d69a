/* The searches for up to 4,096 operations pending at once. */
#define WORDS 64
#include "internal_passes.h"
