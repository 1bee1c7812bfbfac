#import "wsrm.h" /* WS-RM 1.1 over WS-Addressing 1.0; wsrm5.h and wsrm4.h are 1.0 over 1.0 and over 2004/08 */

//gsoap o service namespace: urn:example:orders
//gsoap o schema elementForm: qualified
//gsoap o service style: document
//gsoap o service encoding: literal
//gsoap o service method-action: put urn:example:orders/put
int o__put(char *text, void);
