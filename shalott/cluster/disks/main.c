/* The command line: `faultfs serve` mounts and serves, `faultfs ask SOCKET` controls a server. */
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DIRTY_LIMIT_BYTES = 256 << 20, KEPT_MEMORY_BYTES = 256 << 20, MEMORY_STEP_BYTES = 1 << 20 };

static const char USAGE[] =
    "faultfs serve --backing DIRECTORY --mount DIRECTORY --socket PATH [--source NAME]\n"
    "    [--names posix|journal] [--capacity BYTES] [--dirty-limit BYTES] [--allow-other]\n"
    "    [--evidence NAME]... [--with-pid PID] [--planted syncs-nothing|keeps-all]\n"
    "faultfs ask SOCKET < COMMAND\n";

struct options {
    const char *backing, *mountpoint, *socket, *source, *names, *planted;
    uint64_t capacity_bytes, dirty_limit_bytes;
    const char *evidence[EVIDENCE_MAX];
    int with_pid, evidence_count;
    bool allow_other;
};

static bool read_options(int count, char **words, struct options *options)
{
    for (int i = 0; i < count; i++) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (strcmp(name, "--allow-other") == 0) {
            options->allow_other = true;
            continue;
        }
        if (!value)
            return false;
        i++;
        if (strcmp(name, "--backing") == 0)
            options->backing = value;
        else if (strcmp(name, "--mount") == 0)
            options->mountpoint = value;
        else if (strcmp(name, "--socket") == 0)
            options->socket = value;
        else if (strcmp(name, "--source") == 0)
            options->source = value;
        else if (strcmp(name, "--names") == 0)
            options->names = value;
        else if (strcmp(name, "--planted") == 0)
            options->planted = value;
        else if (strcmp(name, "--capacity") == 0)
            options->capacity_bytes = strtoull(value, NULL, 10);
        else if (strcmp(name, "--dirty-limit") == 0)
            options->dirty_limit_bytes = strtoull(value, NULL, 10);
        else if (strcmp(name, "--evidence") == 0 && options->evidence_count < EVIDENCE_MAX)
            options->evidence[options->evidence_count++] = value;
        else if (strcmp(name, "--with-pid") == 0)
            options->with_pid = atoi(value);
        else
            return false;
    }
    return options->backing && options->mountpoint && options->socket;
}

static bool apply(const struct options *options)
{
    fs.names_rule = strcmp(options->names, "journal") == 0 ? NAMES_JOURNAL : NAMES_POSIX;
    if (strcmp(options->planted, "syncs-nothing") == 0)
        fs.planted = PLANTED_SYNCS_NOTHING;
    else if (strcmp(options->planted, "keeps-all") == 0)
        fs.planted = PLANTED_KEEPS_ALL;
    memcpy(fs.evidence, options->evidence, sizeof fs.evidence);
    fs.capacity_bytes = options->capacity_bytes;
    fs.dirty_limit_bytes = options->dirty_limit_bytes;
    fs.owns_backing = geteuid() == 0;
    fs.faults.fail_count = -1;
    fs.mountpoint = options->mountpoint;
    return (fs.names_rule == NAMES_JOURNAL || strcmp(options->names, "posix") == 0) &&
           (fs.planted != PLANTED_NOTHING || !*options->planted);
}

/* Ends with a signal, or with the process that it serves: a dead harness leaves no mount. */
static void *watch(void *process)
{
    sigset_t signals;
    int signal, descriptor = (int)(intptr_t)process;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (descriptor < 0) {
        sigwait(&signals, &signal);
    } else {
        struct pollfd gone = {descriptor, POLLIN, 0};
        while (poll(&gone, 1, -1) < 0 && errno == EINTR)
            continue;
    }
    session_end(true);
    _exit(0);
}

static void start_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        abort();
    pthread_detach(thread);
}

static void prepare_process(void)
{
    struct rlimit files;
    sigset_t blocked;
    pthread_condattr_t attributes;
    /* Pages and changes come and go with each sync: memory that was used once is kept for the
     * next, and is one pool, since the lock is one. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY_BYTES);
    mallopt(M_TOP_PAD, MEMORY_STEP_BYTES);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&fs.lock, NULL);
    pthread_cond_init(&fs.synced, &attributes);
}

static int fail(const char *what, int error)
{
    fprintf(stderr, "faultfs: %s: %s\n", what, strerror(-error));
    return 1;
}

static int serve(const struct options *options)
{
    int error, process = -1;
    prepare_process();
    if (options->with_pid &&
        (process = (int)syscall(SYS_pidfd_open, options->with_pid, 0)) < 0)
        return fail("--with-pid", -errno);
    if ((error = scan(options->backing)) != 0)
        return fail(options->backing, error);
    if ((fs.listener = control_open(options->socket)) < 0)
        return fail(options->socket, fs.listener);
    fs.device = mount_open(options->mountpoint, options->source, options->allow_other);
    if (fs.device < 0)
        return fail(options->mountpoint, fs.device);
    start_thread(watch, (void *)(intptr_t)-1);
    if (process >= 0)
        start_thread(watch, (void *)(intptr_t)process);
    start_thread(control_serve, NULL);
    puts("ready");
    fflush(stdout);
    session_serve();
    unlink(options->socket);
    return 0;
}

int main(int count, char **words)
{
    struct options options = {.source = "shalott", .names = "posix", .planted = "",
                              .dirty_limit_bytes = DIRTY_LIMIT_BYTES};
    if (count == 3 && strcmp(words[1], "ask") == 0)
        return control_ask(words[2]);
    if (count < 2 || strcmp(words[1], "serve") != 0 ||
        !read_options(count - 2, words + 2, &options) || !apply(&options)) {
        fputs(USAGE, stderr);
        return 254;
    }
    return serve(&options);
}
