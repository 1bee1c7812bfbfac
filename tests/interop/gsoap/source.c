#include "source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RM SOAP_NAMESPACE_OF_wsrm
#define MAKE_CONNECTION "http://docs.oasis-open.org/ws-rx/wsmc/200702/MakeConnection"
#define PUT_ORDER "urn:example:orders/put_order"
#define ECHO "urn:example:orders/echo"
#define SETTLE_MS 300  /* long enough for the peer to take in what it was sent */

extern struct Namespace namespaces[];
extern const char *soap_wsa_anonymousURI;

static SOAP_SOCKET (*engine_open)(struct soap *, const char *, const char *, int);

static SOAP_SOCKET counted_open(struct soap *soap, const char *endpoint, const char *host, int port)
{
  ((struct source *)soap->user)->connections++;
  return engine_open(soap, endpoint, host, port);
}

/* wsrmapi is written for WS-Addressing 1.0 only. 2004/08 has the same elements under another namespace and another
anonymous address, and both are variables of the engine. */
static void use_addressing_2004(void)
{
  struct Namespace *n;
  for (n = namespaces; n->id; n++)
    if (!strcmp(n->id, "wsa5"))
      n->ns = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
  soap_wsa_anonymousURI = "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous";
}

struct soap *source_context(struct source *s)
{
  struct soap *soap = soap_new2(SOAP_C_UTFSTRING, SOAP_C_UTFSTRING);
  if (!soap || soap_register_plugin(soap, soap_wsa) || soap_register_plugin(soap, soap_wsrm))
    return NULL;
  soap->user = s;
  soap->send_timeout = soap->recv_timeout = 30;
  return soap;
}

int source_open(struct source *s, const char *url, const char *addressing)
{
  memset(s, 0, sizeof *s);
  if (!strcmp(addressing, "2004"))
    use_addressing_2004();
  s->url = url;
  s->soap = source_context(s);
  if (!s->soap)
    return SOAP_EOM;
  engine_open = s->soap->fopen;
  s->soap->fopen = counted_open;
  s->soap->connect_timeout = 5;
  source_keep_alive(s, 1);
  return SOAP_OK;
}

void source_begin(struct source *s)
{
  s->reply = NULL;
  s->soap->status = 0;
  s->soap->error = SOAP_OK;
  s->soap->fault = NULL;
  s->soap->header = NULL;
}

int source_take(struct source *s, ULONG64 number, const char *text)
{
  size_t i;
  struct reply *grown;
  for (i = 0; number && i < s->reply_count; i++)
    if (s->replies[i].number == number && !strcmp(s->replies[i].text, text))
      return SOAP_OK;
  grown = (struct reply *)realloc(s->replies, (s->reply_count + 1) * sizeof *grown);
  if (!grown)
    return SOAP_EOM;
  s->replies = grown;
  grown[s->reply_count].number = number;
  grown[s->reply_count++].text = strdup(text);
  return SOAP_OK;
}

/* The message is in the cache for resends; what follows is not part of it. wsrmapi itself leaves its pointer to the
cached message standing while the answer's acknowledgement frees it. */
static void end_of_request(struct source *s)
{
  struct soap_wsrm_data *data = (struct soap_wsrm_data *)soap_lookup_plugin(s->soap, soap_wsrm_id);
  data->state = SOAP_WSRM_OFF;
  data->msg = NULL;
  s->soap->header = NULL;
}

static int nothing_came(struct soap *soap)
{
  return soap->error == SOAP_NO_DATA || soap->error == 202;
}

/* An answer: empty, an envelope whose header acknowledges, a reply, or a fault. The engine's soap_recv_empty_response
skips the envelope of a one-way's answer unread and so would never learn of the acknowledgement. */
static int receive(struct source *s)
{
  struct soap *soap = s->soap;
  struct tns__echoResponse reply;
  soap_default_tns__echoResponse(soap, &reply);
  if (soap_begin_recv(soap)) {
    if (nothing_came(soap))
      soap->error = SOAP_OK;
    return soap_closesock(soap);
  }
  if (soap_envelope_begin_in(soap) || soap_recv_header(soap) || soap_body_begin_in(soap))
    return soap_closesock(soap);
  if (soap_recv_fault(soap, 1))
    return soap->error;
  if (soap_get_tns__echoResponse(soap, &reply, "tns:echoResponse", NULL))
    s->reply = reply.echoResult;
  else if (soap->error != SOAP_TAG_MISMATCH && soap->error != SOAP_NO_TAG)
    return soap_closesock(soap);
  else if (soap_ignore_element(soap) && soap->error != SOAP_NO_TAG)  /* of a service that does not know of one-ways */
    return soap_closesock(soap);
  soap->error = SOAP_OK;
  if (soap_body_end_in(soap) || soap_envelope_end_in(soap) || soap_end_recv(soap))
    return soap_closesock(soap);
  if (s->reply && source_take(s, soap_wsrm_received(soap, s->seq), s->reply))
    return soap->error = SOAP_EOM;
  return soap_closesock(soap);
}

static int send_put(struct source *s, ULONG64 number, const char *text)
{
  if (soap_send_tns__put_USCOREorder(s->soap, s->url, PUT_ORDER, (LONG64)number, (char *)text))
    return s->soap->error;
  end_of_request(s);
  return SOAP_OK;
}

static int call_put(struct source *s, ULONG64 number, const char *text)
{
  return send_put(s, number, text) ? s->soap->error : receive(s);
}

static const char *new_id(struct source *s)
{
  return soap_wsa_rand_uuid(s->soap);
}

/* A Sequence header written by hand, past the plug-in's numbering and cache. */
static int write_sequence(struct source *s, const char *identifier, ULONG64 number)
{
  s->soap->header = NULL;
  if (soap_wsa_request(s->soap, new_id(s), s->url, PUT_ORDER))
    return s->soap->error;
  s->soap->header->wsrm__Sequence = (struct wsrm__SequenceType *)soap_malloc(s->soap, sizeof(struct wsrm__SequenceType));
  soap_default_wsrm__SequenceType(s->soap, s->soap->header->wsrm__Sequence);
  s->soap->header->wsrm__Sequence->Identifier = soap_strdup(s->soap, identifier);
  s->soap->header->wsrm__Sequence->MessageNumber = number;
  return SOAP_OK;
}

int source_create(struct source *s, const struct terms *t)
{
  const char *offered = t->offer ? t->offered : "";
  s->replyto = t->replyto ? strdup(t->replyto) : NULL;
  return soap_wsrm_create_offer_acksto(s->soap, s->url, t->replyto, t->acksto, offered, t->expires, t->behavior,
                                       t->message_id, &s->seq);
}

int source_put(struct source *s, ULONG64 number, const char *text, int ack_requested)
{
  ULONG64 next = soap_wsrm_num(s->seq) + 1;
  int failed;
  if (ack_requested)
    failed = soap_wsrm_request_acks(s->soap, s->seq, new_id(s), PUT_ORDER);
  else if (number)
    failed = soap_wsrm_request_num(s->soap, s->seq, new_id(s), PUT_ORDER, number);
  else
    failed = soap_wsrm_request(s->soap, s->seq, new_id(s), PUT_ORDER);
  return failed ? s->soap->error : call_put(s, number ? number : next, text);
}

static int swallow(struct soap *soap, const char *bytes, size_t length)
{
  (void)soap, (void)bytes, (void)length;
  return SOAP_OK;
}

int source_lose(struct source *s, ULONG64 number, const char *text)
{
  struct soap_wsrm_data *data = (struct soap_wsrm_data *)soap_lookup_plugin(s->soap, soap_wsrm_id);
  int (*wire)(struct soap *, const char *, size_t) = data->fsend;
  if (soap_wsrm_request_num(s->soap, s->seq, new_id(s), PUT_ORDER, number))
    return s->soap->error;
  data->fsend = swallow;
  send_put(s, number, text);
  data->fsend = wire;
  return s->soap->error;
}

int source_deaf(struct source *s, ULONG64 number, const char *text)
{
  if (soap_wsrm_request_num(s->soap, s->seq, new_id(s), PUT_ORDER, number) || send_put(s, number, text))
    return s->soap->error;
  usleep(1000 * SETTLE_MS);
  return soap_force_closesock(s->soap);
}

int source_echo(struct source *s, ULONG64 number, const char *text)
{
  if (soap_wsrm_request_num(s->soap, s->seq, new_id(s), ECHO, number)
      || (s->replyto && soap_wsa_add_ReplyTo(s->soap, s->replyto))
      || soap_send_tns__echo(s->soap, s->url, ECHO, (char *)text))
    return s->soap->error;
  end_of_request(s);
  return receive(s);
}

int source_repeat(struct source *s, ULONG64 number, const char *text)
{
  return write_sequence(s, s->seq->id, number) ? s->soap->error : call_put(s, number, text);
}

int source_stray(struct source *s, const char *identifier, const char *text)
{
  return write_sequence(s, identifier, 1) ? s->soap->error : call_put(s, 1, text);
}

int source_plain(struct source *s, ULONG64 number, const char *text)
{
  s->soap->header = NULL;
  if (soap_wsa_request(s->soap, new_id(s), s->url, PUT_ORDER))
    return s->soap->error;
  return call_put(s, number, text);
}

int source_resend(struct source *s, ULONG64 lower, ULONG64 upper)
{
  return soap_wsrm_resend(s->soap, s->seq, lower, upper);
}

/* The plug-in's resend reads no reply, and no acknowledgement. */
int source_again(struct source *s, ULONG64 number)
{
  struct soap_wsrm_data *data = (struct soap_wsrm_data *)soap_lookup_plugin(s->soap, soap_wsrm_id);
  struct soap_wsrm_message *message = s->seq->messages && number <= s->seq->num ? s->seq->messages[number - 1] : NULL;
  struct soap_wsrm_content *part;
  int failed;
  if (!message)
    return SOAP_OK;
  s->soap->omode |= SOAP_ENC_PLAIN;  /* the bytes are those of an HTTP request */
  failed = soap_connect(s->soap, s->url, NULL);
  for (part = message->list; !failed && part; part = part->next)
    failed = data->fsend(s->soap, part->buf, part->len);
  failed = failed || soap_end_send(s->soap);
  s->soap->omode &= ~SOAP_ENC_PLAIN;
  return failed ? soap_closesock(s->soap) : receive(s);
}

int source_poll(struct source *s, const char *address)
{
  if (soap_wsa_request(s->soap, new_id(s), s->url, MAKE_CONNECTION)
      || soap_send_wsmc__MakeConnection(s->soap, s->url, MAKE_CONNECTION, (char *)address))
    return s->soap->error;
  end_of_request(s);
  return receive(s);
}

int source_ack(struct source *s)
{
  return soap_wsrm_acknowledgement(s->soap, s->seq, NULL);
}

int source_ackreq(struct source *s, const char *identifier)
{
  struct SOAP_ENV__Header *header;
  s->soap->header = NULL;
  if (soap_wsa_request(s->soap, new_id(s), s->url, RM "/AckRequested"))
    return s->soap->error;
  header = s->soap->header;
  header->__sizeAckRequested = 1;
  header->wsrm__AckRequested = (struct wsrm__AckRequestedType *)soap_malloc(s->soap, sizeof *header->wsrm__AckRequested);
  soap_default_wsrm__AckRequestedType(s->soap, header->wsrm__AckRequested);
  header->wsrm__AckRequested->Identifier = soap_strdup(s->soap, identifier ? identifier : s->seq->id);
  if (soap_send___wsrm__AckRequested(s->soap, s->url, RM "/AckRequested"))
    return s->soap->error;
  end_of_request(s);
  return receive(s);
}

/* wsrmapi takes LastMsgNumber from the sequence's counter. */
static int with_last(struct source *s, ULONG64 last, int (*verb)(struct soap *, soap_wsrm_sequence_handle, const char *))
{
  ULONG64 sent = s->seq->num;
  int failed;
  if (last)
    s->seq->num = last;
  failed = verb(s->soap, s->seq, new_id(s));
  if (last)
    s->seq->num = sent;
  return failed;
}

int source_close(struct source *s, ULONG64 last)
{
  return with_last(s, last, soap_wsrm_close);
}

int source_terminate(struct source *s, ULONG64 last)
{
  return with_last(s, last, soap_wsrm_terminate);
}

void source_keep_alive(struct source *s, int on)
{
  if (on) {
    soap_set_omode(s->soap, SOAP_IO_KEEPALIVE);
    soap_set_imode(s->soap, SOAP_IO_KEEPALIVE);
  } else {
    soap_clr_omode(s->soap, SOAP_IO_KEEPALIVE);
    soap_clr_imode(s->soap, SOAP_IO_KEEPALIVE);
    soap_force_closesock(s->soap);
  }
}

void source_chunked(struct source *s, int on)
{
  soap_clr_omode(s->soap, SOAP_IO);
  soap_set_omode(s->soap, on ? SOAP_IO_CHUNK : SOAP_IO_BUFFER);
}
