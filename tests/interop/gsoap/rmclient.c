/* rmclient URL [2004]: a scripted gSOAP RM Source, over WS-Addressing 1.0 or 2004/08.

Reads a conversation from stdin, one step a line, serves its own address meanwhile if it has one, and prints what the
source knows after each step as one line of JSON:
  step, error   the line, and gSOAP's error code (0: none)
  http          status of the answer (0: there was none)
  fault         code, subcode, reason, identifier (of the sequence, from the detail), or null
  acked, final  ranges that the answer acknowledged (null: no acknowledgement of this sequence), and its Final
  pending       numbers sent and still kept for resends
  seq, state    the sequence's Identifier; none, unknown, created, closed, terminated
  lifetime      seconds until gSOAP takes the sequence for expired
  received      ranges received of the offered sequence
  reply         result of a two-way call, in the answer
  replies       number in the offered sequence (0: none) and text of each result so far, however it came; what comes
                again with the same number and text is the same one
  more          MessagePending of the answer: more waits to be fetched
  port          of the source's own address, 0 before it listens
  message_id, relates_to   of the answer
  connections   TCP connections opened so far
Exit status 2: a line that is not a step.
*/
#include "source.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "orders.nsmap"

#define MAX_WORDS 8

/* ---- JSON ---- */

static void put_string(const char *text)
{
  if (!text) {
    fputs("null", stdout);
    return;
  }
  putchar('"');
  for (; *text; text++)
    if (*text == '"' || *text == '\\')
      printf("\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      printf("\\u%04x", *text);
    else
      putchar(*text);
  putchar('"');
}

static void put_field(const char *name, const char *text)
{
  printf(", \"%s\": ", name);
  put_string(text);
}

static void put_range(int first, ULONG64 lower, ULONG64 upper)
{
  printf("%s[" SOAP_ULONG_FORMAT ", " SOAP_ULONG_FORMAT "]", first ? "" : ", ", lower, upper);
}

/* The answer's SOAP header. With an empty answer the context still has the request's. */
static struct SOAP_ENV__Header *answer(const struct soap *soap)
{
  return soap->status && soap->status != 202 ? soap->header : NULL;
}

static void put_fault(struct soap *soap, int error)
{
  struct SOAP_ENV__Header *header = answer(soap);
  struct SOAP_ENV__Detail *detail;
  const char *subcode;
  fputs(", \"fault\": ", stdout);
  if (!soap->fault || !soap->status || !soap_soap_error_check(error)) {
    fputs("null", stdout);
    return;
  }
  if (header && header->wsrm__SequenceFault) {
    subcode = soap_wsrm__FaultCodes2s(soap, header->wsrm__SequenceFault->FaultCode);
    detail = header->wsrm__SequenceFault->Detail;
  } else {
    subcode = soap->version == 2 ? *soap_faultsubcode(soap) : NULL;
    detail = soap->version == 2 ? soap->fault->SOAP_ENV__Detail : soap->fault->detail;
  }
  fputs("{\"code\": ", stdout);
  put_string(*soap_faultcode(soap));
  put_field("subcode", subcode);
  put_field("reason", *soap_faultstring(soap));
  put_field("identifier", detail && detail->__type == SOAP_TYPE__wsrm__Identifier ? (const char *)detail->fault : NULL);
  putchar('}');
}

static void put_acknowledgement(const struct source *s)
{
  struct SOAP_ENV__Header *header = answer(s->soap);
  int i, j, final = 0, named = 0;
  fputs(", \"acked\": ", stdout);
  for (i = 0; header && s->seq && s->seq->id && i < header->__sizeSequenceAcknowledgement; i++) {
    struct _wsrm__SequenceAcknowledgement *ack = &header->wsrm__SequenceAcknowledgement[i];
    if (!ack->Identifier || strcmp(ack->Identifier, s->seq->id))
      continue;
    putchar('[');
    for (j = 0; j < ack->__sizeAcknowledgementRange; j++)
      put_range(!j, ack->AcknowledgementRange[j].Lower, ack->AcknowledgementRange[j].Upper);
    putchar(']');
    final = ack->Final != NULL;
    named = 1;
    break;
  }
  printf("%s, \"final\": %s", named ? "" : "null", final ? "true" : "false");
}

static void put_sequence(const struct source *s)
{
  static const char *const names[] = {"none", "unknown", "created", "closed", "terminated"};
  ULONG64 i;
  struct soap_wsrm_range *r;
  const char *separator = "";
  put_field("seq", s->seq ? s->seq->id : NULL);
  put_field("state", s->seq ? names[s->seq->state] : NULL);
  fputs(", \"pending\": [", stdout);
  for (i = 0; s->seq && s->seq->messages && i < s->seq->num; i++)
    if (s->seq->messages[i] && s->seq->messages[i]->state != SOAP_WSRM_ACK) {
      printf("%s" SOAP_ULONG_FORMAT, separator, i + 1);
      separator = ", ";
    }
  printf("], \"lifetime\": %ld, \"received\": [", s->seq ? (long)(s->seq->expires - time(NULL)) : 0L);
  for (r = s->seq ? s->seq->ranges : NULL; r; r = r->next)
    put_range(r == s->seq->ranges, r->lower, r->upper);
  putchar(']');
}

static void put_replies(const struct source *s)
{
  size_t i;
  fputs(", \"replies\": [", stdout);
  for (i = 0; i < s->reply_count; i++) {
    printf("%s[" SOAP_ULONG_FORMAT ", ", i ? ", " : "", s->replies[i].number);
    put_string(s->replies[i].text);
    putchar(']');
  }
  putchar(']');
}

static void report(const struct source *s, const char *step, int error)
{
  struct soap *soap = s->soap;
  struct SOAP_ENV__Header *header;
  if (soap->status > 599)
    soap->status = 0;  /* still the request's method: nothing came */
  header = answer(soap);
  fputs("{\"step\": ", stdout);
  put_string(step);
  printf(", \"error\": %d, \"http\": %d, \"connections\": %d", error, soap->status, s->connections);
  put_fault(soap, error);
  put_acknowledgement(s);
  put_sequence(s);
  put_field("reply", s->reply);
  put_replies(s);
  printf(", \"port\": %d, \"more\": %s", s->port,
         header && header->wsmc__MessagePending && header->wsmc__MessagePending->pending ? "true" : "false");
  put_field("message_id", header ? header->wsa5__MessageID : NULL);
  put_field("relates_to", header && header->wsa5__RelatesTo ? header->wsa5__RelatesTo->__item : NULL);
  puts("}");
  fflush(stdout);
}

/* ---- steps: words[0] is the verb, missing words are NULL ---- */

typedef int step_function(struct source *s, char **words);

static ULONG64 number(const char *word)
{
  return word ? strtoull(word, NULL, 10) : 0;
}

static int on(const char *word)
{
  return word && !strcmp(word, "on");
}

/* "size=70000" stands for a text of that length; no word, for the number itself. */
static const char *text(const struct source *s, const char *word, const char *otherwise)
{
  size_t size;
  char *filled;
  if (!word)
    return otherwise ? otherwise : "";
  if (strncmp(word, "size=", 5))
    return word;
  size = strtoul(word + 5, NULL, 10);
  filled = (char *)soap_malloc(s->soap, size + 1);
  memset(filled, 'x', size);
  filled[size] = '\0';
  return filled;
}

static int step_create(struct source *s, char **words)
{
  struct terms terms;
  memset(&terms, 0, sizeof terms);
  terms.behavior = NoDiscard;
  for (words++; *words; words++) {
    char *value = strchr(*words, '=');
    if (value)
      *value++ = '\0';
    if (!strcmp(*words, "offer")) {
      terms.offer = 1;
      terms.offered = value;
    } else if (!value)
      return SOAP_USER_ERROR;
    else if (!strcmp(*words, "expires"))
      terms.expires = (LONG64)number(value);
    else if (!strcmp(*words, "acksto"))
      terms.acksto = value;
    else if (!strcmp(*words, "replyto"))
      terms.replyto = value;
    else if (!strcmp(*words, "message-id"))
      terms.message_id = value;
    else if (strcmp(*words, "behavior") || soap_s2wsrm__IncompleteSequenceBehaviorType(s->soap, value, &terms.behavior))
      return SOAP_USER_ERROR;
  }
  return source_create(s, &terms);
}

static int step_send(struct source *s, char **words) { return source_put(s, number(words[1]), text(s, words[2], words[1]), 0); }
static int step_send_next(struct source *s, char **words) { return source_put(s, 0, text(s, words[1], NULL), 0); }
static int step_send_ackreq(struct source *s, char **words) { return source_put(s, 0, text(s, words[1], NULL), 1); }
static int step_lose(struct source *s, char **words) { return source_lose(s, number(words[1]), text(s, words[2], words[1])); }
static int step_deaf(struct source *s, char **words) { return source_deaf(s, number(words[1]), text(s, words[2], words[1])); }
static int step_echo(struct source *s, char **words) { return source_echo(s, number(words[1]), text(s, words[2], NULL)); }
static int step_dup(struct source *s, char **words) { return source_repeat(s, number(words[1]), text(s, words[2], words[1])); }
static int step_unknown(struct source *s, char **words) { return source_stray(s, words[1], text(s, words[2], NULL)); }
static int step_plain(struct source *s, char **words) { return source_plain(s, number(words[1]), text(s, words[2], words[1])); }
static int step_resend(struct source *s, char **words) { return source_resend(s, number(words[1]), words[1] ? number(words[2]) : 0); }
static int step_again(struct source *s, char **words) { return source_again(s, number(words[1])); }
static int step_listen(struct source *s, char **words) { (void)words; return source_listen(s); }
static int step_poll(struct source *s, char **words) { return source_poll(s, words[1]); }
static int step_ack(struct source *s, char **words) { (void)words; return source_ack(s); }
static int step_ackreq(struct source *s, char **words) { return source_ackreq(s, words[1]); }
static int step_close(struct source *s, char **words) { return source_close(s, number(words[1])); }
static int step_terminate(struct source *s, char **words) { return source_terminate(s, number(words[1])); }
static int step_state(struct source *s, char **words) { (void)s, (void)words; return SOAP_OK; }
static int step_keepalive(struct source *s, char **words) { source_keep_alive(s, on(words[1])); return SOAP_OK; }
static int step_chunked(struct source *s, char **words) { source_chunked(s, on(words[1])); return SOAP_OK; }
static int step_sleep(struct source *s, char **words) { (void)s; usleep(1000 * (useconds_t)number(words[1])); return SOAP_OK; }

static const struct {
  const char *verb;
  int needs_sequence;
  step_function *run;
} steps[] = {
  {"listen", 0, step_listen},           /* on a free port of the loopback */
  {"create", 0, step_create},           /* [expires=MS] [offer[=ID]] [behavior=NAME] [acksto=URL] [replyto=URL] [message-id=ID] */
  {"send", 1, step_send},               /* N [TEXT] */
  {"send-next", 1, step_send_next},     /* [TEXT] */
  {"send-ackreq", 1, step_send_ackreq}, /* [TEXT]: the next one, with AckRequested */
  {"lose", 1, step_lose},               /* N [TEXT]: numbered and kept, but lost on its way */
  {"deaf", 1, step_deaf},               /* N [TEXT]: it arrives, the answer is lost with the connection */
  {"echo", 1, step_echo},               /* N [TEXT] */
  {"dup", 1, step_dup},                 /* N [TEXT]: the number again, a new message */
  {"raw-number", 1, step_dup},          /* N: a number the plug-in would refuse to send */
  {"unknown", 0, step_unknown},         /* ID [TEXT] */
  {"plain", 0, step_plain},             /* N [TEXT]: without a Sequence header */
  {"resend", 1, step_resend},           /* [LOWER [UPPER]] of what is not acknowledged */
  {"again", 1, step_again},             /* N: what was sent, if it is not acknowledged, and its answer is read */
  {"poll", 0, step_poll},               /* ADDRESS: MakeConnection */
  {"ack", 1, step_ack},                 /* of the offered sequence, by itself */
  {"ackreq", 1, step_ackreq},           /* [ID] */
  {"close", 1, step_close},             /* [LAST] */
  {"terminate", 1, step_terminate},     /* [LAST] */
  {"state", 0, step_state},
  {"keepalive", 0, step_keepalive},     /* on|off */
  {"chunked", 0, step_chunked},         /* on|off */
  {"sleep", 0, step_sleep},             /* MS */
};

static int run_step(struct source *s, char *line)
{
  char *words[MAX_WORDS + 1] = {NULL};
  size_t i;
  for (i = 0; i < MAX_WORDS && (words[i] = strtok(i ? NULL : line, " ")); i++)
    ;
  for (i = 0; words[0] && i < sizeof steps / sizeof *steps; i++)
    if (!strcmp(words[0], steps[i].verb)) {
      if (steps[i].needs_sequence && (!s->seq || !s->seq->id))
        return SOAP_USER_ERROR;
      source_begin(s);
      return steps[i].run(s, words);
    }
  return SOAP_USER_ERROR;
}

/* Serves the source's own address until there is a line to read. */
static void wait_for_a_line(struct source *s)
{
  struct pollfd ready[2] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};
  if (s->endpoint)
    ready[1].fd = s->endpoint->master;
  while (poll(ready, 2, -1) >= 0 && !ready[0].revents)
    if (ready[1].revents)
      source_serve(s);
}

int main(int argc, char **argv)
{
  struct source source;
  char *line = NULL, *step;
  size_t room = 0;
  ssize_t length;
  signal(SIGPIPE, SIG_IGN);
  if (argc < 2 || source_open(&source, argv[1], argc > 2 ? argv[2] : "2005")) {
    fputs("usage: rmclient URL [2004] < steps\n", stderr);
    return 2;
  }
  setvbuf(stdin, NULL, _IONBF, 0);  /* a line that was read ahead would wake nobody */
  while (wait_for_a_line(&source), (length = getline(&line, &room, stdin)) > 0) {
    int error;
    line[strcspn(line, "\n")] = '\0';
    step = strdup(line);
    error = run_step(&source, line);
    if (error == SOAP_USER_ERROR) {
      fprintf(stderr, "not a step, or no sequence for it: %s\n", step);
      return 2;
    }
    report(&source, step, error);
    free(step);
  }
  free(line);
  return 0;
}
