/* Pods that cost next to nothing, so that what is measured is what stands in front of them.
 *
 *     mock_pods FIRST_PORT COUNT
 *
 * listens on COUNT ports from FIRST_PORT on, in one thread, and speaks on each of them both HTTP/1.1 and the frames
 * of copydesk.common.rpc: a connection whose first byte is a letter is HTTP, for a frame begins with the high byte of
 * its length, which is 0. Every POST and every request to write text gets the same text; every sentence to correct
 * comes back as it is. It prints a line once it listens, and ends with its parent's end of standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 18, OUT_BYTES = 1 << 18, EVENTS = 256 };

typedef struct {
    int fd;
    int listener;
    size_t in_length;
    size_t out_length;
    uint8_t in[IN_BYTES];
    uint8_t out[OUT_BYTES];
} Connection;

static const char TEXT[] =
    "The committee has decided that the results, which were published last week, are correct, and that nobody needs to "
    "go through all of them again before the next meeting takes place in the spring of the following year.";

static const char CORRECTED[] =
    "The committee has decided that the results, which were published last week, are correct.";

static char http_answer[2048];
static size_t http_answer_length;
static char http_info[1024];
static size_t http_info_length;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void make_http_answers(void) {
    char body[1024];
    int length = snprintf(body, sizeof body,
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"gec-en\",\"choices\":"
        "[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":50,\"total_tokens\":100}}", TEXT);
    http_answer_length = (size_t)snprintf(http_answer, sizeof http_answer,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", length, body);
    length = snprintf(body, sizeof body,
        "{\"status\":\"ok\",\"object\":\"list\",\"data\":[{\"id\":\"gec-en\",\"object\":\"model\",\"owned_by\":\"mock\"}],"
        "\"model_path\":\"gec-en\",\"served_model_name\":\"gec-en\",\"is_generation\":true}");
    http_info_length = (size_t)snprintf(http_info, sizeof http_info,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", length, body);
}

static void put(Connection *c, const void *data, size_t length) {
    if (c->out_length + length > OUT_BYTES) {
        fprintf(stderr, "mock_pods: a client does not read\n");
        exit(1);
    }
    memcpy(c->out + c->out_length, data, length);
    c->out_length += length;
}

/* A frame is put together here, behind its length. */
static uint8_t frame[IN_BYTES];
static size_t frame_length;

static void frame_begin(void) { frame_length = 4; }

static void frame_bytes(const void *data, size_t length) {
    memcpy(frame + frame_length, data, length);
    frame_length += length;
}

static void frame_byte(uint8_t byte) { frame[frame_length++] = byte; }

static void frame_text(const char *text) {
    size_t length = strlen(text);
    if (length < 32) {
        frame_byte((uint8_t)(0xa0 | length));
    } else {
        frame_byte(0xd9);
        frame_byte((uint8_t)length);
    }
    frame_bytes(text, length);
}

static void frame_load(void) {
    const uint8_t load[] = {0x94, 0x01, 0x00, 0xcd, 0x04, 0x00, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0}; /* [1, 0, 1024, 1.0] */
    frame_bytes(load, sizeof load);
}

static void frame_end(Connection *c) {
    uint32_t length = htonl((uint32_t)(frame_length - 4));
    memcpy(frame, &length, 4);
    put(c, frame, frame_length);
}

/* The length in bytes of the msgpack value at `p`: integers and strings are all that is looked at. */
static size_t value_length(const uint8_t *p) {
    if (*p < 0x80 || *p >= 0xe0 || *p == 0xc0) return 1;
    if ((*p & 0xe0) == 0xa0) return 1 + (size_t)(*p & 0x1f);
    switch (*p) {
    case 0xcc: return 2;
    case 0xcd: return 3;
    case 0xce: return 5;
    case 0xcf: return 9;
    case 0xd9: return 2 + (size_t)p[1];
    case 0xda: return 3 + ((size_t)p[1] << 8 | p[2]);
    case 0xdb: return 5 + ((size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4]);
    }
    fprintf(stderr, "mock_pods: no value to skip: 0x%02x\n", *p);
    exit(1);
}

static void answer_request(Connection *c, const uint8_t *id) {
    const uint8_t *payload = id + value_length(id); /* the deadline */
    payload += value_length(payload);
    payload += value_length(payload); /* the priority */
    const uint8_t *tag = payload + 1;
    frame_begin();
    frame_byte(0x96);
    frame_byte(0x02);
    frame_bytes(id, value_length(id));
    frame_byte(0x00);
    frame_load();
    if (*tag == 0xa7) { /* correct */
        frame_byte(0x95);
        frame_text("corrected");
        frame_text(CORRECTED);
        frame_text("corrected");
        frame_byte(50);
        frame_byte(50);
    } else {
        frame_byte(0x96);
        frame_text("generated_text");
        frame_text(TEXT);
        frame_text("stop");
        frame_byte(0xc0);
        frame_byte(50);
        frame_byte(50);
    }
    frame_byte(0xc0);
    frame_end(c);
}

static void on_frame(Connection *c, const uint8_t *body) {
    switch (body[1]) {
    case 0: /* Hello */
        frame_begin();
        frame_byte(0x98);
        frame_byte(0x00);
        frame_byte(0x01);
        frame_text("mock");
        frame_text("");
        frame_text("gec-en");
        frame_text("sha256:mock");
        frame_byte(0xcd);
        frame_byte(0x04);
        frame_byte(0x00);
        frame_text("ready");
        frame_end(c);
        return;
    case 1: answer_request(c, body + 2); return;
    case 6: /* Ping */
        frame_begin();
        frame_byte(0x94);
        frame_byte(0x07);
        frame_bytes(body + 2, value_length(body + 2));
        frame_load();
        frame_text("ready");
        frame_end(c);
        return;
    }
}

static size_t take_frames(Connection *c) {
    size_t position = 0;
    while (c->in_length - position >= 4) {
        uint32_t length;
        memcpy(&length, c->in + position, 4);
        length = ntohl(length);
        if (c->in_length - position - 4 < length) break;
        on_frame(c, c->in + position + 4);
        position += 4 + length;
    }
    return position;
}

static size_t take_requests(Connection *c) {
    size_t position = 0;
    for (;;) {
        char *start = (char *)c->in + position;
        char *end = memmem(start, c->in_length - position, "\r\n\r\n", 4);
        if (end == NULL) return position;
        size_t body = 0;
        for (char *line = start; line < end; line = (char *)memmem(line, (size_t)(end + 2 - line), "\r\n", 2) + 2)
            if (strncasecmp(line, "content-length:", 15) == 0) body = strtoul(line + 15, NULL, 10);
        size_t whole = (size_t)(end + 4 - start) + body;
        if (c->in_length - position < whole) return position;
        if (start[0] == 'P')
            put(c, http_answer, http_answer_length);
        else
            put(c, http_info, http_info_length);
        position += whole;
    }
}

static int flush(Connection *c) {
    size_t sent = 0;
    while (sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + sent, c->out_length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd writable = {.fd = c->fd, .events = POLLOUT};
            poll(&writable, 1, 1000);
            continue;
        }
        if (n < 0) return -1;
        sent += (size_t)n;
    }
    c->out_length = 0;
    return 0;
}

static int on_readable(Connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_length, IN_BYTES - c->in_length, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) return -1;
    c->in_length += (size_t)n;
    size_t taken = c->in[0] == 0 ? take_frames(c) : take_requests(c);
    memmove(c->in, c->in + taken, c->in_length - taken);
    c->in_length -= taken;
    return flush(c);
}

static Connection *watch(int epoll, int fd, int listener) {
    Connection *c = malloc(listener ? offsetof(Connection, in) : sizeof *c);
    if (c == NULL) die("malloc");
    c->fd = fd;
    c->listener = listener;
    c->in_length = c->out_length = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl");
    return c;
}

static void listen_on(int epoll, int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) die("bind");
    if (listen(fd, 1024) != 0) die("listen");
    watch(epoll, fd, 1);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: mock_pods FIRST_PORT COUNT\n");
        return 2;
    }
    make_http_answers();
    struct rlimit files = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &files);
    int epoll = epoll_create1(0);
    for (int port = atoi(argv[1]), last = port + atoi(argv[2]); port < last; port++) listen_on(epoll, port);
    watch(epoll, STDIN_FILENO, 2);
    puts("listening");
    fflush(stdout);
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            if (c->listener == 2) return 0;
            if (c->listener == 1) {
                int fd = accept4(c->fd, NULL, NULL, SOCK_NONBLOCK), one = 1;
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                watch(epoll, fd, 0);
            } else if (on_readable(c) != 0) {
                close(c->fd);
                free(c);
            }
        }
    }
}
