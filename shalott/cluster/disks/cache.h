/* A file's bytes as they are seen: the pages that were changed, over a backing file. */
#ifndef FAULTFS_CACHE_H
#define FAULTFS_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { PAGE_BYTES = 4096 };

struct page {
    uint64_t index;
    uint8_t bytes[PAGE_BYTES]; /* zero beyond the file's end */
};

struct cache {
    uint64_t size;
    uint64_t visible; /* so much of the backing file shows where there is no page */
    struct page **slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
};

/* Both return 0 or a negative errno of the backing file; a read has no more than the size. */
int cache_read(const struct cache *cache, int backing, uint8_t *into, size_t length,
               uint64_t offset);
int cache_write(struct cache *cache, int backing, const uint8_t *data, size_t length,
                uint64_t offset);
void cache_resize(struct cache *cache, uint64_t size);
struct page *cache_page(const struct cache *cache, uint64_t index);
/* Forgets all pages: the backing file, of that size, is all there is. */
void cache_clear(struct cache *cache, uint64_t size);

#endif
