/* What a power loss leaves of files and names; cluster/sim/disk/page_cache.py says why it may.
 *
 * Each unsynced sector is found as it was at some moment of its own; a later write to a sector
 * never survives without the earlier ones; a file that grew may be too short, or hold zeros; a
 * truncation that is lost takes all that came after it in the file. */
#include "faultfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOST_SHOWN = 200 };

/* The file while its changes are played again: `seen`, the cache as it was after each; the backing
 * file becomes what is found. */
struct platter {
    struct cache seen;
    int backing;
    uint64_t size;
};

static void put_sectors(struct platter *platter, const struct change *change, bool certain,
                        double kept, struct random *draws)
{
    uint64_t end = change->offset + change->length;
    for (uint64_t start = change->offset - change->offset % SECTOR_BYTES; start < end;
         start += SECTOR_BYTES) {
        if (!certain && random_unit(draws) >= kept)
            continue;
        uint64_t stop = start + SECTOR_BYTES;
        size_t length = (size_t)((stop < platter->seen.size ? stop : platter->seen.size) - start);
        const struct page *page = cache_page(&platter->seen, start / PAGE_BYTES);
        if (pwrite(platter->backing, page->bytes + start % PAGE_BYTES, length, (off_t)start) < 0)
            return; /* as if the power had gone before */
    }
}

/* All of the growth, or up to some sector. */
static uint64_t grown_size(uint64_t before, uint64_t after, struct random *draws)
{
    if (random_unit(draws) < 0.5)
        return after;
    uint64_t boundary = before + random_below(draws, after - before);
    boundary -= boundary % SECTOR_BYTES;
    return boundary > before ? boundary : before;
}

/* The first `whole` of `count` changes are found for sure, each sector, size, and truncation of the
 * others with probability `kept`. */
static void play(struct platter *platter, const struct change *change, uint64_t count,
                 uint64_t whole, double kept, struct random *draws)
{
    for (uint64_t number = 0; number < count; number++, change = change->next) {
        bool certain = number < whole;
        uint64_t before = platter->seen.size;
        if (change->truncates) {
            if (!certain && random_unit(draws) >= kept)
                break;
            cache_resize(&platter->seen, change->offset);
            if (ftruncate(platter->backing, (off_t)change->offset) != 0)
                break;
            platter->size = change->offset;
            continue;
        }
        if (cache_write(&platter->seen, platter->backing, change->bytes, change->length,
                        change->offset) != 0)
            break;
        put_sectors(platter, change, certain, kept, draws);
        if (platter->seen.size > before && (certain || random_unit(draws) < kept))
            platter->size =
                certain ? platter->seen.size : grown_size(before, platter->seen.size, draws);
    }
}

static uint64_t count_changes(const struct inode *inode)
{
    uint64_t count = 0;
    for (const struct change *change = inode->first_change; change; change = change->next)
        count++;
    return count;
}

/* How many of the bytes that were seen in changed pages are not found. */
static uint64_t count_lost(const struct cache *seen, int backing, uint64_t size)
{
    uint64_t lost = 0;
    for (size_t slot = 0; slot < seen->slot_count; slot++) {
        const struct page *page = seen->slots[slot];
        uint8_t found[PAGE_BYTES];
        if (!page)
            continue;
        uint64_t start = page->index * PAGE_BYTES;
        ssize_t got = pread(backing, found, PAGE_BYTES, (off_t)start);
        for (uint64_t i = 0; i < PAGE_BYTES && start + i < seen->size; i++)
            lost += start + i >= size || (ssize_t)i >= got || page->bytes[i] != found[i];
    }
    return lost;
}

/* Returns how many bytes are lost. */
uint64_t file_lose_power(struct inode *inode, enum loss loss, struct random *draws)
{
    struct stat found;
    struct platter platter = {.backing = inode_descriptor(inode)};
    uint64_t count = count_changes(inode);
    if (platter.backing < 0 || fstat(platter.backing, &found) != 0)
        return 0;
    platter.size = (uint64_t)found.st_size;
    cache_clear(&platter.seen, platter.size);
    if (count && loss == LOSS_KEEP) {
        play(&platter, inode->first_change, count, count, 1, draws);
    } else if (count && loss == LOSS_DROP) {
        uint64_t first = random_below(draws, count + 1);
        play(&platter, inode->first_change, first, first, 1, draws);
    } else if (count && loss != LOSS_ALL) {
        uint64_t whole;
        switch (random_below(draws, 4)) {
        case 0: /* nothing */
            break;
        case 1: /* a prefix, and a torn change after it */
            whole = random_below(draws, count + 1);
            play(&platter, inode->first_change, whole < count ? whole + 1 : count, whole, 0.5,
                 draws);
            break;
        case 2:
            play(&platter, inode->first_change, count, 0, 0.5, draws);
            break;
        default:
            play(&platter, inode->first_change, count, 0, 0.9, draws);
        }
    }
    if (ftruncate(platter.backing, (off_t)platter.size) != 0)
        platter.size = (uint64_t)found.st_size;
    uint64_t lost = count_lost(&inode->cached, platter.backing, platter.size);
    cache_clear(&platter.seen, 0);
    file_forget_changes(inode);
    cache_clear(&inode->cached, platter.size);
    inode->ghost = false;
    return lost;
}

struct reckoning {
    enum loss loss;
    uint64_t seed;
    struct text text;
    uint64_t files, bytes;
};

static void lose_file(const char *path, struct inode *inode, void *context)
{
    struct reckoning *reckoning = context;
    if (!S_ISREG(inode->mode))
        return;
    uint64_t before = inode->cached.size, unsynced = inode->dirty_bytes;
    if (!inode->first_change && !inode->ghost)
        return; /* clean, perhaps since another name of it was met */
    enum loss loss = tree_is_evidence(path) ? LOSS_KEEP : reckoning->loss;
    struct random draws = random_for(reckoning->seed, "file", path);
    uint64_t lost = file_lose_power(inode, loss, &draws);
    if (loss == LOSS_KEEP)
        return;
    reckoning->bytes += lost;
    if (reckoning->files++ >= LOST_SHOWN)
        return;
    text_add(&reckoning->text, reckoning->files > 1 ? ", {\"path\": " : "{\"path\": ");
    text_quote(&reckoning->text, path);
    text_format(&reckoning->text,
                ", \"unsynced\": %llu, \"lost\": %llu, \"size_before\": %llu, \"size\": %llu}",
                (unsigned long long)unsynced, (unsigned long long)lost,
                (unsigned long long)before, (unsigned long long)inode->cached.size);
}

static void count_file(const char *path, struct inode *inode, void *context)
{
    (void)path;
    (void)context;
    if (!inode->links++ && S_ISREG(inode->mode))
        fs.used_bytes += inode->cached.size;
}

/* Links and room, of all that has a name. */
void count_room(void)
{
    for (struct inode *inode = fs.inodes; inode; inode = inode->next)
        if (!inode->stale)
            inode->links = 0;
    fs.used_bytes = 0;
    tree_walk(count_file, NULL);
}

/* Inodes of the new life take the place of those that the kernel knows: what it still asks of
 * an old one fails. */
static struct inode *succeed(struct inode *inode)
{
    struct inode *fresh = allocate(sizeof *fresh);
    *fresh = *inode;
    fresh->references = 1; /* until the new life has begun */
    fresh->lookups = fresh->opens = 0;
    fresh->previous = NULL;
    fresh->next = fs.inodes;
    fs.inodes->previous = fresh;
    fs.inodes = fresh;
    inode->stale = true;
    inode->successor = fresh;
    inode->descriptor = -1;
    inode->entries = inode->durable = (struct names){0};
    inode->cached = (struct cache){.size = fresh->cached.size};
    inode->first_change = inode->last_change = NULL;
    inode->dirty_bytes = 0;
    return fresh;
}

/* What is seen of a directory is what is durable, in inodes of the new life. */
static void forget_cached_names(struct inode *directory)
{
    struct entry **all = names_sorted(&directory->entries);
    for (size_t n = 0; n < directory->entries.count; n++)
        inode_release(all[n]->inode);
    free(all);
    names_clear(&directory->entries);
    all = names_sorted(&directory->durable);
    for (size_t n = 0; n < directory->durable.count; n++) {
        struct inode *old = all[n]->inode, *fresh = old->successor;
        names_set(&directory->durable, all[n]->name, fresh);
        names_set(&directory->entries, all[n]->name, fresh);
        fresh->references += 2;
        fresh->parent = S_ISDIR(fresh->mode) ? directory : NULL;
        inode_release(old);
    }
    free(all);
}

/* No handle and no name is valid any more; what has no durable name is gone. */
void begin_life(void)
{
    size_t count = 0;
    fs.life++;
    for (struct inode *inode = fs.inodes; inode; inode = inode->next)
        count++;
    struct inode **known = allocate((count + 1) * sizeof *known);
    count = 0;
    for (struct inode *inode = fs.inodes; inode; inode = inode->next)
        if (!inode->stale && inode != fs.root)
            known[count++] = inode;
    for (size_t i = 0; i < count; i++) {
        inode_hold(known[i]);
        succeed(known[i]);
    }
    forget_cached_names(fs.root);
    for (size_t i = 0; i < count; i++)
        if (S_ISDIR(known[i]->mode))
            forget_cached_names(known[i]->successor);
    for (size_t i = 0; i < count; i++) {
        struct inode *fresh = known[i]->successor;
        known[i]->successor = NULL;
        inode_release(known[i]);
        inode_release(fresh);
    }
    free(known);
    pthread_cond_broadcast(&fs.synced);
}

/* The caller has settled what is mapped; see session.c. */
void power_loss(enum loss loss, uint64_t seed)
{
    struct random draws = random_for(seed, "names", "");
    if (fs.planted == PLANTED_KEEPS_ALL)
        loss = LOSS_KEEP;
    fs.counters.powers++;
    struct reckoning reckoning = {loss, seed, {0}, 0, 0};
    text_add(&reckoning.text, "\"names\": [");
    fs.lost.names = tree_lose_power(loss, &draws, &reckoning.text, LOST_SHOWN);
    text_add(&reckoning.text, "], \"files\": [");
    begin_life();
    tree_walk(lose_file, &reckoning);
    count_room();
    text_add(&reckoning.text, "]");
    free(fs.lost.text);
    fs.lost.text = reckoning.text.bytes;
    fs.lost.bytes = reckoning.bytes;
    fs.lost.files = reckoning.files;
}
