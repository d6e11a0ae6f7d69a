/* Faults in force: slow, full, failing, and short calls; and syncs that are counted and awaited. */
#include "faultfs.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FULL_SLACK_BYTES = 4096, SLICE_MS = 20 };

static struct timespec after_ms(double ms)
{
    struct timespec when;
    clock_gettime(CLOCK_MONOTONIC, &when);
    int64_t nanoseconds = when.tv_nsec + (int64_t)(ms * 1e6);
    when.tv_sec += nanoseconds / 1000000000;
    when.tv_nsec = nanoseconds % 1000000000;
    return when;
}

static bool is_before(const struct timespec *left, const struct timespec *right)
{
    return left->tv_sec != right->tv_sec ? left->tv_sec < right->tv_sec
                                         : left->tv_nsec < right->tv_nsec;
}

/* A thread that is killed waits for its call's answer all the same: it must not wait for long. */
static bool is_killed(uint32_t pid)
{
    char path[64], line[256];
    unsigned long long pending;
    bool killed = false;
    if (!pid)
        return false; /* of the kernel, or of a namespace that is not ours */
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    while (!killed && fgets(line, sizeof line, file))
        if (sscanf(line, "SigPnd: %llx", &pending) == 1 ||
            sscanf(line, "ShdPnd: %llx", &pending) == 1)
            killed = pending >> (SIGKILL - 1) & 1;
    fclose(file);
    return killed;
}

void faults_delay(enum call call, uint32_t pid)
{
    pthread_mutex_lock(&fs.lock);
    double ms = call == CALL_FREE ? 0 : fs.faults.slow_ms;
    if (call == CALL_SYNC)
        ms += fs.faults.slow_sync_ms;
    uint32_t life = fs.life;
    fs.counters.delayed += ms > 0;
    pthread_mutex_unlock(&fs.lock);
    if (ms <= 0)
        return;
    struct timespec end = after_ms(ms), slice;
    do {
        slice = after_ms(SLICE_MS);
        bool last = !is_before(&slice, &end);
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, last ? &end : &slice, NULL);
        if (last)
            return;
    } while (life == fs.life && !is_killed(pid));
}

bool faults_fail(enum call call)
{
    struct fault_setting *faults = &fs.faults;
    bool fails = (call == CALL_SYNC && faults->fail_sync) ||
                 (call == CALL_READ && faults->fail_read) ||
                 (call == CALL_WRITE && faults->fail_write);
    if (!fails)
        return false;
    fs.counters.failed++;
    if (faults->fail_count > 0 && --faults->fail_count == 0)
        faults->fail_sync = faults->fail_read = faults->fail_write = false;
    return true;
}

/* How much of a transfer is made; never nothing of something. */
size_t faults_shortened(size_t size)
{
    if (!fs.faults.shortened || size < 2 || random_unit(&fs.shorts) >= 0.5)
        return size;
    fs.counters.shortened++;
    return 1 + (size_t)random_below(&fs.shorts, size - 1);
}

/* `slack_bytes`: what still fits when the disk is made full; negative: a few, as the seed has it */
void faults_set(const struct fault_setting *wanted, uint64_t seed, int64_t slack_bytes)
{
    if (wanted->full && !fs.faults.full) {
        struct random random = random_for(seed, "full", "");
        uint64_t drawn = random_below(&random, FULL_SLACK_BYTES);
        fs.full_at_bytes = fs.used_bytes + (slack_bytes < 0 ? drawn : (uint64_t)slack_bytes);
    }
    if (wanted->shortened && !fs.faults.shortened)
        fs.shorts = random_for(seed, "short", "");
    fs.faults = *wanted;
}

uint64_t faults_count_sync(void)
{
    pthread_cond_broadcast(&fs.synced);
    return ++fs.counters.syncs;
}

/* Keeps the caller of that sync waiting while a hold is on it. */
void faults_hold(uint64_t syncs, uint32_t pid)
{
    pthread_mutex_lock(&fs.lock);
    uint32_t life = fs.life;
    while (fs.hold_at_syncs && fs.hold_at_syncs <= syncs && life == fs.life && !is_killed(pid)) {
        struct timespec slice = after_ms(SLICE_MS);
        pthread_cond_timedwait(&fs.synced, &fs.lock, &slice);
    }
    pthread_mutex_unlock(&fs.lock);
}

/* Whether that many more syncs were made before the time was up. With `hold`, the last of them is
 * not answered before it is released, or its caller killed. The lock is held. */
bool faults_await_syncs(uint64_t count, bool hold, double timeout_ms)
{
    struct timespec end = after_ms(timeout_ms);
    uint64_t wanted = fs.counters.syncs + count;
    int error = 0;
    if (hold)
        fs.hold_at_syncs = wanted;
    while (fs.counters.syncs < wanted && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&fs.synced, &fs.lock, &end);
    bool made = fs.counters.syncs >= wanted;
    if (hold && !made)
        fs.hold_at_syncs = 0;
    return made;
}

/* -- Bits of stored bytes flip. The harness decides how many, and in which files:
 * cluster/corruption.py. */
struct candidates {
    struct inode **inodes;
    uint64_t *sizes;
    size_t count;
    uint64_t total;
    const char *pattern;
    char *const *paths; /* NULL: all */
    int path_count;
};

static bool is_listed(const struct candidates *candidates, const char *path)
{
    if (!candidates->paths)
        return true;
    for (int i = 0; i < candidates->path_count; i++)
        if (strcmp(candidates->paths[i], path) == 0)
            return true;
    return false;
}

static void consider(const char *path, struct inode *inode, void *context)
{
    struct candidates *candidates = context;
    struct stat found;
    if (!S_ISREG(inode->mode) || tree_is_evidence(path) ||
        fnmatch(candidates->pattern, path, 0) != 0 || !is_listed(candidates, path) ||
        !tree_is_durable(path) || inode_descriptor(inode) < 0 ||
        fstat(inode->descriptor, &found) != 0 || found.st_size == 0)
        return;
    size_t bytes = (candidates->count + 1) * sizeof(uint64_t);
    candidates->inodes = realloc(candidates->inodes, bytes);
    candidates->sizes = realloc(candidates->sizes, bytes);
    if (!candidates->inodes || !candidates->sizes)
        abort();
    candidates->inodes[candidates->count] = inode;
    candidates->sizes[candidates->count++] = (uint64_t)found.st_size;
    candidates->total += (uint64_t)found.st_size;
}

/* Flips a bit in each of `count` durable bytes; returns how many. Every byte is equally likely. */
uint64_t rot(uint64_t count, uint64_t seed, const char *pattern, char *const *paths,
             int path_count)
{
    struct random draws = random_for(seed, "rot", "");
    struct candidates candidates = {.pattern = pattern, .paths = paths, .path_count = path_count};
    uint64_t flipped = 0;
    tree_walk(consider, &candidates);
    for (uint64_t i = 0; i < count && candidates.count; i++) {
        uint64_t position = random_below(&draws, candidates.total);
        size_t file = 0;
        while (position >= candidates.sizes[file])
            position -= candidates.sizes[file++];
        int bit = (int)random_below(&draws, 8);
        flipped += file_flip(candidates.inodes[file], position, bit) == 0;
    }
    free(candidates.inodes);
    free(candidates.sizes);
    return flipped;
}
