package peers;

import jakarta.jws.WebService;

/** The orders service of a stack's server. It tells each call on standard output, as the call is made. */
@WebService(
    targetNamespace = Orders.NAMESPACE, serviceName = "Orders", portName = "Application",
    endpointInterface = "peers.Orders")
public final class Desk implements Orders {
    @Override
    public void put(int n, String text) {
        System.out.println(text);
    }

    @Override
    public String echo(String text) {
        System.out.println(text);
        return text;
    }
}
