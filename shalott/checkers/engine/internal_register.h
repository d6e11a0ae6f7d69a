/* What the parts of the register monitor share: monitor_register.c (compare-and-sets, the theory),
 * monitor_register_plain.c (reads and writes only), monitor_register_refused.c (what failed). */
#ifndef SHL_INTERNAL_REGISTER_H
#define SHL_INTERNAL_REGISTER_H

#include "monitor_register.h"

enum { NOBODY = -1, INITIALLY = -2 };

typedef struct {
    int32_t writer;     /* an operation, NOBODY, or INITIALLY */
    int32_t consumer;   /* the compare-and-set that replaced it, or NOBODY */
    int32_t first_read; /* the first rank at which a read of it returned, or SHL_NEVER */
    int32_t last_read;  /* the last rank at which one was called, or -1 */
    uint8_t contested;  /* it has several writers */
    uint8_t consumed_twice;
    uint8_t kept;    /* its writer is a crashed compare-and-set, and happened */
    uint8_t refused; /* a compare-and-set that expected it failed */
} value_facts;

/* A cluster or chain: its first return and its last call. */
typedef struct {
    int32_t f, s;
} zone;

typedef struct {
    const shl_history *history;
    int32_t initial;
    shl_budget *budget;
    shl_answer *answer;
    value_facts *values;
    int32_t *s_of;  /* per rank: the s of the chain whose f it is, or SHL_NONE */
    int64_t walked; /* compare-and-sets met on chains */
    int has_cas, has_refused;
} register_monitor;

/* Both give the monitor's answer and return 0, so that whoever asked can return it too. */
int shl_register_invalid(register_monitor *monitor, int32_t violation, int32_t op0, int32_t op1,
                         int32_t op2, int32_t op3);
int shl_register_unknown(register_monitor *monitor, int32_t cause, int32_t why, int32_t op0,
                         int32_t op1);

/* False when the budget is spent: the answer says so. */
int shl_register_may_go_on(register_monitor *monitor);

/* The operation of an event, or SHL_NONE. */
int32_t shl_called_at(const shl_history *history, int32_t rank);
int32_t shl_returned_at(const shl_history *history, int32_t rank);

/* A read returned it, or a compare-and-set replaced it. */
int shl_register_observed(const value_facts *facts);

/* Follows a chain from `value`, whose writer was called and returned at these ranks; 0: it
 * contradicts itself, and the answer says how. */
int shl_register_walk(register_monitor *monitor, int32_t value, int32_t call, int32_t ret,
                      zone *found);

/* Whether the zones in monitor->s_of and the one of the initial value agree; if not, the answer. */
int shl_register_sweep(register_monitor *monitor, zone initially);

/* The whole check, where there are no compare-and-sets. */
void shl_register_plain(register_monitor *monitor);

void shl_register_gather_refused(register_monitor *monitor);
/* Given that all else is linearizable: 1 if it is with the failed compare-and-sets too. */
int shl_register_refused_agree(register_monitor *monitor);

#endif
