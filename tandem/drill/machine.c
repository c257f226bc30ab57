/* What a machine does to a node on it: loses power, has a slow disk, has a clock that is wrong.

Preloaded into a node by `machines.py`. With TANDEM_MACHINE, a directory, and TANDEM_MACHINE_STORE,
the directory of the node's store, every sync of a file of the store copies it, as it is then, below
TANDEM_MACHINE/disk: that is what a loss of power leaves. The page cache, which survives the end of a
process, is what it takes. That costs as much as the sync: it is done where power may be cut alone
(`keeps`). The first copy, of what is there when a node starts, has its name once it is whole.

What is done to a node is counted here, where it is done: a fault that nobody felt shows nothing.

A name is kept when its directory is synced, and, as ext4 and XFS do it, when its file is. A rename
or the end of a name is kept when the directory is. Bytes of a mapping are kept by msync. A length
that was asked for before its name was kept (fallocate, ftruncate) is kept, with zeros: there it is
in the journal, in front of the name.

Not known here: O_SYNC and O_DIRECT, and io_uring. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 65536
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define ROOM (2 * PATH_MAX)

struct control {
    int64_t clock_ahead_ns;
    int64_t sync_delay_ns;
    int64_t lies; /* syncs are answered, and nothing is kept */
    int64_t has_boot_id;
    int64_t failed; /* why something that was synced could not be kept: an errno */
    int64_t keeps;  /* what is synced is copied: power may be cut */
    int64_t started; /* this library is in the node, and its first copy is whole */
    int64_t syncs_delayed, syncs_forgotten, times_wrong;
};

static volatile struct control *control;
static char machine[PATH_MAX], root[PATH_MAX], kept[PATH_MAX];
static size_t root_length;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_syncfs)(int);
static int (*real_msync)(void *, size_t, int);
static int (*real_posix_fallocate)(int, off_t, off_t), (*real_ftruncate)(int, off_t);

#define REAL(name) \
    do { \
        if (!real_##name) \
            *(void **)&real_##name = dlsym(RTLD_NEXT, #name); \
    } while (0)

/* Other threads, and other processes of the node, count as well. */
static void count(volatile int64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* --- what a sync keeps --- */

#include "machine_disk.c"

/* Nothing of the file needs to be kept for that: its name may be the next that is. */
static void keep_length(int descriptor)
{
    char link[64], path[PATH_MAX], place[ROOM], id[64], kind;
    struct stat facts, before;
    int error = errno;
    if (!control || !control->keeps || control->lies)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    identity(descriptor, "", id, sizeof id, &kind);
    if (kind == 'f' && is_inside(path) && !fstat(descriptor, &facts)) {
        pthread_mutex_lock(&one_at_a_time);
        snprintf(place, sizeof place, "%s/data/%s", kept, id);
        make_directories(place);
        int target = real_open(place, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        take_note(target >= 0);
        if (target >= 0) {
            if (!fstat(target, &before) && before.st_size < facts.st_size)
                take_note(!real_ftruncate(target, facts.st_size));
            close(target);
        }
        pthread_mutex_unlock(&one_at_a_time);
    }
    errno = error;
}

/* Take the time of one sync; return whether it is to be kept. */
static int begin_sync(void)
{
    struct timespec left = {control->sync_delay_ns / 1000000000, control->sync_delay_ns % 1000000000};
    if (left.tv_sec || left.tv_nsec) {
        count(&control->syncs_delayed);
        while (nanosleep(&left, &left) && errno == EINTR)
            ;
    }
    if (control->lies)
        count(&control->syncs_forgotten);
    return control->keeps && !control->lies;
}

/* What a descriptor is of is kept by its number: its path may be that of another file by now, or, of
   one that was made by O_TMPFILE, of none, whatever name it was given since. */
static void keep_descriptor(int descriptor, const char *link, const char *path)
{
    char id[64], at_path[64], kind, kind_there;
    identity(descriptor, "", id, sizeof id, &kind);
    if (kind == 'f') {
        keep_bytes(link, id, 0, -1);
        identity(AT_FDCWD, path, at_path, sizeof at_path, &kind_there);
        if (kind_there == 'f' && !strcmp(id, at_path))
            keep_name(path);
    } else {
        keep_path(path, 0, -1);
    }
}

static void keep(int descriptor, int whole)
{
    char link[64], path[PATH_MAX];
    int before = errno;
    if (!control)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if ((whole || is_inside(path)) && begin_sync()) {
            pthread_mutex_lock(&one_at_a_time);
            if (whole)
                keep_tree(root);
            else
                keep_descriptor(descriptor, link, path);
            pthread_mutex_unlock(&one_at_a_time);
        }
    }
    errno = before;
}

static void keep_mapping(uintptr_t address, size_t size)
{
    char line[PATH_MAX + 128], path[PATH_MAX];
    int before = errno;
    FILE *maps = control ? fopen("/proc/self/maps", "r") : NULL;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        *path = 0;
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095[^\n]", &start, &end, &offset, path) < 4)
            continue;
        if (address < start || address >= end || !is_inside(path))
            continue;
        if (begin_sync()) {
            off_t first = address - start + offset;
            pthread_mutex_lock(&one_at_a_time);
            keep_path(path, first, first + size);
            pthread_mutex_unlock(&one_at_a_time);
        }
        break;
    }
    if (maps)
        fclose(maps);
    errno = before;
}

/* What is on a disk when a machine starts is there to stay. A node that is killed meanwhile has left
   no `disk`, and half a copy under another name, which the next start removes. */
static void keep_first(void)
{
    char whole[ROOM];
    struct stat facts;
    snprintf(whole, sizeof whole, "%s/disk", machine);
    if (control->keeps && stat(whole, &facts)) {
        snprintf(kept, sizeof kept, "%s/disk.%ld", machine, (long)getpid());
        keep_tree(root);
        if (rename(kept, whole) && errno != EEXIST && errno != ENOTEMPTY)
            take_note(0);
    }
    strcpy(kept, whole);
}

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("TANDEM_MACHINE"), *store = getenv("TANDEM_MACHINE_STORE");
    char path[ROOM];
    if (!where || !store || strlen(where) >= PATH_MAX - 32 || !realpath(store, root))
        return;
    strcpy(machine, where);
    root_length = strlen(root);
    REAL(open);
    snprintf(path, sizeof path, "%s/control", machine);
    int descriptor = real_open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (page == MAP_FAILED)
        return;
    control = page;
    keep_first();
    control->started = 1;
}

/* --- what is called instead --- */

int fsync(int descriptor)
{
    REAL(fsync);
    keep(descriptor, 0);
    return real_fsync(descriptor);
}

int fdatasync(int descriptor)
{
    REAL(fdatasync);
    keep(descriptor, 0);
    return real_fdatasync(descriptor);
}

int syncfs(int descriptor)
{
    REAL(syncfs);
    keep(descriptor, 1);
    return real_syncfs(descriptor);
}

int msync(void *address, size_t size, int flags)
{
    REAL(msync);
    if (flags & MS_SYNC)
        keep_mapping((uintptr_t)address, size);
    return real_msync(address, size, flags);
}

int posix_fallocate(int descriptor, off_t start, off_t size)
{
    REAL(posix_fallocate);
    REAL(ftruncate);
    int error = real_posix_fallocate(descriptor, start, size);
    if (!error)
        keep_length(descriptor);
    return error;
}

int ftruncate(int descriptor, off_t size)
{
    REAL(ftruncate);
    int failed = real_ftruncate(descriptor, size);
    if (!failed)
        keep_length(descriptor);
    return failed;
}

int posix_fallocate64(int descriptor, off_t start, off_t size)
{
    return posix_fallocate(descriptor, start, size);
}

int ftruncate64(int descriptor, off_t size)
{
    return ftruncate(descriptor, size);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    REAL(clock_gettime);
    int failed = real_clock_gettime(clock, time);
    if (!failed && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t now = time->tv_sec * 1000000000LL + time->tv_nsec + control->clock_ahead_ns;
        time->tv_sec = now / 1000000000;
        time->tv_nsec = now % 1000000000;
        if (control->clock_ahead_ns)
            count(&control->times_wrong);
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time))
        return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        char other[ROOM]; \
        mode_t mode = 0; \
        REAL(open); \
        if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        if (control && control->has_boot_id && !strcmp(path, BOOT_ID)) { \
            snprintf(other, sizeof other, "%s/boot_id", machine); \
            path = other; \
        } \
        return real_open(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
