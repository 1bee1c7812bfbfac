// The service of the bench, as gSOAP declares it: WS-RM 1.1 over WS-Addressing 1.0, SOAP 1.2.
#import "soap12.h"
#import "wsrm.h"

//gsoap ns schema namespace: urn:example:orders
//gsoap ns schema elementForm: qualified
//gsoap ns service name: orders
//gsoap ns service style: document
//gsoap ns service encoding: literal

//gsoap ns service method-action: put urn:example:orders/put
int ns__put(char *text, void);

//gsoap ns service method-action: ask urn:example:orders/ask
//gsoap ns service method-output-action: ask urn:example:orders/askResponse
int ns__ask(char *text, struct ns__askResponse { char *text; } *answer);
