/* Load on one HTTP/1.1 server, and what came of it.
 *
 *     load PORT CONNECTIONS SECONDS RATE < REQUEST
 *
 * sends the bytes on standard input, a whole request, again and again to 127.0.0.1. With RATE 0 each connection sends
 * the next request as soon as the last is answered: the server is saturated. Else RATE requests a second are due at
 * equal distances, whatever the server does; time counts from when a request was due, so that one which had to wait
 * for a connection is not taken for a fast one. Prints one JSON object; anything but a 200 is an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
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

enum { BUFFER = 1 << 16, EVENTS = 256 };

typedef struct {
    int fd;
    int busy;
    double due;
    size_t length;
    char in[BUFFER];
} Connection;

static char request[BUFFER];
static size_t request_length;
static uint32_t *latencies; /* microseconds */
static size_t completed, errors, capacity;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void ask(Connection *c, double due) {
    c->busy = 1;
    c->due = due;
    c->length = 0;
    if (send(c->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) die("send");
}

static void record(const Connection *c) {
    if (completed == capacity) {
        capacity = capacity ? 2 * capacity : 1 << 20;
        latencies = realloc(latencies, capacity * sizeof *latencies);
        if (latencies == NULL) die("realloc");
    }
    latencies[completed++] = (uint32_t)((now() - c->due) * 1e6);
    if (strncmp(c->in + 9, "200", 3) != 0) {
        if (errors++ == 0) fprintf(stderr, "load: %.*s\n", (int)(c->length < 400 ? c->length : 400), c->in);
    }
}

/* Whether the answer is whole; chunked ones end with an empty chunk. */
static int whole(Connection *c) {
    char *end = memmem(c->in, c->length, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    for (char *line = c->in; line < end; line = (char *)memmem(line, (size_t)(end + 2 - line), "\r\n", 2) + 2) {
        if (strncasecmp(line, "content-length:", 15) == 0)
            return c->length >= (size_t)(end + 4 - c->in) + strtoul(line + 15, NULL, 10);
        if (strncasecmp(line, "transfer-encoding:", 18) == 0)
            return c->length >= 5 && memcmp(c->in + c->length - 5, "0\r\n\r\n", 5) == 0;
    }
    return 1;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double share) {
    return completed ? latencies[(size_t)(share * (double)(completed - 1))] / 1000.0 : 0.0;
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Take what has come; 1 if the answer is whole, after which the connection is free. */
static int take(Connection *c) {
    ssize_t n = recv(c->fd, c->in + c->length, BUFFER - c->length, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
        fprintf(stderr, "load: the server closed a connection\n");
        exit(1);
    }
    c->length += (size_t)n;
    if (!whole(c)) return 0;
    record(c);
    c->busy = 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS RATE < REQUEST\n");
        return 2;
    }
    int count = atoi(argv[2]), epoll = epoll_create1(0);
    double seconds = atof(argv[3]), rate = atof(argv[4]);
    request_length = fread(request, 1, sizeof request, stdin);
    Connection *connections = calloc((size_t)count, sizeof *connections);
    Connection **idle = calloc((size_t)count, sizeof *idle);
    if (connections == NULL || idle == NULL) die("calloc");
    for (int i = 0; i < count; i++) {
        connections[i].fd = dial(atoi(argv[1]));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) != 0) die("epoll_ctl");
        idle[i] = &connections[i];
    }
    int free_count = count;
    double start = now(), end = start + seconds, due = start;
    struct epoll_event events[EVENTS];
    for (double t = start; t < end; t = now()) {
        while (free_count > 0 && (rate == 0 || due <= t)) {
            ask(idle[--free_count], rate == 0 ? now() : due);
            if (rate > 0) due += 1.0 / rate;
        }
        double wait = rate > 0 && free_count > 0 ? due - now() : 0.1;
        if (wait < 0) wait = 0;
        struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)(wait * 1e9) % 1000000000L};
        int ready = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (take(c)) {
                if (rate == 0)
                    ask(c, now());
                else
                    idle[free_count++] = c;
            }
        }
    }
    double took = now() - start;
    qsort(latencies, completed, sizeof *latencies, ascending);
    printf("{\"completed\": %zu, \"errors\": %zu, \"seconds\": %.6f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n",
        completed, errors, took, percentile(0.50), percentile(0.99));
    return 0;
}
