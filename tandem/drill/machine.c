/* What a machine does to a node on it: loses power, has a slow disk, has a clock that is wrong.

Preloaded into a node by `machines.py`. With TANDEM_MACHINE, a directory, and TANDEM_MACHINE_STORE,
the directory of the node's store, every sync of a file of the store copies it, as it is then, below
TANDEM_MACHINE/disk: that is what a loss of power leaves. The page cache, which survives the end of a
process, is what it takes.

    disk/data/INODE-BIRTH    the bytes of a file at its last sync
    disk/names/INODE-BIRTH   a line for each entry of a directory: INODE-BIRTH, f or d, name;
                             that of the store itself is `root`

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
};

static volatile struct control *control;
static char machine[PATH_MAX], root[PATH_MAX];
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

/* --- what a sync keeps --- */

/* Without this a loss of power would take what was synced. What is gone meanwhile is nothing to keep. */
static void take_note(int is_kept)
{
    if (!is_kept && errno != ENOENT)
        control->failed = errno ? errno : EIO;
}

static void make_directories(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0777);
    }
}

static void identity(int at, const char *name, char *text, size_t room, char *kind)
{
    struct statx facts;
    int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);
    *kind = 0;
    if (statx(at, name, flags, STATX_BASIC_STATS | STATX_BTIME, &facts))
        return;
    long long born = facts.stx_mask & STATX_BTIME
        ? facts.stx_btime.tv_sec * 1000000000LL + facts.stx_btime.tv_nsec : 0;
    snprintf(text, room, "%llu-%lld", (unsigned long long)facts.stx_ino, born);
    *kind = S_ISDIR(facts.stx_mode) ? 'd' : S_ISREG(facts.stx_mode) ? 'f' : 0;
}

static off_t next_data(int file, off_t from, off_t size)
{
    off_t at = lseek(file, from, SEEK_DATA);
    return at < 0 ? size : at;
}

static void copy_range(int source, int target, off_t start, off_t end)
{
    static char new[BLOCK], old[BLOCK];
    for (off_t at = start; at < end;) {
        off_t data = next_data(source, at, end), before = next_data(target, at, end);
        off_t first = data < before ? data : before;
        if (first >= end)
            break;
        if (first > at)
            at = first;
        size_t size = end - at < BLOCK ? end - at : BLOCK;
        memset(new, 0, size);
        memset(old, 0, size);
        ssize_t got = pread(source, new, size, at), had = pread(target, old, size, at);
        take_note(got >= 0);
        if (got < 0)
            break;
        if (had < (ssize_t)size || memcmp(new, old, size))
            if (pwrite(target, new, size, at) != (ssize_t)size) {
                take_note(0);
                break;
            }
        at += size;
    }
}

/* `path` may be that of a descriptor: a file that was made without a name has no other one there. */
static void keep_bytes(const char *path, const char *id, off_t start, off_t end)
{
    char place[ROOM];
    struct stat facts;
    snprintf(place, sizeof place, "%s/disk/data/%s", machine, id);
    make_directories(place);
    int source = real_open(path, O_RDONLY | O_CLOEXEC);
    take_note(source >= 0);
    if (source < 0)
        return;
    int target = real_open(place, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    take_note(target >= 0);
    if (target >= 0 && !fstat(source, &facts)) {
        REAL(ftruncate);
        int is_long = real_ftruncate(target, facts.st_size) == 0;
        take_note(is_long);
        if (is_long)
            copy_range(source, target, start, end < 0 || end > facts.st_size ? facts.st_size : end);
        close(target);
    }
    close(source);
}

/* By what it is and not by its name: a directory keeps its entries when it is renamed, and another
   one of its name has none of them. */
static void names_file(const char *directory, char *place)
{
    char id[64] = "root", kind;
    if (strlen(directory) > root_length)
        identity(AT_FDCWD, directory, id, sizeof id, &kind);
    snprintf(place, ROOM, "%s/disk/names/%s", machine, id);
    make_directories(place);
}

static void keep_names(const char *directory)
{
    char place[ROOM], fresh[ROOM + 8], id[64], kind;
    names_file(directory, place);
    snprintf(fresh, sizeof fresh, "%s.new", place);
    DIR *entries = opendir(directory);
    FILE *names = entries ? fopen(fresh, "w") : NULL;
    take_note(names != NULL);
    for (struct dirent *entry; names && (entry = readdir(entries));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        identity(dirfd(entries), entry->d_name, id, sizeof id, &kind);
        if (kind)
            fprintf(names, "%s %c %s\n", id, kind, entry->d_name);
    }
    if (names)
        take_note(!fclose(names) && !rename(fresh, place));
    if (entries)
        closedir(entries);
}

/* Keep one name, and those of the directories above it. */
static void keep_name(const char *path)
{
    char place[ROOM], fresh[ROOM + 8], line[PATH_MAX + 80], directory[PATH_MAX], id[64], kind;
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) < root_length)
        return;
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    identity(AT_FDCWD, path, id, sizeof id, &kind);
    if (!kind)
        return;
    names_file(directory, place);
    snprintf(fresh, sizeof fresh, "%s.new", place);
    FILE *before = fopen(place, "r"), *names = fopen(fresh, "w");
    take_note(names != NULL);
    while (before && names && fgets(line, sizeof line, before)) {
        char *name = strchr(line, ' ');
        size_t length = strcspn(line, " ");
        int is_same = name && strlen(name) > 3 && !strncmp(name + 3, slash + 1, strlen(slash + 1))
            && name[3 + strlen(slash + 1)] == '\n';
        int is_moved = length == strlen(id) && !strncmp(line, id, length);
        if (!is_same && !is_moved)
            fputs(line, names);
    }
    if (before)
        fclose(before);
    if (names) {
        fprintf(names, "%s %c %s\n", id, kind, slash + 1);
        take_note(!fclose(names) && !rename(fresh, place));
    }
    keep_name(directory);
}

static int is_inside(const char *path)
{
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static void keep_path(const char *path, off_t start, off_t end)
{
    char id[64], kind;
    if (!is_inside(path))
        return;
    identity(AT_FDCWD, path, id, sizeof id, &kind);
    if (kind == 'd') {
        keep_names(path);
        keep_name(path);
    } else if (kind == 'f') {
        keep_bytes(path, id, start, end);
        keep_name(path);
    }
}

static void keep_tree(const char *directory)
{
    char path[PATH_MAX], id[64], kind;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) >= (int)sizeof path)
            continue;
        identity(AT_FDCWD, path, id, sizeof id, &kind);
        if (kind == 'd')
            keep_tree(path);
        else if (kind == 'f')
            keep_bytes(path, id, 0, -1);
    }
    if (entries)
        closedir(entries);
    keep_names(directory);
}

/* Nothing of the file needs to be kept for that: its name may be the next that is. */
static void keep_length(int descriptor)
{
    char link[64], path[PATH_MAX], place[ROOM], id[64], kind;
    struct stat facts, before;
    int error = errno;
    if (!control || control->lies)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    identity(descriptor, "", id, sizeof id, &kind);
    if (kind == 'f' && is_inside(path) && !fstat(descriptor, &facts)) {
        pthread_mutex_lock(&one_at_a_time);
        snprintf(place, sizeof place, "%s/disk/data/%s", machine, id);
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

static void take_time(void)
{
    struct timespec left = {control->sync_delay_ns / 1000000000, control->sync_delay_ns % 1000000000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
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
        if (whole || is_inside(path))
            take_time();
        if (!control->lies) {
            pthread_mutex_lock(&one_at_a_time);
            if (whole)
                keep_tree(root);
            else if (is_inside(path))
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
        take_time();
        if (!control->lies) {
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

/* What is on a disk when a machine starts is there to stay. */
static void keep_first(void)
{
    char place[ROOM];
    struct stat facts;
    snprintf(place, sizeof place, "%s/disk", machine);
    if (control && stat(place, &facts))
        keep_tree(root);
}

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("TANDEM_MACHINE"), *store = getenv("TANDEM_MACHINE_STORE");
    char path[ROOM];
    if (!where || !store || strlen(where) >= PATH_MAX || !realpath(store, root))
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
    if (page != MAP_FAILED)
        control = page;
    keep_first();
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
