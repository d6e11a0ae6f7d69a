/* Fressian as Jepsen writes histories, to EDN: the common kinds of values, quickly.
 *
 * What is rare (large integers, ratios, dates) or malformed is left to another reader, who reads
 * all of it again and knows how to complain. */
#ifndef SHL_FRESSIAN_H
#define SHL_FRESSIAN_H

#include "engine.h"

typedef struct shl_fressian shl_fressian;

/* Values one behind the other, bytes[0 .. length), which must stay. NULL: no memory. */
shl_fressian *shl_fressian_new(const char *bytes, int64_t length, shl_budget *budget);
void shl_fressian_free(shl_fressian *reader);
/* The next values as EDN, one a line, some ten thousand bytes of them, until the next call;
 * *values: how many. None: at the end, or in front of what is left to another reader. NULL: no
 * memory. */
const char *shl_fressian_print(shl_fressian *reader, int64_t *length, int64_t *values);
/* Whether every value was printed. */
int32_t shl_fressian_ended(const shl_fressian *reader);

#endif
