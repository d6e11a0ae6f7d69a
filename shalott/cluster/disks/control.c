/* The control socket: a line of JSON for each command, and a line of JSON as its answer. */
#include "faultfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int address_of(const char *path, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return -ENAMETOOLONG;
    strcpy(address->sun_path, path);
    return 0;
}

int control_open(const char *path)
{
    struct sockaddr_un address;
    int error = address_of(path, &address);
    int listener = error ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return error ? error : -errno;
    unlink(path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 16) != 0)
        return -errno;
    return listener;
}

static void add_count(struct text *text, const char *name, uint64_t count)
{
    text_format(text, "\"%s\": %llu, ", name, (unsigned long long)count);
}

static void add_flag(struct text *text, const char *name, bool is_so)
{
    text_format(text, "\"%s\": %s, ", name, is_so ? "true" : "false");
}

static void answer_status(struct text *text)
{
    const struct fault_setting *faults = &fs.faults;
    const struct counters *c = &fs.counters;
    text_add(text, "{\"faults\": {");
    text_format(text, "\"slow_ms\": %.17g, \"slow_sync_ms\": %.17g, \"fail_count\": %lld, ",
                faults->slow_ms, faults->slow_sync_ms, (long long)faults->fail_count);
    add_flag(text, "full", faults->full);
    add_flag(text, "short", faults->shortened);
    add_flag(text, "fail_read", faults->fail_read);
    add_flag(text, "fail_write", faults->fail_write);
    text_format(text, "\"fail_sync\": %s}, \"counters\": {", faults->fail_sync ? "true" : "false");
    add_count(text, "reads", c->reads);
    add_count(text, "writes", c->writes);
    add_count(text, "syncs", c->syncs);
    add_count(text, "directory_syncs", c->directory_syncs);
    add_count(text, "opens", c->opens);
    add_count(text, "creations", c->creations);
    add_count(text, "removals", c->removals);
    add_count(text, "renames", c->renames);
    add_count(text, "others", c->others);
    add_count(text, "failed", c->failed);
    add_count(text, "shortened", c->shortened);
    add_count(text, "refused_for_space", c->refused_for_space);
    add_count(text, "delayed", c->delayed);
    add_count(text, "read_bytes", c->read_bytes);
    add_count(text, "written_bytes", c->written_bytes);
    add_count(text, "synced_bytes", c->synced_bytes);
    add_count(text, "written_back_bytes", c->written_back_bytes);
    text_format(text, "\"powers\": %llu}, ", (unsigned long long)c->powers);
    add_count(text, "used_bytes", fs.used_bytes);
    add_count(text, "room_bytes", room_bytes());
    add_count(text, "dirty_bytes", fs.dirty_bytes);
    add_count(text, "dirty_names", fs.log_count);
    add_count(text, "pid", (uint64_t)getpid());
    text_add(text, "\"lost\": {");
    add_count(text, "lost_bytes", fs.lost.bytes);
    add_count(text, "lost_files", fs.lost.files);
    add_count(text, "lost_names", fs.lost.names);
    text_add(text, fs.lost.text ? fs.lost.text : "\"names\": [], \"files\": []");
    text_add(text, "}}");
}

struct file_list {
    struct text *text;
    bool rotten;
    int count;
};

static void add_file(const char *path, struct inode *inode, void *context)
{
    struct file_list *list = context;
    struct stat found;
    if (!S_ISREG(inode->mode) || (list->rotten && !inode->rotten_bytes))
        return;
    if (!list->rotten && (!tree_is_durable(path) || inode_descriptor(inode) < 0 ||
                          fstat(inode->descriptor, &found) != 0))
        return;
    text_add(list->text, list->count++ ? ", " : "");
    text_quote(list->text, path);
    text_format(list->text, ": %llu",
                (unsigned long long)(list->rotten ? inode->rotten_bytes : (uint64_t)found.st_size));
}

/* {"files": {path: durable size}, "rotten": {path: bytes}} */
static void answer_files(struct text *text)
{
    struct file_list files = {text, false, 0}, rotten = {text, true, 0};
    text_add(text, "{\"files\": {");
    tree_walk(add_file, &files);
    text_add(text, "}, \"rotten\": {");
    tree_walk(add_file, &rotten);
    text_add(text, "}}");
}

static bool set_faults(const struct json_object *asked)
{
    struct fault_setting wanted = {
        .slow_ms = json_number(asked, "slow_ms", 0),
        .slow_sync_ms = json_number(asked, "slow_sync_ms", 0),
        .full = json_flag(asked, "full"),
        .shortened = json_flag(asked, "short"),
        .fail_sync = json_flag(asked, "fail_sync"),
        .fail_read = json_flag(asked, "fail_read"),
        .fail_write = json_flag(asked, "fail_write"),
        .fail_count = (int64_t)json_number(asked, "fail_count", -1),
    };
    faults_set(&wanted, json_count(asked, "seed", 0),
               (int64_t)json_number(asked, "slack_bytes", -1));
    return wanted.fail_read; /* the kernel does not ask for what it has */
}

static bool loss_of(const char *name, enum loss *loss)
{
    static const char *const names[] = {"keep", "drop", "torn", "all"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            *loss = (enum loss)i;
            return true;
        }
    return false;
}

static void answer_rot(const struct json_object *asked, struct text *text)
{
    const struct json_field *paths = json_find(asked, "paths");
    static char *none[1];
    bool listed = paths && paths->kind == JSON_LIST;
    pthread_mutex_lock(&fs.lock);
    uint64_t flipped = rot(json_count(asked, "count", 0), json_count(asked, "seed", 0),
                           json_text(asked, "pattern", "*"),
                           listed ? (paths->count ? paths->list : none) : NULL,
                           listed ? paths->count : 0);
    pthread_mutex_unlock(&fs.lock);
    session_drop_pages(); /* or the kernel would show what was there before */
    text_format(text, "{\"flipped\": %llu}", (unsigned long long)flipped);
}

static void answer_syncs(const struct json_object *asked, struct text *text)
{
    pthread_mutex_lock(&fs.lock);
    bool made = faults_await_syncs(json_count(asked, "count", 1), json_flag(asked, "hold"),
                                   json_number(asked, "timeout_ms", 10000));
    text_format(text, "{\"made\": %s, \"syncs\": %llu}", made ? "true" : "false",
                (unsigned long long)fs.counters.syncs);
    pthread_mutex_unlock(&fs.lock);
}

static void release_hold(void)
{
    pthread_mutex_lock(&fs.lock);
    fs.hold_at_syncs = 0;
    pthread_cond_broadcast(&fs.synced);
    pthread_mutex_unlock(&fs.lock);
}

/* Those that change the life of the disk; false: there is no such command. */
static bool obey(const char *command, const struct json_object *asked, struct text *text)
{
    enum loss loss;
    if (strcmp(command, "power") == 0 && loss_of(json_text(asked, "loss", "torn"), &loss))
        session_power(loss, json_count(asked, "seed", 0));
    else if (strcmp(command, "wipe") == 0)
        session_wipe();
    else if (strcmp(command, "end") == 0 && loss_of(json_text(asked, "loss", "keep"), &loss))
        session_end(loss == LOSS_KEEP);
    else if (strcmp(command, "release") == 0)
        release_hold();
    else if (strcmp(command, "rot") == 0)
        answer_rot(asked, text);
    else if (strcmp(command, "await-syncs") == 0)
        answer_syncs(asked, text);
    else
        return false;
    return true;
}

static void answer(const char *line, struct text *text)
{
    struct json_object asked;
    const char *command = json_read(line, &asked) ? json_text(&asked, "do", "") : "";
    bool looks = strcmp(command, "files") == 0, sets = strcmp(command, "faults") == 0;
    bool resizes = strcmp(command, "capacity") == 0;
    if (looks || sets || resizes || strcmp(command, "status") == 0) {
        pthread_mutex_lock(&fs.lock);
        bool must_drop = sets && set_faults(&asked);
        if (resizes)
            fs.capacity_bytes = json_count(&asked, "bytes", 0);
        if (looks)
            answer_files(text);
        else
            answer_status(text);
        pthread_mutex_unlock(&fs.lock);
        if (must_drop)
            session_drop_pages();
    } else if (!obey(command, &asked, text)) {
        text_add(text, "{\"error\": \"no such command: ");
        text_escape(text, line);
        text_add(text, "\"}");
    } else if (!text->length) {
        pthread_mutex_lock(&fs.lock);
        answer_status(text);
        pthread_mutex_unlock(&fs.lock);
    }
    json_free(&asked);
}

static bool write_whole(int channel, const char *bytes, size_t length)
{
    while (length) {
        ssize_t wrote = write(channel, bytes, length);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        bytes += wrote, length -= (size_t)wrote;
    }
    return true;
}

static void *converse(void *descriptor)
{
    FILE *channel = fdopen((int)(intptr_t)descriptor, "r");
    char *line = NULL;
    size_t room = 0;
    bool heard = true;
    while (channel && heard && getline(&line, &room, channel) > 0) {
        struct text text = {0};
        line[strcspn(line, "\n")] = '\0';
        answer(line, &text);
        text_add(&text, "\n");
        heard = write_whole(fileno(channel), text.bytes, text.length);
        free(text.bytes);
    }
    free(line);
    if (channel)
        fclose(channel);
    return NULL;
}

void *control_serve(void *unused)
{
    for (;;) {
        pthread_t thread;
        int channel = accept4(fs.listener, NULL, NULL, SOCK_CLOEXEC);
        if (channel < 0 && errno != EINTR && errno != ECONNABORTED)
            return unused;
        if (channel >= 0 && pthread_create(&thread, NULL, converse, (void *)(intptr_t)channel) == 0)
            pthread_detach(thread);
    }
}

/* The client: a line from the standard input, the answer to the standard output. */
int control_ask(const char *path)
{
    struct sockaddr_un address;
    char bytes[1 << 16];
    ssize_t length;
    int error = address_of(path, &address);
    int channel = error ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (channel < 0 || connect(channel, (struct sockaddr *)&address, sizeof address) != 0) {
        fprintf(stderr, "faultfs: %s: %s\n", path, strerror(error ? -error : errno));
        return 1;
    }
    while ((length = read(STDIN_FILENO, bytes, sizeof bytes)) > 0)
        if (!write_whole(channel, bytes, (size_t)length))
            return 1;
    shutdown(channel, SHUT_WR);
    while ((length = read(channel, bytes, sizeof bytes)) > 0)
        if (!write_whole(STDOUT_FILENO, bytes, (size_t)length))
            return 1;
    return 0;
}
