/* send URL TEXT...: each text is an order, all in one sequence. */
#include "wsrmapi.h"
#include "wsrm.nsmap"

#define PUT "urn:example:orders/put"

static int failed(struct soap *soap)
{
  soap_print_fault(soap, stderr);
  return 1;
}

/* The response to a one-way message. soap_recv_empty_response would skip it, and the acknowledgement in its header. */
static int acknowledged(struct soap *soap)
{
  if (soap_begin_recv(soap) || soap_envelope_begin_in(soap) || soap_recv_header(soap) || soap_body_begin_in(soap)
      || soap_recv_fault(soap, 1) || soap_body_end_in(soap) || soap_envelope_end_in(soap) || soap_end_recv(soap))
    return soap_closesock(soap);
  return soap_closesock(soap);
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
    printf("%s: %lu wait for an acknowledgement\n", argv[n], (unsigned long)soap_wsrm_nack(sequence));
  }
  while (soap_wsrm_nack(sequence)) {
    sleep(1);
    soap_wsrm_resend(soap, sequence, 0, 0);
  }
  if (soap_wsrm_close(soap, sequence, soap_wsa_rand_uuid(soap))
      || soap_wsrm_terminate(soap, sequence, soap_wsa_rand_uuid(soap)))
    return failed(soap);
  return 0;
}
