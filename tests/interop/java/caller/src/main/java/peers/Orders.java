package peers;

import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebResult;
import jakarta.jws.WebService;
import jakarta.xml.ws.RequestWrapper;
import jakarta.xml.ws.ResponseWrapper;

/** The orders service of the tests, as its WSDL has it. */
@WebService(targetNamespace = Orders.NAMESPACE, name = "Orders")
public interface Orders {
    String NAMESPACE = "urn:example:orders";

    @Oneway
    @WebMethod(operationName = "put_order", action = "put_order")
    @RequestWrapper(localName = "put_order", targetNamespace = NAMESPACE, className = "peers.PutOrder")
    void put(
        @WebParam(name = "n", targetNamespace = NAMESPACE) int n,
        @WebParam(name = "text", targetNamespace = NAMESPACE) String text);

    @WebMethod(action = "echo")
    @WebResult(name = "echoResult", targetNamespace = NAMESPACE)
    @ResponseWrapper(localName = "echoResponse", targetNamespace = NAMESPACE, className = "peers.EchoResponse")
    String echo(@WebParam(name = "text", targetNamespace = NAMESPACE) String text);
}
