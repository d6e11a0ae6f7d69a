/* The searches for up to 64 operations pending at once. */
#define WORDS 1
#include "internal_passes.h"
