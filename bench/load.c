/* A load generator: closed loop on each of a few keep-alive connections, one thread.

       load PORT SECONDS MOST [--acknowledged] < plan

   Each connection sends its steps one after the other, each after the answer to the one before, until they are used up
   or SECONDS are over (0: no end). MOST is the number of messages a second, of all connections together, that are not
   exceeded; 0: as many as are answered. The plan is the whole run, made before:

       "LENGTH IDENTIFIER_AT NUMBER_AT ID_AT WIDTH SEQUENCES CONNECTIONS\n"
       LENGTH bytes: one pre-rendered HTTP request
       SEQUENCES identifiers of WIDTH bytes
       for each connection: how many steps, and for each step the index of its sequence and its message number,
       all of them 32 bits as the machine has them

   Before each send three fields of the request are patched: the identifier at IDENTIFIER_AT, the message number at
   NUMBER_AT (NUMBER_WIDTH characters, blanks first), and the MessageID, a UUID at ID_AT whose first eight and last
   twelve digits become the sequence's index and the number: a message that is sent again has the same one. Where an
   offset is 0 there is no such field.

   200, 202 and 503 are counted, and what is none of these; a 503 is sent again. With --acknowledged the answer has to
   hold an acknowledgement range that ends with the number just sent. A server that says "Connection: close" is
   connected to again.

   One JSON object on standard output: messages (answered, not with 503), seconds, cpu_share (of one core, this
   process), p50_us, p99_us, answer_bytes (mean length of a body), answers (how many of each status), closed (how
   often the server closed), begun (CLOCK_MONOTONIC, ns). Anything unexpected ends it with a reason and status 1; the first answer that is counted as
   "other" is shown on standard error. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER_WIDTH = 12, UUID_WIDTH = 36, UUID_TAIL_AT = 24, MOST_CONNECTIONS = 256,
       ROOM = 65536, PATIENCE_S = 60 };
enum { OK, ACCEPTED, UNAVAILABLE, OTHER, STATUSES };

typedef struct { uint32_t sequence, number; } Step;

typedef struct {
    int socket;
    char *request; /* its own copy */
    Step *steps;
    uint32_t count, at;
    long long sent_at;
    char answer[ROOM + 1];
    size_t received;
} Connection;

static Connection connections[MOST_CONNECTIONS];
static size_t opened, length, identifier_at, number_at, id_at, width;
static char *identifiers;
static int port, polled = -1;
static struct sockaddr_in address = {.sin_family = AF_INET};
static size_t answers[STATUSES], closed;

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

static void open_connection(Connection *c) {
    int on = 1;
    struct timeval patience = {.tv_sec = PATIENCE_S};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (epoll_ctl(polled, EPOLL_CTL_ADD, c->socket, &event) < 0) fail("epoll_ctl");
}

static void *read_all(size_t size) {
    char *bytes = malloc(size + 1);
    if (!bytes || fread(bytes, 1, size, stdin) != size) errno = 0, fail("the plan is cut short");
    return bytes;
}

static size_t read_plan(void) {
    size_t sequences, total = 0;
    if (scanf("%zu %zu %zu %zu %zu %zu %zu", &length, &identifier_at, &number_at, &id_at, &width, &sequences,
              &opened) != 7)
        errno = 0, fail("not a plan");
    getchar();
    if (!opened || opened > MOST_CONNECTIONS) errno = 0, fail("no connections, or too many");
    if (identifier_at + width > length || number_at + NUMBER_WIDTH > length || id_at + UUID_WIDTH > length)
        errno = 0, fail("a field is outside the request");
    char *request = read_all(length);
    identifiers = read_all(sequences * width);
    for (Connection *c = connections; c < connections + opened; c++) {
        uint32_t *count = read_all(sizeof *count);
        c->count = *count, c->at = 0;
        c->steps = read_all(c->count * sizeof *c->steps);
        for (Step *step = c->steps; step < c->steps + c->count; step++)
            if (step->sequence >= sequences) errno = 0, fail("a step of no sequence");
        c->request = malloc(length);
        if (!c->request) fail("memory");
        memcpy(c->request, request, length);
        total += c->count;
    }
    return total;
}

static void patch(Connection *c, Step step) {
    char field[40];
    if (identifier_at)
        memcpy(c->request + identifier_at, identifiers + step.sequence * width, width);
    if (number_at) {
        snprintf(field, sizeof field, "%*u", NUMBER_WIDTH, step.number);
        memcpy(c->request + number_at, field, NUMBER_WIDTH);
    }
    if (id_at) {
        snprintf(field, sizeof field, "%08x%012x", step.sequence, step.number);
        memcpy(c->request + id_at, field, 8);
        memcpy(c->request + id_at + UUID_TAIL_AT, field + 8, 12);
    }
}

static void send_step(Connection *c) {
    size_t sent = 0;
    patch(c, c->steps[c->at]);
    c->received = 0;
    c->sent_at = nanoseconds();
    while (sent < length) {
        ssize_t n = send(c->socket, c->request + sent, length - sent, MSG_NOSIGNAL);
        if (n <= 0) fail("send");
        sent += n;
    }
}

typedef struct { int status, closes; long length; const char *body; } Answer;

/* The answer, once it is whole; until then its length is -1. */
static Answer answer_of(Connection *c) {
    Answer answer = {.length = -1};
    char *end = strstr(c->answer, "\r\n\r\n"), *line;
    long told = -1;
    if (!end) return answer;
    if (strncmp(c->answer, "HTTP/1.1 ", 9) != 0) errno = 0, fail(c->answer);
    answer.status = atoi(c->answer + 9), answer.body = end + 4;
    for (line = strstr(c->answer, "\r\n") + 2; line < end + 2; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, "content-length:", 15) == 0) told = atol(line + 15);
        if (strncasecmp(line, "connection: close", 17) == 0) answer.closes = 1;
    }
    if (told < 0) errno = 0, fail("an answer without Content-Length");
    if (c->received >= (size_t)(answer.body - c->answer) + told) answer.length = told;
    return answer;
}

static int counted(int status) {
    return status == 200 ? OK : status == 202 ? ACCEPTED : status == 503 ? UNAVAILABLE : OTHER;
}

int main(int argc, char **argv) {
    int acknowledged = argc == 5 && strcmp(argv[4], "--acknowledged") == 0;
    if (argc < 4) errno = 0, fail("load PORT SECONDS MOST [--acknowledged] < plan");
    port = atoi(argv[1]);
    long long lasting = strtod(argv[2], 0) * 1e9;
    unsigned long long most = strtoull(argv[3], 0, 10), answer_bytes = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    address.sin_port = htons(port), address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    polled = epoll_create1(0);
    size_t total = read_plan(), done = 0, going = opened;
    unsigned *latency = malloc(total * sizeof *latency);
    if (!total || !latency) errno = 0, fail("nothing to send");
    for (size_t i = 0; i < opened; i++) open_connection(&connections[i]);

    long long begun = nanoseconds(), now = begun;
    double cpu = cpu_seconds();
    for (size_t i = 0; i < opened; i++) {
        if (connections[i].count)
            send_step(&connections[i]);
        else
            going--;
    }
    while (going) {
        struct epoll_event ready[MOST_CONNECTIONS];
        int n = 1;
        keep_to(most, done, begun);
        if (opened == 1)
            ready[0].data.ptr = connections; /* recv waits by itself */
        else if ((n = epoll_wait(polled, ready, MOST_CONNECTIONS, PATIENCE_S * 1000)) <= 0)
            fail("no answer came");
        for (int i = 0; i < n; i++) {
            Connection *c = ready[i].data.ptr;
            char wanted[40];
            ssize_t got = recv(c->socket, c->answer + c->received, ROOM - c->received, 0);
            if (got <= 0) fail(got ? "no answer came" : "the server closed a connection without an answer");
            c->received += got;
            c->answer[c->received] = 0;
            Answer answer = answer_of(c);
            if (answer.length < 0) continue;
            now = nanoseconds();
            int kind = counted(answer.status);
            if (kind == OTHER && !answers[OTHER]) fprintf(stderr, "load: other: %s\n", c->answer);
            answers[kind]++;
            snprintf(wanted, sizeof wanted, "Upper=\"%u\"", c->steps[c->at].number);
            if (acknowledged && kind == OK && !strstr(answer.body, wanted)) errno = 0, fail(answer.body);
            if (kind != UNAVAILABLE) {
                latency[done++] = (now - c->sent_at) / 1000;
                answer_bytes += answer.length;
                c->at++;
            }
            if (answer.closes) close(c->socket), closed++;
            if (c->at < c->count && (!lasting || now - begun < lasting)) {
                if (answer.closes) open_connection(c);
                send_step(c);
            } else {
                if (!answer.closes) close(c->socket);
                going--;
            }
        }
    }
    double seconds = (now - begun) / 1e9, share = (cpu_seconds() - cpu) / seconds;
    if (!done) errno = 0, fail("nothing but 503 came");
    qsort(latency, done, sizeof *latency, by_value);
    printf("{\"messages\": %zu, \"seconds\": %.6f, \"cpu_share\": %.4f, \"p50_us\": %u, \"p99_us\": %u, "
           "\"answer_bytes\": %.1f, \"answers\": {\"200\": %zu, \"202\": %zu, \"503\": %zu, \"other\": %zu}, "
           "\"closed\": %zu, \"begun\": %lld}\n",
           done, seconds, share, latency[done / 2], latency[done * 99 / 100], (double)answer_bytes / done,
           answers[OK], answers[ACCEPTED], answers[UNAVAILABLE], answers[OTHER], closed, begun);
    return 0;
}
