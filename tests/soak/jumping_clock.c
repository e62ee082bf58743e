/* Preloaded into an agent: the wall clock shows the machine's time and the seconds in the file JUMP_FILE (a double),
   which may change at any time. The monotonic clock goes on as it is, as on a machine whose clock is set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("JUMP_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
    offset = page == MAP_FAILED ? NULL : page;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        double whole = floor(*offset), rest = *offset - whole;
        now->tv_sec += (time_t)whole;
        now->tv_nsec += (long)(rest * 1e9);
        if (now->tv_nsec >= 1000000000L) { now->tv_sec++; now->tv_nsec -= 1000000000L; }
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *target) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (target) *target = exact.tv_sec;
    return exact.tv_sec;
}
