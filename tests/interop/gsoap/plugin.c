/* gSOAP's RM plug-in as one unit.

The build defines SOAP_WSRM_FAST_ALLOC: the list that the plug-in keeps otherwise loses a message that is sent after
the last one in it was acknowledged while an older one is still missing.
*/
#include "source.h"

#include "wsrmapi.c"

/* The plug-in itself takes the number from the header that the last response has left, when it builds the next request
of the sequence: of what comes in answer to a MakeConnection it would never hear. */
ULONG64 soap_wsrm_received(struct soap *soap, soap_wsrm_sequence_handle seq)
{
  struct wsrm__SequenceType *place = soap->header ? soap->header->wsrm__Sequence : NULL;
  if (!place || !seq || !seq->acksid || strcmp(place->Identifier, seq->acksid))
    return 0;
  MUTEX_LOCK(soap_wsrm_session_lock);
  if (!soap_wsrm_num_lookup(soap, seq, place->MessageNumber)) {
    seq->recvnum = place->MessageNumber;
    soap_wsrm_num_insert(soap, seq, place->MessageNumber);
  }
  MUTEX_UNLOCK(soap_wsrm_session_lock);
  return place->MessageNumber;
}
