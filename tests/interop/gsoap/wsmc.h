// WS-MakeConnection 1.1, which gSOAP's plug-ins do not have: the request, and the header of an answer to it.

//gsoap wsmc schema namespace: http://docs.oasis-open.org/ws-rx/wsmc/200702
//gsoap wsmc schema elementForm: qualified
//gsoap wsmc schema attributeForm: unqualified

struct _wsmc__MessagePending { @enum wsmc__pending { false_, true_ } pending 1; };

mutable struct SOAP_ENV__Header { struct _wsmc__MessagePending *wsmc__MessagePending 0; };

//gsoap wsmc service name: wsmc
//gsoap wsmc service style: document
//gsoap wsmc service encoding: literal

//gsoap wsmc service method-action: MakeConnection http://docs.oasis-open.org/ws-rx/wsmc/200702/MakeConnection
int wsmc__MakeConnection(char *Address, void);
