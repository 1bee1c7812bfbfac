import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebService;
import jakarta.xml.ws.BindingProvider;
import java.util.Map;
import org.apache.cxf.Bus;
import org.apache.cxf.bus.CXFBusFactory;
import org.apache.cxf.jaxws.JaxWsProxyFactoryBean;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.RMManager;
import org.apache.cxf.ws.rm.feature.RMFeature;
import org.apache.cxf.ws.rm.persistence.jdbc.RMTxStore;

/** Sends orders to the service at the address that is its first argument: the other arguments, one each. */
public class SendWithCxf {
    private static final String RM_1_1 = "http://docs.oasis-open.org/ws-rx/wsrm/200702";

    @WebService(targetNamespace = "urn:example:orders", name = "Orders")
    public interface Orders {
        @Oneway
        @WebMethod(action = "put")
        void put(@WebParam(name = "text", targetNamespace = "urn:example:orders") String text);
    }

    public static void main(String[] arguments) throws Exception {
        Bus bus = new CXFBusFactory().createBus();
        bus.setId("orders"); // the store finds its sequences by it: give it one of your own, and keep it
        new WSAddressingFeature().initialize(bus);
        RMFeature feature = new RMFeature();
        RMTxStore store = new RMTxStore();
        store.setUrl("jdbc:derby:sent;create=true");
        store.init();
        feature.setStore(store);
        feature.initialize(bus); // on the bus: on the factory alone, what a crash left is not sent again
        RMManager manager = bus.getExtension(RMManager.class);

        JaxWsProxyFactoryBean factory = new JaxWsProxyFactoryBean();
        factory.setBus(bus);
        factory.setAddress(arguments[0]);
        Orders orders = factory.create(Orders.class);
        Map<String, Object> context = ((BindingProvider) orders).getRequestContext();
        context.put(RMManager.WSRM_VERSION_PROPERTY, RM_1_1); // without it: 1.0

        for (int i = 1; i < arguments.length; i++) {
            if (i == arguments.length - 1) {
                context.put(RMManager.WSRM_LAST_MESSAGE_PROPERTY, Boolean.TRUE);
            }
            orders.put(arguments[i]);
            System.out.println(arguments[i]);
        }
        while (manager.getRetransmissionQueue().countUnacknowledged() > 0) {
            Thread.sleep(100);
        }
        System.out.println("all acknowledged");
        bus.shutdown(true);
        System.exit(0);
    }
}
