/* The ruler: what the kernel itself takes to read each receipt of a plan, and to look at the two
   outputs that it names.

   receipts PLAN_DIR N BIN_BYTES IDX_BYTES FILE: says "ready", then for each line of standard input
   looks at all shards twice, and prints the seconds that the second time took. At the end it writes
   the numbers of the shards that are not done to FILE, as a JSON list. A shard is done if its
   receipt has the word "completed" in it, and its outputs have these sizes; the receipt is not
   parsed. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 32, FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY };

struct names {
    char receipt[NAME_BYTES], bin[NAME_BYTES], idx[NAME_BYTES];
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void unless_missing(const char *name)
{
    if (errno == ENOENT)
        return;
    perror(name);
    exit(1);
}

static int says_completed(int dir_fd, const char *name)
{
    char text[4096];
    int fd = openat(dir_fd, name, FLAGS);
    if (fd < 0) {
        unless_missing(name);
        return 0;
    }
    ssize_t length = read(fd, text, sizeof text);
    close(fd);
    return length > 0 && memmem(text, (size_t)length, "\"completed\"", 11);
}

static int has_bytes(int dir_fd, const char *name, off_t n_bytes)
{
    struct stat status;
    if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
        unless_missing(name);
        return 0;
    }
    return S_ISREG(status.st_mode) && status.st_size == n_bytes;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int plan_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int receipts_fd = openat(plan_fd, "receipts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n_shards = atol(argv[2]);
    off_t bin_bytes = atol(argv[3]), idx_bytes = atol(argv[4]);
    struct names *names = malloc((size_t)n_shards * sizeof *names); /* before the clock starts */
    char *is_done = calloc((size_t)n_shards, 1);
    if (receipts_fd < 0 || !names || !is_done)
        return 2;
    for (long i = 0; i < n_shards; i++) {
        snprintf(names[i].receipt, NAME_BYTES, "shard_%06ld.json", i);
        snprintf(names[i].bin, NAME_BYTES, "shard_%06ld.bin", i);
        snprintf(names[i].idx, NAME_BYTES, "shard_%06ld.idx", i);
    }

    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        double begin = 0;
        for (int time = 0; time < 2; time++) {
            begin = now();
            for (long i = 0; i < n_shards; i++)
                is_done[i] = says_completed(receipts_fd, names[i].receipt)
                             && has_bytes(plan_fd, names[i].bin, bin_bytes)
                             && has_bytes(plan_fd, names[i].idx, idx_bytes);
        }
        printf("%.9f\n", now() - begin);
        fflush(stdout);
    }

    FILE *file = fopen(argv[5], "w");
    if (!file)
        return 1;
    const char *before = "[";
    for (long i = 0; i < n_shards; i++) {
        if (is_done[i])
            continue;
        fprintf(file, "%s%ld", before, i);
        before = ", ";
    }
    fprintf(file, "%s]\n", *before == '[' ? "[" : "");
    return fclose(file) != 0;
}
