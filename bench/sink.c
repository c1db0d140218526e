// The receiver: one thread, epoll, an answer of 200 to every POST, and a count by id.
//
//   POST /j/<id>[/<due in microseconds since 1970>]   counted; with a due time its lateness is kept
//   GET  /stats                                       what has come, as JSON
//   GET  /at/<id>                                     when <id> came first, in microseconds since 1970; 0 if it has not
//   GET  /reset                                       nothing has come
//
// It prints its port, which the system chooses, and ends with its standard input, so that it never outlives the bench.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_IDS 4000000
#define MOST_FILES 65536
#define BUFFER 16384
#define ANSWERS (1 << 20)

static struct { char *bytes; int length; } connections[MOST_FILES];
static uint16_t *counts;
static int64_t *first_at;
static int32_t *lateness;
static long total, unique, twice, strange, signed_, lates, opened;
static int64_t first, last;
static char out[ANSWERS];

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void reset(void) {
    memset(counts, 0, MOST_IDS * sizeof *counts);
    total = unique = twice = strange = signed_ = lates = opened = 0;
    first = last = 0;
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int stats(char *text) {
    double p50 = 0, p99 = 0, most = 0, least = 0;
    if (lates) {
        qsort(lateness, lates, sizeof *lateness, ascending);
        least = lateness[0] / 1e3;
        p50 = lateness[lates / 2] / 1e3;
        p99 = lateness[lates * 99 / 100] / 1e3;
        most = lateness[lates - 1] / 1e3;
    }
    return sprintf(text,
        "{\"total\":%ld,\"unique\":%ld,\"twice\":%ld,\"strange\":%ld,\"signed\":%ld,\"first\":%.6f,\"last\":%.6f,\"opened\":%ld,"
        "\"late\":{\"count\":%ld,\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f}}",
        total, unique, twice, strange, signed_, first / 1e6, last / 1e6, opened, lates, least, p50, p99, most);
}

static void note(const char *path) {
    char *end;
    long id = strtol(path, &end, 10);
    int64_t at = now();
    total++;
    if (!first) first = at;
    last = at;
    if (end == path || id < 0 || id >= MOST_IDS) { strange++; return; }
    if (counts[id]++ == 0) { unique++; first_at[id] = at; }
    else twice++;
    if (*end == '/' && lates < MOST_IDS) lateness[lates++] = (int32_t)(at - strtoll(end + 1, NULL, 10));
}

static int answer(const char *path, char *text) {
    char body[1024] = "{\"ok\":true}";
    int size = 11;
    if (!strncmp(path, "/j/", 3)) note(path + 3);
    else if (!strncmp(path, "/stats", 6)) size = stats(body);
    else if (!strncmp(path, "/reset", 6)) reset();
    else if (!strncmp(path, "/at/", 4)) {
        long id = atol(path + 4);
        size = sprintf(body, "%ld", id >= 0 && id < MOST_IDS && counts[id] ? (long)first_at[id] : 0L);
    }
    return sprintf(text, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, body);
}

// The length of the first request in the buffer, or 0 if it is not all there.
static int whole(char *bytes, int length) {
    bytes[length] = 0;
    char *end = memmem(bytes, length, "\r\n\r\n", 4);
    if (!end) return 0;
    int head = end - bytes + 4, chunked = 0, has_signature = 0;
    long size = 0;
    for (char *line = memchr(bytes, '\n', head); line && line < end; line = memchr(line, '\n', end - line)) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) size = atol(line + 15);
        else if (!strncasecmp(line, "transfer-encoding:", 18)) chunked = 1;
        else if (!strncasecmp(line, "webhook-signature:", 18)) has_signature = 1;
    }
    if (chunked) {
        char *tail = memmem(bytes + head - 2, length - head + 2, "\r\n0\r\n\r\n", 7);
        if (!tail) return 0;
        size = tail + 7 - bytes - head;
    }
    if (length < head + size) return 0;
    signed_ += has_signature;
    return head + size;
}

static void drop(int file) {
    close(file);
    connections[file].length = 0;
}

static int put(int file, int length) {
    for (int done = 0; done < length;) {
        int wrote = write(file, out + done, length - done);
        if (wrote < 0 && errno != EAGAIN) return 0;
        if (wrote > 0) done += wrote;
    }
    return 1;
}

static void serve(int file) {
    char *bytes = connections[file].bytes;
    int *length = &connections[file].length, ready = 0, size;
    int got = read(file, bytes + *length, BUFFER - 1 - *length);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { drop(file); return; }
    *length += got;
    while ((size = whole(bytes, *length)) && ready < ANSWERS - 2048) {
        char *path = memchr(bytes, ' ', size);
        ready += answer(path ? path + 1 : "", out + ready);
        memmove(bytes, bytes + size, *length - size);
        *length -= size;
    }
    if (!put(file, ready) || *length >= BUFFER - 1) drop(file);
}

static void welcome(int poll, int door) {
    int on = 1, file;
    while ((file = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (file >= MOST_FILES) { close(file); continue; }
        setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!connections[file].bytes) connections[file].bytes = malloc(BUFFER);
        connections[file].length = 0;
        opened++;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
        epoll_ctl(poll, EPOLL_CTL_ADD, file, &event);
    }
}

int main(void) {
    counts = calloc(MOST_IDS, sizeof *counts);
    first_at = calloc(MOST_IDS, sizeof *first_at);
    lateness = calloc(MOST_IDS, sizeof *lateness);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(door, (void *)&address, size) || listen(door, 4096) || getsockname(door, (void *)&address, &size)) {
        perror("receiver");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event events[512], event = {.events = EPOLLIN, .data.fd = door};
    epoll_ctl(poll, EPOLL_CTL_ADD, door, &event);
    event.data.fd = 0;
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        int count = epoll_wait(poll, events, 512, -1);
        for (int i = 0; i < count; i++) {
            int file = events[i].data.fd;
            if (file == 0) return 0;
            if (file == door) welcome(poll, door);
            else serve(file);
        }
    }
}
