/* Pages in a hash table with open addressing. Nothing is removed singly but by a shrinking file. */
#include "cache.h"

#include "faultfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_SLOTS = 8 };

static size_t least(uint64_t a, uint64_t b)
{
    return (size_t)(a < b ? a : b);
}

static struct page **place_of(const struct cache *cache, uint64_t index)
{
    size_t slot = (size_t)(index * 0x9e3779b97f4a7c15u >> 20) & (cache->slot_count - 1);
    while (cache->slots[slot] && cache->slots[slot]->index != index)
        slot = (slot + 1) & (cache->slot_count - 1);
    return &cache->slots[slot];
}

struct page *cache_page(const struct cache *cache, uint64_t index)
{
    return cache->count ? *place_of(cache, index) : NULL;
}

/* Moves the pages before `end` to a table of `slot_count`; frees the others. */
static void rehash(struct cache *cache, size_t slot_count, uint64_t end)
{
    struct cache fresh = {cache->size, cache->visible, NULL, slot_count, 0};
    fresh.slots = allocate(slot_count * sizeof *fresh.slots);
    for (size_t slot = 0; slot < cache->slot_count; slot++) {
        struct page *page = cache->slots[slot];
        if (page && page->index < end) {
            *place_of(&fresh, page->index) = page;
            fresh.count++;
        } else {
            free(page);
        }
    }
    free(cache->slots);
    *cache = fresh;
}

/* Bytes of the backing file, zeros where it has none or they do not show. */
static int read_backing(int backing, uint64_t visible, uint8_t *into, size_t length,
                        uint64_t offset)
{
    size_t wanted = offset < visible ? least(length, visible - offset) : 0, had = 0;
    while (had < wanted) {
        ssize_t got = pread(backing, into + had, wanted - had, (off_t)(offset + had));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        had += (size_t)got;
    }
    memset(into + had, 0, length - had);
    return 0;
}

int cache_read(const struct cache *cache, int backing, uint8_t *into, size_t length,
               uint64_t offset)
{
    if (!cache->count)
        return read_backing(backing, cache->visible, into, length, offset);
    while (length) {
        uint64_t index = offset / PAGE_BYTES;
        size_t within = offset % PAGE_BYTES, part = least(length, PAGE_BYTES - within);
        struct page *page = cache_page(cache, index);
        if (page) {
            memcpy(into, page->bytes + within, part);
        } else {
            int error = read_backing(backing, cache->visible, into, part, offset);
            if (error)
                return error;
        }
        into += part, offset += part, length -= part;
    }
    return 0;
}

int cache_write(struct cache *cache, int backing, const uint8_t *data, size_t length,
                uint64_t offset)
{
    uint64_t end = offset + length;
    while (length) {
        uint64_t index = offset / PAGE_BYTES;
        size_t within = offset % PAGE_BYTES, part = least(length, PAGE_BYTES - within);
        if (cache->count * 2 >= cache->slot_count)
            rehash(cache, cache->slot_count ? cache->slot_count * 2 : FIRST_SLOTS, UINT64_MAX);
        struct page **place = place_of(cache, index);
        if (!*place) {
            struct page *page = allocate(sizeof *page);
            page->index = index;
            if (part < PAGE_BYTES) {
                int error = read_backing(backing, cache->visible, page->bytes, PAGE_BYTES,
                                         index * PAGE_BYTES);
                if (error) {
                    free(page);
                    return error;
                }
            }
            *place = page;
            cache->count++;
        }
        memcpy((*place)->bytes + within, data, part);
        data += part, offset += part, length -= part;
    }
    if (end > cache->size)
        cache->size = end;
    return 0;
}

void cache_resize(struct cache *cache, uint64_t size)
{
    if (size < cache->size) {
        uint64_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES;
        struct page *last = size % PAGE_BYTES ? cache_page(cache, size / PAGE_BYTES) : NULL;
        if (last)
            memset(last->bytes + size % PAGE_BYTES, 0, PAGE_BYTES - size % PAGE_BYTES);
        if (cache->count)
            rehash(cache, cache->slot_count, pages);
        if (size < cache->visible)
            cache->visible = size;
    }
    cache->size = size;
}

void cache_clear(struct cache *cache, uint64_t size)
{
    for (size_t slot = 0; slot < cache->slot_count; slot++)
        free(cache->slots[slot]);
    free(cache->slots);
    *cache = (struct cache){.size = size, .visible = size};
}
