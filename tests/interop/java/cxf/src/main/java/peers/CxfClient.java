package peers;

import jakarta.xml.ws.BindingProvider;
import java.util.Map;
import javax.xml.namespace.QName;
import org.apache.cxf.Bus;
import org.apache.cxf.BusFactory;
import org.apache.cxf.bus.CXFBusFactory;
import org.apache.cxf.frontend.ClientProxy;
import org.apache.cxf.jaxws.JaxWsProxyFactoryBean;
import org.apache.cxf.transport.http.HTTPConduit;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.RMManager;
import org.apache.cxf.ws.rm.feature.RMFeature;
import org.apache.cxf.ws.rm.persistence.jdbc.RMTxStore;

/**
 * Apache CXF. Options: <code>address</code>; <code>rm</code> and <code>wsa</code>, namespaces; <code>soap</code>, the
 * binding; <code>store</code>, a directory; <code>offer</code>, true or false; <code>decoupled</code>, the client's own
 * address; <code>interval</code>, milliseconds until it sends again; <code>last</code>, whether each message is the last of
 * its sequence; <code>wsdl</code>, whose policy then says what is spoken.
 */
public final class CxfClient implements Client {
    private Bus bus;
    private RMManager manager;

    public static void main(String[] arguments) throws Exception {
        Loop.run(new CxfClient());
    }

    @Override
    public <T> T open(Class<T> contract, Map<String, String> options) {
        bus = new CXFBusFactory().createBus();
        bus.setId("orders"); // a store finds its sequences by it
        BusFactory.setThreadDefaultBus(bus);
        if (!options.containsKey("wsdl")) {
            new WSAddressingFeature().initialize(bus);
            new RMFeature().initialize(bus);
        }
        manager = bus.getExtension(RMManager.class);
        if (options.containsKey("interval")) {
            manager.getConfiguration().setBaseRetransmissionInterval(Long.valueOf(options.get("interval")));
        }
        if (options.containsKey("store")) {
            manager.setStore(store(options.get("store")));
        }
        if (options.containsKey("offer")) {
            manager.getSourcePolicy().setIncludeOffer(Boolean.parseBoolean(options.get("offer")));
        }
        JaxWsProxyFactoryBean factory = new JaxWsProxyFactoryBean();
        factory.setBus(bus);
        factory.setServiceClass(contract);
        factory.setAddress(options.get("address"));
        if (options.containsKey("soap")) {
            factory.setBindingId(options.get("soap"));
        }
        if (options.containsKey("wsdl")) {
            factory.setWsdlURL(options.get("wsdl"));
            factory.setServiceName(new QName(Orders.NAMESPACE, "Orders"));
            factory.setEndpointName(new QName(Orders.NAMESPACE, "Application"));
        }
        T port = factory.create(contract);
        Map<String, Object> context = ((BindingProvider) port).getRequestContext();
        pass(options, "rm", context, RMManager.WSRM_VERSION_PROPERTY);
        pass(options, "wsa", context, RMManager.WSRM_WSA_VERSION_PROPERTY);
        if (options.containsKey("last")) {
            context.put(RMManager.WSRM_LAST_MESSAGE_PROPERTY, Boolean.valueOf(options.get("last")));
        }
        if (options.containsKey("decoupled")) {
            HTTPConduit conduit = (HTTPConduit) ClientProxy.getClient(port).getConduit();
            conduit.getClient().setDecoupledEndpoint(options.get("decoupled"));
        }
        return port;
    }

    private static void pass(Map<String, String> options, String name, Map<String, Object> context, String property) {
        if (options.containsKey(name)) {
            context.put(property, options.get(name));
        }
    }

    private static RMTxStore store(String directory) {
        RMTxStore store = new RMTxStore();
        store.setUrl("jdbc:derby:" + directory + ";create=true");
        store.init();
        return store;
    }

    @Override
    public int unacknowledged() {
        return manager.getRetransmissionQueue().countUnacknowledged();
    }

    @Override
    public void close() {
        bus.shutdown(true);
    }
}
