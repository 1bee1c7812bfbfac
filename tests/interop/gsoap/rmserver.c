/* A gSOAP RM Destination: it says on its standard output the texts that it is called with.

   rmserver PORT

One-way messages are acknowledged by nothing but CloseSequenceResponse, as gSOAP has it where AcksTo is anonymous. No
connection is kept: having replied at an address, it would wait there for more. */
#include "soapH.h"
#include "wsaapi.h"
#include "wsrmapi.h"
#include "orders.nsmap"
int main(int argc, char **argv)
{
  struct soap *soap = soap_new1(SOAP_IO_DEFAULT);
  soap_set_namespaces(soap, namespaces);
  soap_register_plugin(soap, soap_wsa);
  soap_register_plugin(soap, soap_wsrm);
  soap->bind_flags = SO_REUSEADDR;
  if (!soap_valid_socket(soap_bind(soap, "127.0.0.1", atoi(argv[1]), 100))) { soap_print_fault(soap, stderr); return 1; }
  fprintf(stderr, "up\n");
  for (;;) {
    if (!soap_valid_socket(soap_accept(soap))) continue;
    struct soap *t = soap_copy(soap);
    t->recv_timeout = 2;
    soap_serve(t);
    soap_destroy(t); soap_end(t); soap_done(t); free(t);
  }
}
int tns__put_USCOREorder(struct soap *soap, LONG64 n, char *text) {
  if (soap_wsrm_check_send_empty_response(soap)) return soap->error;
  (void)n;
  printf("%s\n", text); fflush(stdout);
  return SOAP_OK;
}
int tns__echo(struct soap *soap, char *text, struct tns__echoResponse *reply) {
  if (soap_wsrm_check(soap)) return soap->error;
  printf("%s\n", text); fflush(stdout);
  reply->echoResult = text;
  return soap_wsrm_reply(soap, NULL, "urn:example:orders/echoResponse");
}
int tns__echoResponse(struct soap *soap, char *r) { return SOAP_OK; }
int SOAP_ENV__Fault(struct soap *soap, char *faultcode, char *faultstring, char *faultactor, struct SOAP_ENV__Detail *detail, struct SOAP_ENV__Code *c, struct SOAP_ENV__Reason *r, char *n, char *role, struct SOAP_ENV__Detail *d) { return SOAP_OK; }
int wsmc__MakeConnection(struct soap *soap, char *a) { return SOAP_OK; }
