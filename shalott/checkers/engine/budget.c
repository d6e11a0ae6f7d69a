/* Limits that hold: one clock, one counter of bytes, one flag, asked by every part of the
 * engine. */
#define _DEFAULT_SOURCE /* madvise */
#include "engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int64_t shl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int32_t stop(shl_budget *budget, int32_t why)
{
    int32_t running = 0;
    __atomic_compare_exchange_n(&budget->stopped, &running, why, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return __atomic_load_n(&budget->stopped, __ATOMIC_RELAXED);
}

int32_t shl_check_budget(shl_budget *budget)
{
    int32_t stopped = __atomic_load_n(&budget->stopped, __ATOMIC_RELAXED);
    if (stopped)
        return stopped;
    if (__atomic_load_n(&budget->cancel, __ATOMIC_RELAXED))
        return stop(budget, SHL_CANCELLED);
    if (budget->within && (stopped = shl_check_budget(budget->within)))
        return stop(budget, stopped);
    if (budget->deadline_ns && shl_now_ns() >= budget->deadline_ns)
        return stop(budget, SHL_TIME);
    return 0;
}

static void give_back(shl_budget *budget, int64_t bytes)
{
    for (; budget; budget = budget->within)
        __atomic_sub_fetch(&budget->bytes, bytes, __ATOMIC_RELAXED);
}

/* Takes the bytes before they are asked for, so that two threads can't both take the last ones. */
static int take_from(shl_budget *budget, int64_t bytes)
{
    int64_t held = __atomic_add_fetch(&budget->bytes, bytes, __ATOMIC_RELAXED);
    if ((budget->memory_limit && held > budget->memory_limit) ||
        (budget->within && !take_from(budget->within, bytes))) {
        __atomic_sub_fetch(&budget->bytes, bytes, __ATOMIC_RELAXED);
        return 0;
    }
    int64_t peak = __atomic_load_n(&budget->bytes_peak, __ATOMIC_RELAXED);
    while (held > peak && !__atomic_compare_exchange_n(&budget->bytes_peak, &peak, held, 1,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return 1;
}

static int take(shl_budget *budget, int64_t bytes)
{
    if (take_from(budget, bytes))
        return 1;
    stop(budget, SHL_MEMORY);
    return 0;
}

int32_t shl_charge(shl_budget *budget, int64_t bytes)
{
    return take(budget, bytes);
}

/* malloc(0) may answer NULL, which here means refused: so never ask for nothing. */
static size_t at_least_one(int64_t bytes)
{
    return bytes > 0 ? (size_t)bytes : 1;
}

static void *taken(shl_budget *budget, void *memory, int64_t bytes)
{
    if (!memory) {
        give_back(budget, bytes);
        stop(budget, SHL_MEMORY);
    }
    return memory;
}

void *shl_alloc(shl_budget *budget, int64_t bytes)
{
    return take(budget, bytes) ? taken(budget, malloc(at_least_one(bytes)), bytes) : NULL;
}

void *shl_alloc_zeroed(shl_budget *budget, int64_t bytes)
{
    return take(budget, bytes) ? taken(budget, calloc(1, at_least_one(bytes)), bytes) : NULL;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones decline, and nothing is lost */
#endif

enum { PAGE = 4096, LARGE = 256 * PAGE };

/* A fault for each page costs as much again as the page. */
static void *resident(void *memory, int64_t bytes)
{
    uintptr_t begin = ((uintptr_t)memory + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + (uintptr_t)bytes) & ~(uintptr_t)(PAGE - 1);
    if (memory && bytes >= LARGE)
        (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
    return memory;
}

void *shl_alloc_used(shl_budget *budget, int64_t bytes)
{
    return resident(shl_alloc(budget, bytes), bytes);
}

void *shl_alloc_used_zeroed(shl_budget *budget, int64_t bytes)
{
    return resident(shl_alloc_zeroed(budget, bytes), bytes);
}

void *shl_resize(shl_budget *budget, void *memory, int64_t old_bytes, int64_t new_bytes)
{
    int64_t more = new_bytes - old_bytes;
    if (!take(budget, more))
        return NULL;
    return taken(budget, realloc(memory, at_least_one(new_bytes)), more);
}

void shl_free(shl_budget *budget, void *memory, int64_t bytes)
{
    if (!memory)
        return;
    free(memory);
    give_back(budget, bytes);
}
