/* A file system far away: each metadata call under one directory takes SLOW_NANOSECONDS longer.

   Loaded by LD_PRELOAD, it stands before the C library's open, stat and readdir families. It leaves
   alone what lies elsewhere, so that the interpreter starts at its usual speed: it compares paths
   with SLOW_ROOT, and keeps a table of the descriptors that were opened under it.

   SLOW_ROOT         real absolute path of the directory; without it, nothing is slow
   SLOW_NANOSECONDS  how much longer a call takes
   SLOW_FROM         files below this number (acts000123.bin has 123) answer at once, as from a
                     cache; 0 by default
   SLOW_NO_TYPES     set: listings have no file types, as on file systems without d_type
   SLOW_COUNTS       file that receives, at exit, how many calls there were: JSON */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum place { ELSEWHERE, SLOW, FAST };
enum { MAX_FD = 65536, ENTRIES_PER_CALL = 1000 /* about what one getdents64(2) returns */ };

static const char *root;
static size_t root_length;
static struct timespec delay;
static long first_slow;
static int no_types;
static atomic_uchar places[MAX_FD]; /* enum place of each descriptor */
static atomic_long n_opens, n_stats, n_fstats, n_seeks, n_lists, n_entries;

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atol(text) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    root = getenv("SLOW_ROOT");
    root_length = root ? strlen(root) : 0;
    long nanoseconds = number_of("SLOW_NANOSECONDS");
    delay = (struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000};
    first_slow = number_of("SLOW_FROM");
    no_types = getenv("SLOW_NO_TYPES") != NULL;
    prctl(PR_SET_TIMERSLACK, 1UL); /* else the kernel adds 50 us to each sleep */
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("SLOW_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "{\"open\": %ld, \"stat\": %ld, \"fstat\": %ld, ", n_opens, n_stats, n_fstats);
    fprintf(file, "\"lseek\": %ld, \"list\": %ld}\n", n_seeks, n_lists);
    fclose(file);
}

static enum place place_of_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int is_cached = !strncmp(name, "acts", 4) && atol(name + 4) < first_slow;
    return is_cached ? FAST : SLOW;
}

static enum place place_of_fd(int fd)
{
    return fd >= 0 && fd < MAX_FD ? (enum place)places[fd] : ELSEWHERE;
}

static enum place place_of(int dir_fd, const char *path)
{
    if (!root || !path)
        return ELSEWHERE;
    if (path[0] == '\0')
        return place_of_fd(dir_fd); /* AT_EMPTY_PATH */
    if (path[0] != '/')
        return place_of_fd(dir_fd) ? place_of_name(path) : ELSEWHERE;
    if (strncmp(path, root, root_length) || (path[root_length] && path[root_length] != '/'))
        return ELSEWHERE;
    return place_of_name(path);
}

static void remember(int fd, enum place place)
{
    if (fd >= 0 && fd < MAX_FD)
        places[fd] = (unsigned char)place;
}

static void take_time(enum place place, atomic_long *counter)
{
    if (place == ELSEWHERE)
        return;
    (*counter)++;
    if (place == SLOW)
        nanosleep(&delay, NULL);
}

/* The C library's own function of the same name. */
#define REAL(name)                            \
    static __typeof__(&name) real;            \
    if (!real)                                \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define MODE_OF(flags, last)                              \
    mode_t mode = 0;                                      \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list rest;                                     \
        va_start(rest, last);                             \
        mode = va_arg(rest, mode_t);                      \
        va_end(rest);                                     \
    }

#define WRAP_OPEN(name)                                 \
    int name(const char *path, int flags, ...)          \
    {                                                   \
        REAL(name);                                     \
        MODE_OF(flags, flags)                           \
        enum place place = place_of(AT_FDCWD, path);    \
        take_time(place, &n_opens);                     \
        int fd = real(path, flags, mode);               \
        remember(fd, place);                            \
        return fd;                                      \
    }

#define WRAP_OPENAT(name)                                   \
    int name(int dir_fd, const char *path, int flags, ...)  \
    {                                                       \
        REAL(name);                                         \
        MODE_OF(flags, flags)                               \
        enum place place = place_of(dir_fd, path);          \
        take_time(place, &n_opens);                         \
        int fd = real(dir_fd, path, flags, mode);           \
        remember(fd, place);                                \
        return fd;                                          \
    }

#define WRAP_STAT(name, type)                               \
    int name(const char *path, struct type *status)         \
    {                                                       \
        REAL(name);                                         \
        take_time(place_of(AT_FDCWD, path), &n_stats);      \
        return real(path, status);                          \
    }

#define WRAP_FSTAT(name, type)                  \
    int name(int fd, struct type *status)       \
    {                                           \
        REAL(name);                             \
        take_time(place_of_fd(fd), &n_fstats);  \
        return real(fd, status);                \
    }

#define WRAP_FSTATAT(name, type)                                            \
    int name(int dir_fd, const char *path, struct type *status, int flags)  \
    {                                                                       \
        REAL(name);                                                         \
        take_time(place_of(dir_fd, path), &n_stats);                        \
        return real(dir_fd, path, status, flags);                           \
    }

/* Before version 2.33, glibc's stat family was inline, around these. */
#define WRAP_XSTAT(name, type)                                      \
    int name(int version, const char *path, struct type *status);   \
    int name(int version, const char *path, struct type *status)    \
    {                                                               \
        REAL(name);                                                 \
        take_time(place_of(AT_FDCWD, path), &n_stats);              \
        return real(version, path, status);                         \
    }

#define WRAP_FXSTAT(name, type)                             \
    int name(int version, int fd, struct type *status);     \
    int name(int version, int fd, struct type *status)      \
    {                                                       \
        REAL(name);                                         \
        take_time(place_of_fd(fd), &n_fstats);              \
        return real(version, fd, status);                   \
    }

#define WRAP_FXSTATAT(name, type)                                                           \
    int name(int version, int dir_fd, const char *path, struct type *status, int flags);    \
    int name(int version, int dir_fd, const char *path, struct type *status, int flags)     \
    {                                                                                       \
        REAL(name);                                                                         \
        take_time(place_of(dir_fd, path), &n_stats);                                        \
        return real(version, dir_fd, path, status, flags);                                  \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP_STAT(stat, stat)
WRAP_STAT(stat64, stat64)
WRAP_STAT(lstat, stat)
WRAP_STAT(lstat64, stat64)
WRAP_FSTAT(fstat, stat)
WRAP_FSTAT(fstat64, stat64)
WRAP_FSTATAT(fstatat, stat)
WRAP_FSTATAT(fstatat64, stat64)
WRAP_XSTAT(__xstat, stat)
WRAP_XSTAT(__xstat64, stat64)
WRAP_XSTAT(__lxstat, stat)
WRAP_XSTAT(__lxstat64, stat64)
WRAP_FXSTAT(__fxstat, stat)
WRAP_FXSTAT(__fxstat64, stat64)
WRAP_FXSTATAT(__fxstatat, stat)
WRAP_FXSTATAT(__fxstatat64, stat64)

int statx(int dir_fd, const char *path, int flags, unsigned mask, struct statx *status)
{
    REAL(statx);
    take_time(place_of(dir_fd, path), &n_stats);
    return real(dir_fd, path, flags, mask, status);
}

int close(int fd)
{
    REAL(close);
    remember(fd, ELSEWHERE);
    return real(fd);
}

/* The descriptor may be a duplicate, which the table does not know: ask the kernel for its path. */
DIR *fdopendir(int fd)
{
    REAL(fdopendir);
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    remember(fd, length > 0 ? place_of(AT_FDCWD, path) : ELSEWHERE);
    return real(fd);
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    enum place place = place_of(AT_FDCWD, path);
    take_time(place, &n_opens);
    DIR *stream = real(path);
    if (stream)
        remember(dirfd(stream), place);
    return stream;
}

int closedir(DIR *stream)
{
    REAL(closedir);
    remember(dirfd(stream), ELSEWHERE);
    return real(stream);
}

#define WRAP_READDIR(name, type)                            \
    struct type *name(DIR *stream)                          \
    {                                                       \
        REAL(name);                                         \
        enum place place = place_of_fd(dirfd(stream));      \
        if (place && n_entries++ % ENTRIES_PER_CALL == 0)   \
            take_time(place, &n_lists);                     \
        struct type *entry = real(stream);                  \
        if (entry && place && no_types)                     \
            entry->d_type = DT_UNKNOWN;                     \
        return entry;                                       \
    }

WRAP_READDIR(readdir, dirent)
WRAP_READDIR(readdir64, dirent64)

#define WRAP_LSEEK(name, type)                                      \
    type name(int fd, type offset, int whence)                      \
    {                                                               \
        REAL(name);                                                 \
        if (whence == SEEK_END) /* only the end has to be asked for */ \
            take_time(place_of_fd(fd), &n_seeks);                   \
        return real(fd, offset, whence);                            \
    }

WRAP_LSEEK(lseek, off_t)
WRAP_LSEEK(lseek64, off64_t)
