/* A file system between a node and its data directory, with a page cache of its own.
 *
 * What a node writes stays here until the node syncs it; what is synced lies in the backing
 * directory. `power` forgets the rest, or tears it, as cluster/sim/disk/ does in a simulation.
 * The idea is LazyFS's (Ramos et al., VLDB 2023). It speaks the kernel's FUSE protocol
 * (linux/fuse.h) itself, so the program is static and runs on every Linux, also in containers
 * that have no FUSE library. */
#ifndef FAULTFS_H
#define FAULTFS_H

#include "cache.h"
#include "json.h"
#include "names.h"
#include "random.h"

#include <linux/fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#define STAGE ".shalott-stage" /* in the backing directory; holds what has no durable name */

enum {
    SECTOR_BYTES = 512,
    MAX_WRITE = 1 << 20,
    NAME_BYTES_MAX = 255,
    EVIDENCE_MAX = 8,
    PATH_BYTES_MAX = 4096,
};

/* What a power loss does to what is not synced (cluster/sim/disk/page_cache.py, PowerLoss). */
enum loss { LOSS_KEEP, LOSS_DROP, LOSS_TORN, LOSS_ALL };

/* Which sync makes a name durable. */
enum names_rule {
    NAMES_POSIX,   /* that of its directory only, as the simulation's disk has it */
    NAMES_JOURNAL, /* any: the file system has one journal, as ext4 and XFS have */
};

/* Planted errors, which the tests must find. */
enum planted { PLANTED_NOTHING, PLANTED_SYNCS_NOTHING, PLANTED_KEEPS_ALL };

/* A write or truncation since the last sync. */
struct change {
    struct change *next;
    bool truncates;
    uint64_t offset; /* of a write; of a truncation, the size */
    uint32_t length;
    uint8_t bytes[];
};

/* A file, directory, symbolic link, or special file. */
struct inode {
    struct inode *previous, *next; /* of all inodes */
    uint64_t number;               /* st_ino, and its name in the stage */
    uint64_t lookups;              /* of the kernel */
    uint32_t references;           /* of directories, of the log of names, of handles, of lookups */
    uint32_t links;                /* names in the cache */
    uint32_t opens;
    bool stale; /* known before the last power loss: each request fails */
    struct inode *successor;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    dev_t device;
    struct timespec accessed, modified, changed;
    int descriptor; /* of the backing file or directory; -1: not open */
    struct cache cached;
    struct change *first_change, *last_change;
    uint64_t dirty_bytes;
    bool ghost; /* a sync failed: the cache shows what the backing file will never have */
    uint64_t rotten_bytes;
    struct names entries; /* of a directory, as it is seen */
    struct names durable;
    struct inode *parent;
};

/* A name now leads to an inode, or to nothing. */
struct name_change {
    struct inode *directory;
    struct inode *inode;
    char *name;
};

/* All of it or none. */
struct name_operation {
    int count;
    struct name_change changes[2];
};

struct handle {
    struct inode *inode;
    uint32_t life;
    bool direct; /* it bypasses the kernel's cache */
    struct listing *listing; /* of a directory */
};

struct fault_setting {
    double slow_ms;      /* every call */
    double slow_sync_ms; /* syncs, besides */
    bool full;
    bool shortened;
    bool fail_sync, fail_read, fail_write;
    int64_t fail_count; /* how many calls fail yet; -1: all until a heal */
};

struct counters {
    uint64_t reads, writes, syncs, directory_syncs, opens, creations, removals, renames, others;
    uint64_t failed, shortened, refused_for_space, delayed;
    uint64_t written_bytes, read_bytes, synced_bytes, written_back_bytes;
    uint64_t powers;
};

/* What the last power loss took. */
struct lost {
    char *text; /* JSON: the files and names, at most LOST_SHOWN of each */
    uint64_t bytes, files, names;
};

struct faultfs {
    pthread_mutex_t lock; /* of everything below */
    int device;           /* /dev/fuse */
    int stage;            /* the stage's directory */
    int listener;         /* the control socket */
    const char *mountpoint;
    struct inode *root;
    struct inode *inodes;
    uint64_t next_number;
    uint32_t life; /* grows with each power loss; handles of an earlier one are void */
    struct name_operation *log;
    size_t log_count, log_capacity;
    enum names_rule names_rule;
    enum planted planted;
    const char *evidence[EVIDENCE_MAX]; /* names in the root: what the harness reads afterwards */
    uint64_t capacity_bytes; /* 0: the backing file system's */
    uint64_t used_bytes;
    uint64_t full_at_bytes;
    uint64_t dirty_bytes;
    uint64_t dirty_limit_bytes;
    struct fault_setting faults;
    struct random shorts;
    struct counters counters;
    struct lost lost;
    pthread_cond_t synced; /* broadcast at each sync, and when a hold ends */
    uint64_t hold_at_syncs; /* that many syncs, and the one that reaches it is held; 0: none */
    bool direct_may_map;   /* the kernel lets files be mapped that bypass its cache */
    bool owns_backing;     /* root: owners and modes are the backing files' too */
};

extern struct faultfs fs;

/* inodes.c: errors are negative errno */
struct inode *inode_new(mode_t mode, uid_t uid, gid_t gid, dev_t device, const char *target,
                        int *error);
struct inode *inode_blank(mode_t mode);
void inode_hold(struct inode *inode);
void inode_release(struct inode *inode);
int inode_descriptor(struct inode *inode);
void inode_touch(struct inode *inode, bool modified);
void inode_attributes(const struct inode *inode, struct fuse_attr *attributes);
void inode_stage_name(const struct inode *inode, char name[32]);
bool inode_takes_room(const struct inode *inode);
uint64_t room_bytes(void);

/* inodes.c */
int file_write(struct inode *inode, const uint8_t *data, size_t length, uint64_t offset);
int file_truncate(struct inode *inode, uint64_t size);
int file_sync(struct inode *inode);
void file_fail_sync(struct inode *inode);
void file_forget_changes(struct inode *inode);
int file_flip(struct inode *inode, uint64_t position, int bit);

/* power.c */
void begin_life(void);
void count_room(void);
void power_loss(enum loss loss, uint64_t seed);
uint64_t file_lose_power(struct inode *inode, enum loss loss, struct random *draws);

/* tree.c */
void tree_change(const struct name_change *changes, int count);
void tree_sync(struct inode *directory);
void tree_sync_all(void);
void tree_forget_log(void);
void tree_wipe(void);
/* Adds the first `shown` lost operations to `text`; returns how many there are. */
uint64_t tree_lose_power(enum loss loss, struct random *draws, struct text *text, uint64_t shown);
void tree_path(const struct inode *directory, const char *name, char path[PATH_BYTES_MAX]);
/* Whether it is the harness's, or below: no power loss takes it, and nothing of it rots. */
bool tree_is_evidence(const char *path);
bool tree_is_durable(const char *path);
typedef void tree_visitor(const char *path, struct inode *inode, void *context);
void tree_walk(tree_visitor *visit, void *context);
int scan(const char *backing);

/* faults.c */
enum call { CALL_FREE, CALL_NAMES, CALL_READ, CALL_WRITE, CALL_SYNC };
void faults_delay(enum call call, uint32_t pid);
bool faults_fail(enum call call);
size_t faults_shortened(size_t size);
void faults_set(const struct fault_setting *wanted, uint64_t seed, int64_t slack_bytes);
uint64_t faults_count_sync(void);
void faults_hold(uint64_t syncs, uint32_t pid);
bool faults_await_syncs(uint64_t count, bool hold, double timeout_ms);
uint64_t rot(uint64_t count, uint64_t seed, const char *pattern, char *const *paths,
             int path_count);

/* A request of the kernel, and its answer. */
struct request {
    const struct fuse_in_header *header;
    const void *body;
    struct inode *inode; /* that the request is about */
    void *answer;        /* room for MAX_WRITE bytes */
    size_t answered;
    uint64_t held_at_syncs; /* not 0: its answer may be held (faults_hold) */
};

typedef int operation(struct request *request); /* 0 or a negative errno */

/* file_operations.c */
operation do_open, do_read, do_write, do_fsync, do_release, do_fallocate, do_create;
operation do_getattr, do_setattr, do_statfs;

/* name_operations.c */
operation do_lookup, do_mkdir, do_mknod, do_symlink, do_readlink, do_link, do_unlink, do_rmdir;
operation do_rename, do_rename2, do_opendir, do_readdir, do_releasedir, do_fsyncdir;
void answer_entry(struct inode *inode, struct fuse_entry_out *entry);
int add_inode(struct request *request, const char *name, mode_t mode, dev_t device,
              const char *target, struct inode **made);
void free_listing(struct listing *listing);

/* session.c */
void session_serve(void);
/* What the kernel keeps of files is written here, if it is dirty, and dropped. */
void session_drop_pages(void);
void session_power(enum loss loss, uint64_t seed);
void session_wipe(void);
void session_end(bool keep);

/* mount.c */
int mount_open(const char *mountpoint, const char *source, bool allow_other);
void mount_remove(const char *mountpoint);

/* control.c */
int control_open(const char *path);
void *control_serve(void *unused);
int control_ask(const char *path);

/* names.c */
void *allocate(size_t bytes);

#endif
