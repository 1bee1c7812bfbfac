/* The source's own address: the plug-in has what is of WS-RM, and the replies are here. */
#include "source.h"

#include <netinet/in.h>
#include <sys/socket.h>

int source_listen(struct source *s)
{
  struct sockaddr_in here;
  socklen_t size = sizeof here;
  s->endpoint = source_context(s);
  if (!s->endpoint)
    return SOAP_EOM;
  if (!soap_valid_socket(soap_bind(s->endpoint, "127.0.0.1", 0, 100))
      || getsockname(s->endpoint->master, (struct sockaddr *)&here, &size))
    return s->endpoint->error;
  s->port = ntohs(here.sin_port);
  return SOAP_OK;
}

void source_serve(struct source *s)
{
  if (soap_valid_socket(soap_accept(s->endpoint)))
    soap_serve(s->endpoint);
  soap_destroy(s->endpoint);
  soap_end(s->endpoint);
}

/* The plug-in answers 202, and takes a numbered reply only when it is the next one: of any other it returns SOAP_STOP. */
int tns__echoResponse(struct soap *soap, char *text)
{
  ULONG64 number = 0;
  if (!soap->header || !soap->header->wsrm__Sequence)
    soap_send_empty_response(soap, 202);
  else if (soap_wsrm_check_send_empty_response(soap))
    return soap->error;
  else
    number = soap->header->wsrm__Sequence->MessageNumber;
  return soap->error = source_take((struct source *)soap->user, number, text);
}

/* The engine wants one for each message that is declared. */

int tns__put_USCOREorder(struct soap *soap, LONG64 n, char *text)
{
  (void)n, (void)text;
  return SOAP_NO_METHOD;
}

int tns__echo(struct soap *soap, char *text, struct tns__echoResponse *reply)
{
  (void)text, (void)reply;
  return SOAP_NO_METHOD;
}

int wsmc__MakeConnection(struct soap *soap, char *address)
{
  (void)address;
  return SOAP_NO_METHOD;
}

int SOAP_ENV__Fault(struct soap *soap, char *faultcode, char *faultstring, char *faultactor,
                    struct SOAP_ENV__Detail *detail, struct SOAP_ENV__Code *code, struct SOAP_ENV__Reason *reason,
                    char *node, char *role, struct SOAP_ENV__Detail *more)
{
  (void)faultcode, (void)faultstring, (void)faultactor, (void)detail, (void)code, (void)reason, (void)node, (void)role;
  (void)more;
  return soap_send_empty_response(soap, 202);
}
