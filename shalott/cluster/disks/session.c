/* The kernel's requests, each answered by one of a few threads, and what the kernel is told. */
#include "faultfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef FUSE_DIRECT_IO_ALLOW_MMAP /* since Linux 6.6 */
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#endif

enum { THREADS_MAX = 64, IDLE_MAX = 2, REQUEST_BYTES = MAX_WRITE + 8192 };

struct known_operation {
    operation *run;
    enum call call;
};

static const struct known_operation OPERATIONS[] = {
    [FUSE_LOOKUP] = {do_lookup, CALL_FREE},
    [FUSE_GETATTR] = {do_getattr, CALL_FREE},
    [FUSE_SETATTR] = {do_setattr, CALL_NAMES},
    [FUSE_READLINK] = {do_readlink, CALL_NAMES},
    [FUSE_SYMLINK] = {do_symlink, CALL_NAMES},
    [FUSE_MKNOD] = {do_mknod, CALL_NAMES},
    [FUSE_MKDIR] = {do_mkdir, CALL_NAMES},
    [FUSE_UNLINK] = {do_unlink, CALL_NAMES},
    [FUSE_RMDIR] = {do_rmdir, CALL_NAMES},
    [FUSE_RENAME] = {do_rename, CALL_NAMES},
    [FUSE_RENAME2] = {do_rename2, CALL_NAMES},
    [FUSE_LINK] = {do_link, CALL_NAMES},
    [FUSE_OPEN] = {do_open, CALL_NAMES},
    [FUSE_CREATE] = {do_create, CALL_NAMES},
    [FUSE_READ] = {do_read, CALL_READ},
    [FUSE_WRITE] = {do_write, CALL_WRITE},
    [FUSE_FSYNC] = {do_fsync, CALL_SYNC},
    [FUSE_FALLOCATE] = {do_fallocate, CALL_WRITE},
    [FUSE_STATFS] = {do_statfs, CALL_FREE},
    [FUSE_RELEASE] = {do_release, CALL_FREE},
    [FUSE_OPENDIR] = {do_opendir, CALL_NAMES},
    [FUSE_READDIR] = {do_readdir, CALL_READ},
    [FUSE_RELEASEDIR] = {do_releasedir, CALL_FREE},
    [FUSE_FSYNCDIR] = {do_fsyncdir, CALL_SYNC},
};
enum { OPERATIONS_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS };

static void reply(uint64_t unique, int error, const void *answer, size_t length)
{
    struct fuse_out_header header = {
        .len = (uint32_t)(sizeof header + length), .error = error, .unique = unique};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)answer, length}};
    /* It fails where the caller was killed before its request was read, or at the end. */
    if (writev(fs.device, parts, length ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV)
        fprintf(stderr, "faultfs: an answer is refused: %s\n", strerror(errno));
}

static void start(struct request *request)
{
    const struct fuse_init_in *in = request->body;
    struct fuse_init_out *out = request->answer;
    uint64_t offered = in->flags, wanted;
    if (in->flags & FUSE_INIT_EXT)
        offered |= (uint64_t)in->flags2 << 32;
    wanted = offered & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
                        FUSE_INIT_EXT | FUSE_DIRECT_IO_ALLOW_MMAP | FUSE_EXPLICIT_INVAL_DATA);
    fs.direct_may_map = wanted & FUSE_DIRECT_IO_ALLOW_MMAP;
    *out = (struct fuse_init_out){
        .major = FUSE_KERNEL_VERSION,
        .minor = in->minor < FUSE_KERNEL_MINOR_VERSION ? in->minor : FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = in->max_readahead,
        .flags = (uint32_t)wanted,
        .flags2 = (uint32_t)(wanted >> 32),
        .max_background = 64,
        .congestion_threshold = 48,
        .max_write = MAX_WRITE,
        .max_pages = MAX_WRITE / PAGE_BYTES,
        .time_gran = 1,
    };
    if (in->major != FUSE_KERNEL_VERSION)
        reply(request->header->unique, -EPROTO, NULL, 0);
    else
        reply(request->header->unique, 0, out, sizeof *out);
}

static void forget(uint64_t node, uint64_t lookups)
{
    struct inode *inode = (struct inode *)(uintptr_t)node;
    if (node == FUSE_ROOT_ID)
        return;
    inode->lookups -= lookups;
    if (!inode->lookups)
        inode_release(inode);
}

static void forget_all(const struct request *request)
{
    pthread_mutex_lock(&fs.lock);
    if (request->header->opcode == FUSE_FORGET) {
        forget(request->header->nodeid, ((const struct fuse_forget_in *)request->body)->nlookup);
    } else {
        const struct fuse_batch_forget_in *in = request->body;
        const struct fuse_forget_one *one = (const struct fuse_forget_one *)(in + 1);
        for (uint32_t i = 0; i < in->count; i++)
            forget(one[i].nodeid, one[i].nlookup);
    }
    pthread_mutex_unlock(&fs.lock);
}

/* What was known before a power loss can only be released. */
static int error_of_stale(uint32_t opcode)
{
    switch (opcode) {
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        return 0;
    case FUSE_READ:
    case FUSE_WRITE:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_FALLOCATE:
    case FUSE_READDIR:
        return -EIO;
    default:
        return -ESTALE;
    }
}

static void serve(struct request *request)
{
    const struct fuse_in_header *header = request->header;
    const struct known_operation *known =
        header->opcode < OPERATIONS_COUNT ? &OPERATIONS[header->opcode] : NULL;
    if (!known || !known->run) { /* FUSE_DESTROY is answered, too */
        reply(header->unique, header->opcode == FUSE_DESTROY ? 0 : -ENOSYS, NULL, 0);
        return;
    }
    faults_delay(known->call, header->pid);
    pthread_mutex_lock(&fs.lock);
    bool is_root = header->nodeid == FUSE_ROOT_ID || !header->nodeid;
    request->inode = is_root ? fs.root : (struct inode *)(uintptr_t)header->nodeid;
    int error = request->inode->stale ? error_of_stale(header->opcode) : 0;
    if (!error)
        error = known->run(request);
    pthread_mutex_unlock(&fs.lock);
    if (request->held_at_syncs)
        faults_hold(request->held_at_syncs, header->pid);
    reply(header->unique, error, request->answer, error ? 0 : request->answered);
}

/* Threads that serve, and those of them that wait for a request. One more is started when the last
 * goes to work, since calls may be slow; few wait, since the kernel wakes them in turn. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int serving, idle;
    bool ends;
} workers = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, false};

static void *work(void *unused);

static void hire(void)
{
    pthread_t thread;
    if (workers.serving < THREADS_MAX && pthread_create(&thread, NULL, work, NULL) == 0) {
        pthread_detach(thread);
        workers.serving++;
    }
}

static bool rest(void)
{
    pthread_mutex_lock(&workers.lock);
    bool is_needed = workers.idle < IDLE_MAX;
    workers.idle += is_needed;
    pthread_mutex_unlock(&workers.lock);
    return is_needed;
}

static void leave_rest(bool ends)
{
    pthread_mutex_lock(&workers.lock);
    workers.ends = workers.ends || ends;
    if (--workers.idle == 0 && !workers.ends)
        hire();
    pthread_mutex_unlock(&workers.lock);
}

static void handle_request(char *bytes, void *answer)
{
    struct request request = {.header = (const struct fuse_in_header *)bytes,
                              .body = bytes + sizeof(struct fuse_in_header),
                              .answer = answer};
    switch (request.header->opcode) {
    case FUSE_INIT:
        start(&request);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        forget_all(&request);
        break;
    case FUSE_INTERRUPT: /* slow and held calls look by themselves (faults.c) */
        break;
    default:
        serve(&request);
    }
}

static void *work(void *unused)
{
    char *bytes = allocate(REQUEST_BYTES);
    void *answer = allocate(MAX_WRITE);
    while (rest()) {
        ssize_t length = read(fs.device, bytes, REQUEST_BYTES - 1);
        bool again = length < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT);
        bool ends = !again && length < (ssize_t)sizeof(struct fuse_in_header); /* unmounted */
        leave_rest(ends);
        if (ends)
            break;
        if (again)
            continue;
        bytes[length] = '\0';
        handle_request(bytes, answer);
    }
    free(bytes);
    free(answer);
    pthread_mutex_lock(&workers.lock);
    workers.serving--;
    pthread_cond_broadcast(&workers.ended);
    pthread_mutex_unlock(&workers.lock);
    return unused;
}

/* Returns when it is unmounted: then every thread reads an error, and the last is not replaced. */
void session_serve(void)
{
    pthread_mutex_lock(&workers.lock);
    for (int i = 0; i < IDLE_MAX; i++)
        hire();
    while (workers.serving)
        pthread_cond_wait(&workers.ended, &workers.lock);
    pthread_mutex_unlock(&workers.lock);
}

/* -- telling the kernel. Never under the lock: it may ask something before it answers. -- */

static void notify(int code, const void *what, size_t length, const char *name)
{
    struct fuse_out_header header = {.error = code};
    struct iovec parts[] = {{&header, sizeof header},
                            {(void *)what, length},
                            {(void *)name, name ? strlen(name) + 1 : 0}};
    header.len = (uint32_t)(sizeof header + length + parts[2].iov_len);
    if (writev(fs.device, parts, 3) < 0 && errno != ENOENT && errno != ENODEV && errno != ENOTDIR)
        fprintf(stderr, "faultfs: the kernel can't be told: %s\n", strerror(errno));
}

/* Files that the kernel knows, held. */
static struct inode **known_files(size_t *count)
{
    size_t all = 0;
    *count = 0;
    for (struct inode *inode = fs.inodes; inode; inode = inode->next)
        all++;
    struct inode **known = allocate((all + 1) * sizeof *known);
    for (struct inode *inode = fs.inodes; inode; inode = inode->next)
        if (inode->lookups && S_ISREG(inode->mode)) {
            inode_hold(inode);
            known[(*count)++] = inode;
        }
    return known;
}

static void drop_pages(struct inode *const *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct fuse_notify_inval_inode_out out = {.ino = (uintptr_t)files[i]};
        notify(FUSE_NOTIFY_INVAL_INODE, &out, sizeof out, NULL);
    }
}

static void release_all(struct inode **files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        inode_release(files[i]);
    free(files);
}

void session_drop_pages(void)
{
    size_t count;
    pthread_mutex_lock(&fs.lock);
    struct inode **files = known_files(&count);
    pthread_mutex_unlock(&fs.lock);
    drop_pages(files, count);
    pthread_mutex_lock(&fs.lock);
    release_all(files, count);
    pthread_mutex_unlock(&fs.lock);
}

/* Mapped pages that the kernel has not written yet are written here first: they are unsynced
 * writes like any other. Then `change`, and the kernel forgets names and pages. */
static void replace_life(void (*change)(enum loss loss, uint64_t seed), enum loss loss,
                         uint64_t seed)
{
    size_t count, names = 0;
    pthread_mutex_lock(&fs.lock);
    struct inode **files = known_files(&count);
    pthread_mutex_unlock(&fs.lock);
    drop_pages(files, count);
    pthread_mutex_lock(&fs.lock);
    struct entry **all = names_sorted(&fs.root->entries);
    size_t seen = fs.root->entries.count;
    char **gone = allocate((seen + 1) * sizeof *gone);
    for (; names < seen; names++)
        gone[names] = strdup(all[names]->name);
    free(all);
    change(loss, seed);
    fs.hold_at_syncs = 0;
    pthread_mutex_unlock(&fs.lock);
    for (size_t i = 0; i < names; i++) {
        struct fuse_notify_inval_entry_out out = {
            .parent = FUSE_ROOT_ID, .namelen = (uint32_t)strlen(gone[i])};
        notify(FUSE_NOTIFY_INVAL_ENTRY, &out, sizeof out, gone[i]);
        free(gone[i]);
    }
    free(gone);
    struct fuse_notify_inval_inode_out root = {.ino = FUSE_ROOT_ID, .off = -1};
    notify(FUSE_NOTIFY_INVAL_INODE, &root, sizeof root, NULL);
    drop_pages(files, count);
    pthread_mutex_lock(&fs.lock);
    release_all(files, count);
    pthread_mutex_unlock(&fs.lock);
}

void session_power(enum loss loss, uint64_t seed)
{
    replace_life(power_loss, loss, seed);
}

static void wipe(enum loss loss, uint64_t seed)
{
    (void)loss;
    (void)seed;
    tree_wipe();
    begin_life();
    count_room();
}

void session_wipe(void)
{
    replace_life(wipe, LOSS_KEEP, 0);
}

static void write_file_back(const char *path, struct inode *inode, void *context)
{
    struct timespec times[] = {inode->accessed, inode->modified};
    (void)context;
    if (!S_ISREG(inode->mode) || (!inode->first_change && inode->descriptor < 0))
        return;
    int error = file_sync(inode);
    if (error)
        fprintf(stderr, "faultfs: %s can't be written back: %s\n", path, strerror(-error));
    if (inode->descriptor >= 0 && futimens(inode->descriptor, times) != 0)
        fprintf(stderr, "faultfs: %s keeps another time: %s\n", path, strerror(errno));
}

/* As at an orderly shutdown; without `keep`, what is not synced is lost. */
void session_end(bool keep)
{
    session_drop_pages();
    pthread_mutex_lock(&fs.lock);
    if (keep) {
        tree_walk(write_file_back, NULL);
        tree_sync_all();
    }
    pthread_mutex_unlock(&fs.lock);
    mount_remove(fs.mountpoint);
}
