/* serve PORT: takes orders in sequences. */
#include "soapH.h"
#include "wsaapi.h"
#include "wsrmapi.h"
#include "wsrm.nsmap"

int main(int argc, char **argv)
{
  struct soap *soap = soap_new1(SOAP_C_UTFSTRING);
  soap_register_plugin(soap, soap_wsa);
  soap_register_plugin(soap, soap_wsrm);
  soap->bind_flags = SO_REUSEADDR;
  if (!soap_valid_socket(soap_bind(soap, "127.0.0.1", atoi(argv[1]), 100))) {
    soap_print_fault(soap, stderr);
    return 1;
  }
  printf("ready\n");
  fflush(stdout);
  while (soap_valid_socket(soap_accept(soap))) {
    soap_serve(soap);
    soap_destroy(soap);
    soap_end(soap);
  }
  soap_print_fault(soap, stderr);
  return 1;
}

int o__put(struct soap *soap, char *text)
{
  if (soap_wsrm_check_send_empty_response(soap))
    return soap->error;
  printf("an order: %s\n", text);
  fflush(stdout);
  return SOAP_OK;
}

int SOAP_ENV__Fault(struct soap *soap, char *faultcode, char *faultstring, char *faultactor,
                    struct SOAP_ENV__Detail *detail, struct SOAP_ENV__Code *code, struct SOAP_ENV__Reason *reason,
                    char *node, char *role, struct SOAP_ENV__Detail *more)
{
  return soap_send_empty_response(soap, 202);
}
