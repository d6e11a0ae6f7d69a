/* Registers whose observed values were each written once: reads, writes, compare-and-sets. */
#ifndef SHL_MONITOR_REGISTER_H
#define SHL_MONITOR_REGISTER_H

#include "engine.h"

/* shl_history.f. a: the value read or written, or what a compare-and-set expects; b: what it
 * writes. Every operation that counts has them (nil is a value with an id of its own). The column b
 * is NULL if there are no compare-and-sets at all. */
enum {
    SHL_REGISTER_READ = 0,
    SHL_REGISTER_WRITE = 1,
    SHL_REGISTER_CAS = 2,
    SHL_REGISTER_REFUSED = 3, /* a compare-and-set that failed: the register did not hold a */
    SHL_REGISTER_DROPPED = 4, /* nothing that counts; any number above is the same */
};

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_REGISTER_FRESH = 1,  /* who observed a value that nobody wrote */
    SHL_REGISTER_FUTURE = 2, /* who observed a value; its writer, which was called later */
    SHL_REGISTER_TWICE = 3,  /* two compare-and-sets that replaced one value */
    SHL_REGISTER_CYCLE = 4,  /* up to four compare-and-sets, each writing what the next expects */
    /* An operation that returned, one called later, and the values of a chain of compare-and-sets
     * that say that the later came first. */
    SHL_REGISTER_CHAIN = 5,
    /* Values A and B (or chains of them): an operation of A that returned (SHL_NONE: A is
     * the initial value) before one of B was called; one of B that returned before one of A was
     * called. */
    SHL_REGISTER_STALE = 6,
    /* A failed compare-and-set; an operation that returned before it (SHL_NONE: it is the initial
     * value) and one called after it, which together say that the register held the expected
     * value all the while. */
    SHL_REGISTER_HELD = 7,
    /* SHL_NOT_THIS_MONITOR: */
    SHL_REGISTER_CONTESTED = 8, /* two writers of one value that was observed */
    SHL_REGISTER_OPEN = 9,      /* a failed compare-and-set that only a search weighs */
};

/* initial: the id of the value that the register holds at first; SHL_NONE: no operation has it. */
void shl_check_register(const shl_history *history, int32_t initial, shl_budget *budget,
                        shl_answer *answer);

#endif
