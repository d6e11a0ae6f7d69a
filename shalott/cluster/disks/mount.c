/* Mounting: with mount(2) for root, else through fusermount3, which has the right to. */
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TYPE "shalott" /* the mount table shows fuse.shalott: sweeping goes by that */

static int mount_as_root(const char *mountpoint, const char *source, bool allow_other)
{
    char options[256];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0)
        return -errno;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,%s"
             "default_permissions", device, getuid(), getgid(), allow_other ? "allow_other," : "");
    if (mount(source, mountpoint, "fuse." TYPE, MS_NOSUID | MS_NODEV, options) == 0)
        return device;
    int error = -errno;
    close(device);
    return error;
}

static int receive_descriptor(int channel)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    int descriptor;
    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) <= 0)
        return -EPERM;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return -EPERM;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

/* fusermount3 mounts, and passes the open device through a socket. */
static int mount_as_user(const char *mountpoint, const char *source, bool allow_other)
{
    int pair[2], status;
    char options[512], number[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return -errno;
    snprintf(options, sizeof options, "rw,nosuid,nodev,default_permissions,subtype=" TYPE
             ",fsname=%s%s", source, allow_other ? ",allow_other" : "");
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", pair[1]);
        setenv("_FUSE_COMMFD", number, 1);
        close(pair[0]);
        execlp("fusermount3", "fusermount3", "-o", options, "--", mountpoint, (char *)NULL);
        fprintf(stderr, "faultfs: no fusermount3: install fuse3, or mount as root\n");
        _exit(127);
    }
    close(pair[1]);
    int device = child < 0 ? -errno : receive_descriptor(pair[0]);
    close(pair[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    return device;
}

int mount_open(const char *mountpoint, const char *source, bool allow_other)
{
    int device = mount_as_root(mountpoint, source, allow_other);
    if (device == -EPERM)
        device = mount_as_user(mountpoint, source, allow_other);
    return device;
}

/* Lazily: it disappears now, and ends when its last user is gone. */
void mount_remove(const char *mountpoint)
{
    if (umount2(mountpoint, MNT_DETACH) == 0 || errno != EPERM)
        return;
    pid_t child = fork();
    if (child == 0) {
        execlp("fusermount3", "fusermount3", "-u", "-z", "--", mountpoint, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}
