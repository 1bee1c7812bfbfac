import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebResult;
import jakarta.jws.WebService;
import jakarta.xml.ws.Endpoint;
import java.io.File;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;
import javax.xml.transform.stream.StreamSource;

/** Takes orders at the port that is its argument, as orders.wsdl says. */
public class ServeWithMetro {
    private static final String NAMESPACE = "urn:example:orders";

    @WebService(targetNamespace = NAMESPACE, serviceName = "Orders", portName = "Orders")
    public static class Orders {
        @Oneway
        @WebMethod(action = "put")
        public void put(@WebParam(name = "text", targetNamespace = NAMESPACE) String text) {
            System.out.println("an order: " + text);
        }

        @WebMethod(action = "ask")
        @WebResult(name = "noted", targetNamespace = NAMESPACE)
        public String ask(@WebParam(name = "text", targetNamespace = NAMESPACE) String text) {
            return text + " is noted";
        }
    }

    public static void main(String[] arguments) {
        Endpoint endpoint = Endpoint.create(new Orders());
        endpoint.setMetadata(List.of(new StreamSource(new File("orders.wsdl"))));
        endpoint.setProperties(Map.of(
            Endpoint.WSDL_SERVICE, new QName(NAMESPACE, "Orders"), Endpoint.WSDL_PORT, new QName(NAMESPACE, "Orders")));
        endpoint.publish("http://127.0.0.1:" + arguments[0] + "/orders");
        System.out.println("ready");
    }
}
