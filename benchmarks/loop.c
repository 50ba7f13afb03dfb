/* The ruler: what the kernel itself takes to open, examine and close each shard of a directory.

   loop DIR N: says "ready", then for each line of standard input looks once at acts000000.bin to
   the N-th, relative to one descriptor of DIR, and prints the seconds that it took. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 32, FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void look(int dir_fd, const char *name)
{
    struct stat status;
    int fd = openat(dir_fd, name, FLAGS);
    if (fd < 0 || fstat(fd, &status) < 0 || status.st_size == 0) {
        perror(name);
        exit(1);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n_files = atol(argv[2]);
    char *names = malloc((size_t)n_files * NAME_BYTES); /* made before the clock starts */
    if (dir_fd < 0 || !names)
        return 2;
    for (long i = 0; i < n_files; i++)
        snprintf(names + i * NAME_BYTES, NAME_BYTES, "acts%06ld.bin", i);

    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        double begin = now();
        for (long i = 0; i < n_files; i++)
            look(dir_fd, names + i * NAME_BYTES);
        printf("%.9f\n", now() - begin);
        fflush(stdout);
    }
    return 0;
}
