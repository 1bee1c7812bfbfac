/* One RM Source: a gSOAP context, the sequence it sends on, and the verbs a conversation is made of.

Every verb returns gSOAP's error code (SOAP_OK is 0) and leaves what the peer said in the context: soap->status (HTTP),
soap->header (the answer's SOAP header, or NULL) and soap->fault.
*/
#ifndef SOURCE_H
#define SOURCE_H

/* In RM 1.0 mode (SOAP_WSRM_2005) the plug-in of 2.8.124 does not compile as shipped: its header declares
__wsrm__TerminateSequence with another type than its source and soapcpp2 do. Read as for RM 1.1 it has the right one. */
#include "wsaapi.h"

#ifdef SOAP_WSRM_2005
# undef SOAP_WSRM_2005
# include "wsrmapi.h"
# define SOAP_WSRM_2005
#endif

#include "wsrmapi.h"

struct source {
  struct soap *soap;
  struct soap *endpoint;          /* the source's own address, served between steps; NULL before it listens */
  int port;                       /* of that address */
  const char *url;
  soap_wsrm_sequence_handle seq;  /* NULL before the first create */
  char *replyto;                  /* where replies are to go; NULL: on the response */
  char *reply;                    /* result that the last answer held, or NULL */
  struct reply *replies;          /* all results in the order of arrival, copies left out */
  size_t reply_count;
  int connections;                /* TCP connections opened so far */
};

struct reply {
  ULONG64 number;  /* in the offered sequence; 0: it has none */
  char *text;
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
int source_again(struct source *s, ULONG64 number);  /* the same bytes once more, and the answer to them read */
int source_poll(struct source *s, const char *address);  /* MakeConnection */
int source_ack(struct source *s);  /* of the offered sequence, by itself */
int source_ackreq(struct source *s, const char *identifier);
int source_close(struct source *s, ULONG64 last);
int source_terminate(struct source *s, ULONG64 last);
void source_keep_alive(struct source *s, int on);
void source_chunked(struct source *s, int on);

struct soap *source_context(struct source *s);  /* one with the plug-ins, or NULL */
int source_take(struct source *s, ULONG64 number, const char *text);
int source_listen(struct source *s);
void source_serve(struct source *s);  /* one request to the source's own address */

/* plugin.c: records the number of a reply in the offered sequence, and returns it. 0: there is none. */
ULONG64 soap_wsrm_received(struct soap *soap, soap_wsrm_sequence_handle seq);

#endif
