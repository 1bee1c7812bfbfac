package peers;

import com.sun.xml.ws.rx.mc.api.MakeConnectionSupportedFeature;
import com.sun.xml.ws.rx.rm.api.ReliableMessagingFeatureBuilder;
import com.sun.xml.ws.rx.rm.api.RmProtocolVersion;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.Service;
import jakarta.xml.ws.WebServiceFeature;
import jakarta.xml.ws.soap.AddressingFeature;
import java.io.Closeable;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;

/**
 * Metro. Options: <code>address</code>; <code>wsdl</code>; <code>rm</code>, a protocol version as Metro names it, else
 * the policy in the WSDL says what is spoken; with it <code>interval</code>, milliseconds until it sends again,
 * <code>closing</code>, milliseconds that it waits for each part of the end, and <code>mc</code>, whether it speaks
 * WS-MakeConnection.
 */
public final class MetroClient implements Client {
    private static final QName SERVICE = new QName(Orders.NAMESPACE, "Orders");
    private static final QName PORT = new QName(Orders.NAMESPACE, "Application");

    private Closeable port;

    public static void main(String[] arguments) throws Exception {
        Loop.run(new MetroClient());
    }

    @Override
    public <T> T open(Class<T> contract, Map<String, String> options) throws Exception {
        Service service = Service.create(URI.create(options.get("wsdl")).toURL(), SERVICE);
        T opened = service.getPort(PORT, contract, features(options));
        Map<String, Object> context = ((BindingProvider) opened).getRequestContext();
        context.put(BindingProvider.ENDPOINT_ADDRESS_PROPERTY, options.get("address"));
        port = (Closeable) opened;
        return opened;
    }

    private static WebServiceFeature[] features(Map<String, String> options) {
        if (!options.containsKey("rm")) {
            return new WebServiceFeature[0];
        }
        RmProtocolVersion version = RmProtocolVersion.valueOf(options.get("rm"));
        ReliableMessagingFeatureBuilder rm = new ReliableMessagingFeatureBuilder(version);
        if (options.containsKey("interval")) {
            rm.messageRetransmissionInterval(Long.parseLong(options.get("interval")));
        }
        if (options.containsKey("closing")) {
            rm.closeSequenceOperationTimeout(Long.parseLong(options.get("closing")));
        }
        List<WebServiceFeature> features = new ArrayList<>(List.of(rm.build(), new AddressingFeature(true, true)));
        if (Boolean.parseBoolean(options.get("mc"))) {
            features.add(new MakeConnectionSupportedFeature());
        }
        return features.toArray(WebServiceFeature[]::new);
    }

    /** Metro has no way to ask; it does not return from a one-way call before its message is acknowledged. */
    @Override
    public int unacknowledged() {
        return 0;
    }

    @Override
    public void close() throws Exception {
        port.close();
    }
}
