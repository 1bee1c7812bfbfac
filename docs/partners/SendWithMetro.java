import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebService;
import jakarta.xml.ws.Service;
import java.io.Closeable;
import java.net.URI;
import javax.xml.namespace.QName;

/** Sends orders to the service at the address that is its first argument: the other arguments, one each. */
public class SendWithMetro {
    private static final String NAMESPACE = "urn:example:orders";

    @WebService(targetNamespace = NAMESPACE, name = "Orders")
    public interface Orders {
        @Oneway
        @WebMethod(action = "put")
        void put(@WebParam(name = "text", targetNamespace = NAMESPACE) String text);
    }

    public static void main(String[] arguments) throws Exception {
        Service service = Service.create(URI.create(arguments[0] + "?wsdl").toURL(), new QName(NAMESPACE, "Orders"));
        Orders orders = service.getPort(new QName(NAMESPACE, "Application"), Orders.class);
        for (int i = 1; i < arguments.length; i++) {
            orders.put(arguments[i]); // returns when the message is acknowledged
            System.out.println(arguments[i]);
        }
        ((Closeable) orders).close(); // ends the sequence
        System.exit(0);
    }
}
