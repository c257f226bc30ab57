/* What a sync keeps of a store: part of `machine.c`, which includes it.

    data/INODE-BIRTH    the bytes of a file at its last sync
    names/INODE-BIRTH   a line for each entry of a directory: INODE-BIRTH, f or d, name;
                        that of the store itself is `root` */

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
    snprintf(place, sizeof place, "%s/data/%s", kept, id);
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
    snprintf(place, ROOM, "%s/names/%s", kept, id);
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
