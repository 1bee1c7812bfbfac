/* gSOAP's RM plug-in as one unit.

In RM 1.0 mode (SOAP_WSRM_2005) the plug-in of 2.8.124 does not compile as shipped: its header declares
__wsrm__TerminateSequence with another type than its source defines. Reading the header as for RM 1.1 is enough,
the declaration is for servers and is not called here.

The build defines SOAP_WSRM_FAST_ALLOC: the list that the plug-in keeps otherwise loses a message that is sent after
the last one in it was acknowledged while an older one is still missing.
*/
#include "wsaapi.h"

#ifdef SOAP_WSRM_2005
# undef SOAP_WSRM_2005
# include "wsrmapi.h"
# define SOAP_WSRM_2005
#endif

#include "wsrmapi.c"
