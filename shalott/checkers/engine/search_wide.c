/* The searches for up to 512 operations pending at once. */
#define WORDS 8
#include "internal_passes.h"
