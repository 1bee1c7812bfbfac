package peers;

import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebService;
import jakarta.xml.ws.RequestWrapper;

/** The service that the pages on deployment have, in its one operation. */
@WebService(targetNamespace = Orders.NAMESPACE, name = "Orders")
public interface PageOrders {
    @Oneway
    @WebMethod(action = "put")
    @RequestWrapper(localName = "put", targetNamespace = Orders.NAMESPACE, className = "peers.PagePut")
    void put(@WebParam(name = "text", targetNamespace = Orders.NAMESPACE) String text);
}
