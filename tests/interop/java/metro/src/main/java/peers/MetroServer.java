package peers;

import jakarta.xml.ws.Endpoint;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.xml.namespace.QName;
import javax.xml.transform.stream.StreamSource;
import java.io.StringReader;

/**
 * A reliable service of Metro: exactly once and in order, over SOAP 1.2. Arguments: a port, and the version of WS-RM,
 * 1.0 or 1.1; and <code>polled</code> if clients may fetch what is for them. It ends with its standard input.
 */
public final class MetroServer {
    private static final String SOAP_1_2 = "http://java.sun.com/xml/ns/jaxws/2003/05/soap/bindings/HTTP/";
    private static final String POLLED =
        "<wsmc:MCSupported xmlns:wsmc='http://docs.oasis-open.org/ws-rx/wsmc/200702'/>";

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        String address = "http://127.0.0.1:" + arguments[0] + "/orders";
        String wsdl;
        try (InputStream file = MetroServer.class.getResourceAsStream("/orders-" + arguments[1] + ".wsdl")) {
            wsdl = new String(file.readAllBytes(), StandardCharsets.UTF_8);
        }
        if (arguments.length > 2) {
            wsdl = wsdl.replace("<wsam:Addressing/>", "<wsam:Addressing/>" + POLLED);
        }
        Endpoint endpoint = Endpoint.create(SOAP_1_2, new Desk());
        endpoint.setMetadata(List.of(new StreamSource(new StringReader(wsdl), address + "?wsdl")));
        endpoint.setProperties(Map.of(
            Endpoint.WSDL_SERVICE, new QName(Orders.NAMESPACE, "Orders"),
            Endpoint.WSDL_PORT, new QName(Orders.NAMESPACE, "Application")));
        endpoint.publish(address);
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
