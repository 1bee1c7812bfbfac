/* One RM Source: a gSOAP context, the sequence it sends on, and the verbs a conversation is made of.

Every verb returns gSOAP's error code (SOAP_OK is 0) and leaves what the peer said in the context: soap->status (HTTP),
soap->header (the answer's SOAP header, or NULL) and soap->fault.
*/
#ifndef SOURCE_H
#define SOURCE_H

#include "wsrmapi.h"

struct source {
  struct soap *soap;
  const char *url;
  soap_wsrm_sequence_handle seq;  /* NULL before the first create */
  char *reply;                    /* result of the last two-way call, or NULL */
  int connections;                /* TCP connections opened so far */
};

/* What CreateSequence asks for. NULL and 0 leave the part out. */
struct terms {
  LONG64 expires;       /* ms */
  int offer;            /* with an Offer */
  const char *offered;  /* its Identifier; NULL lets gSOAP make one */
  const char *acksto, *replyto, *message_id;
  enum wsrm__IncompleteSequenceBehaviorType behavior;
};

int source_open(struct source *s, const char *url, const char *addressing);
void source_begin(struct source *s);  /* forget the last answer */

int source_create(struct source *s, const struct terms *terms);
int source_put(struct source *s, ULONG64 number, const char *text, int ack_requested);  /* number 0: the next one */
int source_lose(struct source *s, ULONG64 number, const char *text);  /* sent, and lost on its way */
int source_deaf(struct source *s, ULONG64 number, const char *text);  /* sent, and the answer lost */
int source_echo(struct source *s, ULONG64 number, const char *text);
int source_repeat(struct source *s, ULONG64 number, const char *text);  /* uncached: duplicates and wrong numbers */
int source_stray(struct source *s, const char *identifier, const char *text);
int source_plain(struct source *s, ULONG64 number, const char *text);
int source_resend(struct source *s, ULONG64 lower, ULONG64 upper);
int source_ackreq(struct source *s, const char *identifier);
int source_close(struct source *s, ULONG64 last);
int source_terminate(struct source *s, ULONG64 last);
void source_keep_alive(struct source *s, int on);
void source_chunked(struct source *s, int on);

#endif
