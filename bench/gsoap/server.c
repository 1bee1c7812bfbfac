/* gSOAP's WS-RM server, the one that is measured against: all of it in memory.

       server plain|queue

   Prints its port and serves until it is killed, or whoever started it dies.

   plain: a thread for each connection, soap_serve(), and soap_wsrm_check() in the operation. Nothing is kept; a message
   that is not the next one is answered 202 and forgotten.

   queue: the two loops that the documentation of the mq plug-in gives, with what keeps those from working repaired; the
   order of calls, the plug-in's queue and its copies of the context are as documented.
     - Each connection has a context and plug-ins of its own: the plug-in keeps the message that is being read in data
       that all copies of a context share, which would be all connections.
     - A message is read from its own bytes each time that it is looked at, by a function of ours: the plug-in's own is
       used up by the first look, and reads past the end of what is longer than a buffer.
     - A message is served once: soap_serve() comes back for another after a one-way operation, finds the message read
       to its end, and closes the connection.
     - Copies are parted from the socket before they are done with: soap_done() closes it, which ends keep-alive after
       one message and closes the number again when it is another thread's. In the second loop the connection is gone,
       and answers go nowhere.
     - A connection's context is freed when its thread ends. */

#include "soapH.h"
#include "orders.nsmap"
#include "mq.h"
#include "wsrmapi.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

typedef struct { const char *next; size_t left; } Unread;

static int checks_in_operation;

/* the service */

int ns__put(struct soap *soap, char *text) {
    (void)text;
    if (checks_in_operation && soap_wsrm_check(soap)) return soap->error;
    return soap_send_empty_response(soap, 202);
}

int ns__ask(struct soap *soap, char *text, struct ns__askResponse *answer) {
    if (checks_in_operation && soap_wsrm_check(soap)) return soap->error;
    answer->text = text;
    return soap_wsrm_reply(soap, NULL, "urn:example:orders/askResponse");
}

int SOAP_ENV__Fault(struct soap *soap, char *code, char *string, char *actor, struct SOAP_ENV__Detail *detail,
                    struct SOAP_ENV__Code *code12, struct SOAP_ENV__Reason *reason, char *node, char *role,
                    struct SOAP_ENV__Detail *detail12) {
    (void)code, (void)string, (void)actor, (void)detail, (void)code12, (void)reason, (void)node, (void)role,
        (void)detail12;
    return soap_send_empty_response(soap, 202);
}

static struct soap *context(void) {
    struct soap *soap = soap_new1(SOAP_IO_KEEPALIVE | SOAP_C_UTFSTRING);
    soap_register_plugin(soap, soap_wsa);
    soap_register_plugin(soap, soap_wsrm);
    soap_register_plugin(soap, soap_mq);
    soap->max_keep_alive = 0; /* no end; by default the hundredth message is the last */
    soap->bind_flags = SO_REUSEADDR;
    return soap;
}

static void finish(struct soap *soap) {
    soap_destroy(soap);
    soap_end(soap);
    soap_free(soap);
}

/* plain */

static void *serve_plain(void *given) {
    soap_serve(given);
    finish(given);
    return NULL;
}

/* the queue */

static size_t read_own(struct soap *soap, char *buffer, size_t length) {
    Unread *unread = soap->user;
    if (length > unread->left) length = unread->left;
    memcpy(buffer, unread->next, length);
    unread->next += length, unread->left -= length;
    return length;
}

static int send_nowhere(struct soap *soap, const char *bytes, size_t length) {
    (void)soap, (void)bytes, (void)length;
    return SOAP_OK;
}

/* Read ``message`` from its first byte; what the connection had buffered belongs to it and is in it. */
static void rewind_to(struct soap *soap, struct soap_mq_msg *message, Unread *unread) {
    *unread = (Unread){message->buf, message->len};
    soap->user = unread;
    soap->frecv = read_own;
    soap->keep_alive = 1;
    soap->buflen = soap->bufidx = 0;
}

static void done_with(struct soap *copy) {
    copy->socket = SOAP_INVALID_SOCKET;
    soap_destroy(copy);
    soap_end(copy);
    soap_done(copy);
}

static void drop(struct soap_mq_queue *queue, struct soap_mq_msg *message) {
    message->soap.socket = SOAP_INVALID_SOCKET;
    soap_mq_del(queue, message);
}

static void serve_once(struct soap *soap) {
    if (!soap_begin_serve(soap) && soap_serve_request(soap) && soap->error < SOAP_STOP) soap_send_fault(soap);
}

/* Serve a message if it is its turn; if it is not, it stays in the queue. */
static void attempt(struct soap_mq_queue *queue, struct soap_mq_msg *message) {
    struct soap copy;
    Unread unread;
    soap_copy_context(&copy, &message->soap);
    rewind_to(&copy, message, &unread);
    int failed = soap_begin_serve(&copy);
    int is_reliable = !failed && copy.header && copy.header->wsrm__Sequence;
    if (!failed && is_reliable && soap_wsrm_check(&copy)) {
        failed = copy.error != SOAP_STOP;
        if (failed) soap_send_fault(&copy);
    } else if (!failed) {
        rewind_to(&message->soap, message, &unread);
        serve_once(&message->soap);
        drop(queue, message);
    }
    if (failed) drop(queue, message);
    done_with(&copy);
}

static void *serve_queue(void *given) {
    struct soap *soap = given;
    struct soap_mq_queue *queue = soap_mq_queue(soap);
    struct soap_mq_msg *message;
    for (;;) {
        soap->keep_alive = 1;
        message = soap_mq_get(soap, queue);
        if (!message) break;
        attempt(queue, message);
    }
    soap->keep_alive = 0;
    soap_closesock(soap);
    while ((message = soap_mq_begin(queue)) != NULL) {
        for (struct soap_mq_msg *next; message; message = next) {
            next = soap_mq_next(message);
            message->soap.socket = SOAP_INVALID_SOCKET;
            message->soap.fsend = send_nowhere;
            attempt(queue, message);
        }
        sleep(1);
    }
    finish(soap);
    return NULL;
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (argc != 2 || (strcmp(argv[1], "plain") && strcmp(argv[1], "queue"))) {
        fprintf(stderr, "server plain|queue\n");
        return 1;
    }
    checks_in_operation = strcmp(argv[1], "plain") == 0;
    struct soap *listening = context();
    struct sockaddr_in bound;
    socklen_t size = sizeof bound;
    if (!soap_valid_socket(soap_bind(listening, "127.0.0.1", 0, 256))) {
        soap_print_fault(listening, stderr);
        return 1;
    }
    getsockname(listening->master, (struct sockaddr *)&bound, &size);
    printf("%d\n", ntohs(bound.sin_port));
    fflush(stdout);
    while (soap_valid_socket(soap_accept(listening))) {
        pthread_t thread;
        struct soap *soap = context();
        soap->socket = listening->socket;
        listening->socket = SOAP_INVALID_SOCKET;
        if (pthread_create(&thread, NULL, checks_in_operation ? serve_plain : serve_queue, soap)) return 1;
        pthread_detach(thread);
    }
    soap_print_fault(listening, stderr);
    return 1;
}
