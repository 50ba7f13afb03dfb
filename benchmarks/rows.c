/* The ruler: what the kernel itself takes to read rows into batches.

   rows THREADS ROW_BYTES BATCH RUN N_ROWS ORDER FILE...: says "ready", then for each line of standard
   input reads N_ROWS rows twice, RUN of them with each pread(2), and prints how many a second came the
   second time. ORDER is "random" or "files". Each thread fills every THREADS-th batch, one of three buffers
   that are used again and again. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RING = 3, MOST_FILES = 4096, MOST_THREADS = 64 };

static int fds[MOST_FILES], n_files, n_threads, is_random;
static char *rings[MOST_THREADS];
static long row_bytes, batch, run, n_rows, runs_per_file, *places;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *fill(void *argument)
{
    long thread = (long)argument, per_batch = batch / run;
    char *ring = rings[thread];
    for (long at = thread; at < n_rows / batch; at += n_threads) {
        char *target = ring + at / n_threads % RING * batch * row_bytes;
        for (long i = 0; i < per_batch; i++) {
            long place = places[at * per_batch + i], size = run * row_bytes;
            long offset = place % runs_per_file * size;
            if (pread(fds[place / runs_per_file], target + i * size, size, offset) != size) {
                perror("pread");
                exit(1);
            }
        }
    }
    return NULL;
}

static int by_value(const void *one, const void *other)
{
    long left = *(const long *)one, right = *(const long *)other;
    return (left > right) - (left < right);
}

static double once(void)
{
    pthread_t threads[MOST_THREADS];
    double begin = now();
    for (long i = 0; i < n_threads; i++)
        pthread_create(&threads[i], NULL, fill, (void *)i);
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    return n_rows / (now() - begin);
}

int main(int argc, char **argv)
{
    if (argc < 8)
        return 2;
    n_threads = atoi(argv[1]), row_bytes = atol(argv[2]), batch = atol(argv[3]);
    run = atol(argv[4]), n_rows = atol(argv[5]), is_random = !strcmp(argv[6], "random");
    n_files = argc - 7;
    struct stat status;
    for (int i = 0; i < n_files; i++)
        if ((fds[i] = open(argv[7 + i], O_RDONLY)) < 0 || fstat(fds[i], &status) < 0)
            return perror(argv[7 + i]), 1;
    runs_per_file = status.st_size / (run * row_bytes);
    long n_places = n_files * runs_per_file, n_reads = n_rows / run;
    uint64_t luck = 88172645463325252ULL;
    places = malloc((size_t)n_reads * sizeof *places);
    for (long i = 0; i < n_reads; i++) {
        luck ^= luck << 13, luck ^= luck >> 7, luck ^= luck << 17;
        places[i] = is_random ? (long)(luck % (uint64_t)n_places) : i % n_places;
    }
    for (long at = 0; at + batch / run <= n_reads; at += batch / run) /* as the files have them */
        qsort(places + at, (size_t)(batch / run), sizeof *places, by_value);
    for (int i = 0; i < n_threads; i++) {
        rings[i] = malloc((size_t)(RING * batch * row_bytes));
        memset(rings[i], 1, (size_t)(RING * batch * row_bytes)); /* so that its pages are there */
    }
    puts("ready");
    fflush(stdout);
    for (char line[16]; fgets(line, sizeof line, stdin);) {
        once();
        printf("%f\n", once());
        fflush(stdout);
    }
    return 0;
}
