/* send URL TEXT...: each text is an order, all in one sequence. */
#include "waiting.h"
#include "wsrm.nsmap"

#define PUT "urn:example:orders/put"

static int failed(struct soap *soap)
{
  soap_print_fault(soap, stderr);
  return 1;
}

int main(int argc, char **argv)
{
  soap_wsrm_sequence_handle sequence;
  struct soap *soap = soap_new1(SOAP_IO_KEEPALIVE | SOAP_C_UTFSTRING);
  int n;

  soap_register_plugin(soap, soap_wsa);
  soap_register_plugin(soap, soap_wsrm);
  if (soap_wsrm_create(soap, argv[1], NULL, 600000, soap_wsa_rand_uuid(soap), &sequence))
    return failed(soap);
  for (n = 2; n < argc; n++) {
    if (soap_wsrm_request(soap, sequence, soap_wsa_rand_uuid(soap), PUT)
        || soap_send_o__put(soap, argv[1], PUT, argv[n]) || acknowledged(soap))
      fprintf(stderr, "%s: no answer\n", argv[n]);
    printf("%s: %d wait for an acknowledgement\n", argv[n], waiting(sequence));
  }
  while (waiting(sequence)) {
    sleep(1);
    send_again(soap, sequence);
  }
  if (soap_wsrm_close(soap, sequence, soap_wsa_rand_uuid(soap))
      || soap_wsrm_terminate(soap, sequence, soap_wsa_rand_uuid(soap)))
    return failed(soap);
  return 0;
}
