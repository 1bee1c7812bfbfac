/* A load generator: closed loop on each of a few keep-alive connections, one thread, one poll set.

       load PORT MESSAGES FIRST MOST [--acknowledged] < plan

   MOST is the number of messages a second that are not exceeded; 0: as many as are answered. The plan holds one pre-rendered HTTP request for each connection:

       "LENGTH NUMBER_AT ID_AT\n" and LENGTH bytes

   In it two fields are patched before each send: the message number (WIDTH characters at NUMBER_AT, blanks
   first) and a part of the MessageID (WIDTH hexadecimal digits at ID_AT). A connection sends FIRST,
   FIRST+1, … FIRST+MESSAGES-1, each after the answer to the one before. Every answer has to be a 200; with
   --acknowledged it also has to hold an acknowledgement range that ends with the number just sent.

   One JSON object on standard output: messages, seconds, cpu_share (of one core, this process), p50_us,
   p99_us, answer_bytes (mean length of a body). Anything unexpected ends it with a reason and status 1. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 12, MOST = 256, ROOM = 65536, PATIENCE_MS = 20000 };

typedef struct {
    int socket;
    char *request;
    size_t length, number_at, id_at;
    unsigned long long number;
    long long sent_at;
    char answer[ROOM + 1];
    size_t received;
} Connection;

static Connection connections[MOST];
static struct pollfd polled[MOST];
static size_t opened;

static void fail(const char *reason) {
    fprintf(stderr, "load: %s%s%s\n", reason, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Sleep until ``done`` messages are not too many for the time since ``begun``. */
static void keep_to(unsigned long long most, size_t done, long long begun) {
    long long early = most ? begun + (long long)(done * 1000000000ULL / most) - nanoseconds() : 0;
    if (early > 0) nanosleep(&(struct timespec){early / 1000000000LL, early % 1000000000LL}, 0);
}

static int by_value(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static void connect_to(Connection *c, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void read_plan(int port) {
    size_t length, number_at, id_at;
    while (opened < MOST && scanf("%zu %zu %zu", &length, &number_at, &id_at) == 3) {
        Connection *c = &connections[opened];
        getchar();
        c->request = malloc(length);
        if (!c->request || fread(c->request, 1, length, stdin) != length) fail("the plan is cut short");
        if (number_at + WIDTH > length || id_at + WIDTH > length) fail("a field is outside its request");
        c->length = length, c->number_at = number_at, c->id_at = id_at;
        connect_to(c, port);
        polled[opened++] = (struct pollfd){.fd = c->socket, .events = POLLIN};
    }
    if (!opened) fail("the plan is empty");
}

static void send_next(Connection *c) {
    char field[WIDTH + 24];
    size_t sent = 0;
    snprintf(field, sizeof field, "%*llu", WIDTH, c->number);
    memcpy(c->request + c->number_at, field, WIDTH);
    snprintf(field, sizeof field, "%0*llx", WIDTH, c->number);
    memcpy(c->request + c->id_at, field, WIDTH);
    c->received = 0;
    c->sent_at = nanoseconds();
    while (sent < c->length) {
        ssize_t n = send(c->socket, c->request + sent, c->length - sent, MSG_NOSIGNAL);
        if (n <= 0) fail("send");
        sent += n;
    }
}

/* Length of the body once the answer is whole, else -1. */
static long body_of(Connection *c, const char **body) {
    char *end = strstr(c->answer, "\r\n\r\n"), *line;
    long length = -1;
    if (!end) return -1;
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0) errno = 0, fail(c->answer);
    for (line = c->answer; line < end; line = strstr(line, "\r\n") + 2)
        if (strncasecmp(line, "content-length:", 15) == 0) length = atol(line + 15);
    if (length < 0) errno = 0, fail("an answer without Content-Length");
    *body = end + 4;
    return c->received >= (size_t)(*body - c->answer) + length ? length : -1;
}

int main(int argc, char **argv) {
    int acknowledged = argc == 6 && strcmp(argv[5], "--acknowledged") == 0;
    if (argc < 5) errno = 0, fail("load PORT MESSAGES FIRST MOST [--acknowledged] < plan");
    unsigned long long each = strtoull(argv[2], 0, 10), first = strtoull(argv[3], 0, 10),
                       most = strtoull(argv[4], 0, 10);
    read_plan(atoi(argv[1]));
    size_t total = opened * each, done = 0, going = opened;
    unsigned *latency = malloc(total * sizeof *latency);
    unsigned long long answer_bytes = 0;
    if (!each || !latency) errno = 0, fail("nothing to send");

    long long begun = nanoseconds();
    double cpu = cpu_seconds();
    for (size_t i = 0; i < opened; i++) connections[i].number = first, send_next(&connections[i]);
    while (going) {
        keep_to(most, done, begun);
        int ready = poll(polled, opened, PATIENCE_MS);
        if (ready <= 0) fail("no answer came");
        for (size_t i = 0; i < opened; i++) {
            Connection *c = &connections[i];
            const char *body;
            char wanted[40];
            if (!polled[i].revents) continue;
            ssize_t n = recv(c->socket, c->answer + c->received, ROOM - c->received, 0);
            if (n <= 0) fail("the server closed a connection");
            c->received += n;
            c->answer[c->received] = 0;
            long length = body_of(c, &body);
            if (length < 0) continue;
            latency[done++] = (nanoseconds() - c->sent_at) / 1000;
            answer_bytes += length;
            snprintf(wanted, sizeof wanted, "Upper=\"%llu\"", c->number);
            if (acknowledged && !strstr(body, wanted)) errno = 0, fail(body);
            if (++c->number < first + each)
                send_next(c);
            else
                polled[i].fd = -1, polled[i].revents = 0, close(c->socket), going--;
        }
    }
    double seconds = (nanoseconds() - begun) / 1e9, share = (cpu_seconds() - cpu) / seconds;
    qsort(latency, total, sizeof *latency, by_value);
    printf("{\"messages\": %zu, \"seconds\": %.6f, \"cpu_share\": %.4f, \"p50_us\": %u, \"p99_us\": %u, "
           "\"answer_bytes\": %.1f}\n",
           total, seconds, share, latency[total / 2], latency[total * 99 / 100], (double)answer_bytes / total);
    return 0;
}
