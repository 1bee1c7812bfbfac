package peers;

import com.sun.xml.ws.rx.mc.api.MakeConnectionSupportedFeature;
import com.sun.xml.ws.rx.rm.api.ReliableMessagingFeatureBuilder;
import com.sun.xml.ws.rx.rm.api.RmProtocolVersion;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.Service;
import jakarta.xml.ws.WebServiceFeature;
import jakarta.xml.ws.soap.AddressingFeature;
import java.io.Closeable;
import java.lang.reflect.Constructor;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;

/**
 * Metro. Options: <code>address</code>; <code>wsdl</code>; <code>rm</code>, a protocol version as Metro names it, else
 * the policy in the WSDL says what is spoken; with it <code>interval</code>, milliseconds until it sends again,
 * <code>closing</code>, milliseconds that it waits for each part of the end, and <code>polls</code>, milliseconds
 * between two requests of WS-MakeConnection, which it speaks then.
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

    private static WebServiceFeature[] features(Map<String, String> options) throws ReflectiveOperationException {
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
        if (options.containsKey("polls")) {
            features.add(polling(Long.parseLong(options.get("polls"))));
        }
        return features.toArray(WebServiceFeature[]::new);
    }

    /** Its constructor is not public: in Metro a WSDL says the interval, and ours does not. */
    private static WebServiceFeature polling(long interval) throws ReflectiveOperationException {
        Constructor<MakeConnectionSupportedFeature> made =
            MakeConnectionSupportedFeature.class.getDeclaredConstructor(boolean.class, long.class, long.class);
        made.setAccessible(true);
        return made.newInstance(true, interval, MakeConnectionSupportedFeature.DEFAULT_RESPONSE_RETRIEVAL_TIMEOUT);
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
