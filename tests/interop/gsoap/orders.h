// The orders service of the tests, as gSOAP declares it. An underscore in an XML name is written _USCORE here.
#import "wsmc.h"

//gsoap tns schema namespace: urn:example:orders
//gsoap tns schema elementForm: qualified
//gsoap tns service name: orders
//gsoap tns service style: document
//gsoap tns service encoding: literal

//gsoap tns service method-action: put_USCOREorder urn:example:orders/put_order
int tns__put_USCOREorder(LONG64 n, char *text, void);

// A reply that comes to an address of the client's own is a one-way message.
//gsoap tns service method-action: echoResponse urn:example:orders/echoResponse
int tns__echoResponse(char *echoResult, void);

//gsoap tns service method-action: echo urn:example:orders/echo
int tns__echo(char *text, struct tns__echoResponse *reply);
