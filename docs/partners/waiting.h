/* What the plug-in has no function for. Build with SOAP_WSRM_FAST_ALLOC, which says how it keeps its messages. */
#include "wsrmapi.h"

#define ASK SOAP_NAMESPACE_OF_wsrm "/AckRequested"

/* How many messages wait for an acknowledgement. soap_wsrm_nack counts only those that were asked for again. */
static int waiting(soap_wsrm_sequence_handle sequence)
{
  int count = 0;
  ULONG64 n;
  for (n = 0; n < sequence->num; n++)
    count += sequence->messages[n] != NULL;
  return count;
}

/* The response to a one-way message. soap_recv_empty_response would skip it, and the acknowledgement in its header. */
static int acknowledged(struct soap *soap)
{
  if (soap_begin_recv(soap)) {
    if (soap->error == SOAP_NO_DATA || soap->error == 202)
      soap->error = SOAP_OK;
    return soap_closesock(soap);
  }
  if (soap_envelope_begin_in(soap) || soap_recv_header(soap) || soap_body_begin_in(soap)
      || soap_recv_fault(soap, 1) || soap_body_end_in(soap) || soap_envelope_end_in(soap) || soap_end_recv(soap))
    return soap_closesock(soap);
  return soap_closesock(soap);
}

/* Sends what waits again. soap_wsrm_resend reads no response: an acknowledgement has to be asked for. */
static int send_again(struct soap *soap, soap_wsrm_sequence_handle sequence)
{
  struct wsrm__AckRequestedType asked;
  const char *url = soap_wsrm_to(sequence);
  soap_default_wsrm__AckRequestedType(soap, &asked);
  asked.Identifier = (char *)sequence->id;
  soap->header = NULL;
  if (soap_wsrm_resend(soap, sequence, 0, 0) || soap_wsa_request(soap, soap_wsa_rand_uuid(soap), url, ASK))
    return soap->error;
  soap->header->__sizeAckRequested = 1;
  soap->header->wsrm__AckRequested = &asked;
  if (soap_send___wsrm__AckRequested(soap, url, ASK))
    return soap->error;
  soap->header = NULL;
  return acknowledged(soap);
}
