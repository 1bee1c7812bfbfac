/* listen URL TEXT...: as send, but what comes back comes to an address of this client's own. */
#include "waiting.h"
#include "wsrm.nsmap"

#include <netinet/in.h>

#define PUT "urn:example:orders/put"

static struct soap *context(void)
{
  struct soap *soap = soap_new1(SOAP_C_UTFSTRING);
  soap_register_plugin(soap, soap_wsa);
  soap_register_plugin(soap, soap_wsrm);
  return soap;
}

/* What comes to the address, until nothing does for a tenth of a second. The plug-in has the functions for it. */
static void serve(struct soap *callback)
{
  while (soap_valid_socket(soap_accept(callback))) {
    soap_serve(callback);
    soap_end(callback);
  }
}

int main(int argc, char **argv)
{
  soap_wsrm_sequence_handle sequence;
  struct soap *soap = context(), *callback = context();
  struct sockaddr_in bound;
  socklen_t size = sizeof bound;
  char here[64];
  int n, rounds;

  callback->accept_timeout = -100000;
  soap_bind(callback, "127.0.0.1", 0, 100);
  getsockname(callback->master, (struct sockaddr *)&bound, &size);
  snprintf(here, sizeof here, "http://127.0.0.1:%d/", ntohs(bound.sin_port));

  if (soap_wsrm_create(soap, argv[1], here, 600000, soap_wsa_rand_uuid(soap), &sequence)) {
    soap_print_fault(soap, stderr);
    return 1;
  }
  while (!soap_wsrm_seq_created(soap, sequence))
    serve(callback);
  for (n = 2; n < argc; n++)
    if (soap_wsrm_request(soap, sequence, soap_wsa_rand_uuid(soap), PUT)
        || soap_send_o__put(soap, argv[1], PUT, argv[n]) || acknowledged(soap))
      fprintf(stderr, "%s: no answer\n", argv[n]);
  printf("%d wait for an acknowledgement\n", waiting(sequence));
  for (rounds = 1; waiting(sequence); rounds++) {
    serve(callback);
    if (rounds % 20 == 0)
      send_again(soap, sequence);
  }
  printf("%d wait for an acknowledgement\n", waiting(sequence));
  if (soap_wsrm_close(soap, sequence, soap_wsa_rand_uuid(soap))
      || soap_wsrm_terminate(soap, sequence, soap_wsa_rand_uuid(soap)))
    soap_print_fault(soap, stderr);
  return 0;
}

/* The engine wants a function for each message that it may be asked to serve. */

int o__put(struct soap *soap, char *text)
{
  return SOAP_NO_METHOD;
}

int SOAP_ENV__Fault(struct soap *soap, char *faultcode, char *faultstring, char *faultactor,
                    struct SOAP_ENV__Detail *detail, struct SOAP_ENV__Code *code, struct SOAP_ENV__Reason *reason,
                    char *node, char *role, struct SOAP_ENV__Detail *more)
{
  fprintf(stderr, "a fault: %s\n", faultstring ? faultstring : reason ? reason->SOAP_ENV__Text : "");
  return soap_send_empty_response(soap, 202);
}
