/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), keyed by FNV-1a of what a draw is for. */
#include "random.h"

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

struct random random_for(uint64_t seed, const char *purpose, const char *name)
{
    struct random random = {seed};
    random.state = mix(mix(random_next(&random) ^ 0xcbf29ce484222325u, purpose), name);
    return random;
}

uint64_t random_next(struct random *random)
{
    uint64_t word = random->state += 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

uint64_t random_below(struct random *random, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)random_next(random) * bound) >> 64);
}

double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}
