package peers;

import jakarta.jws.WebService;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.cxf.Bus;
import org.apache.cxf.bus.CXFBusFactory;
import org.apache.cxf.jaxws.JaxWsServerFactoryBean;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.feature.RMFeature;
import org.apache.cxf.ws.rm.manager.DeliveryAssuranceType;
import org.apache.cxf.ws.rm.manager.DestinationPolicyType;
import org.apache.cxf.ws.rm.manager.RetryPolicyType;
import org.apache.cxf.ws.rm.persistence.jdbc.RMTxStore;

/**
 * A reliable service of Apache CXF: exactly once and in order, over SOAP 1.2. Arguments: a port; <code>idle</code>, an
 * operation that does nothing, or <code>orders</code>; and a directory for its store if it is to have one. With it the
 * orders are only exactly once: in order, CXF waits for the number 1 again when it is restarted, and answers nothing
 * else. It ends with its standard input.
 */
public final class CxfServer {
    private static final String SOAP_1_2 = "http://www.w3.org/2003/05/soap/bindings/HTTP/";

    @WebService(targetNamespace = Orders.NAMESPACE, endpointInterface = "peers.PageOrders")
    public static final class Idle implements PageOrders {
        @Override
        public void put(String text) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE); // it warns of every message
        Bus bus = new CXFBusFactory().createBus();
        bus.setId("orders");
        DeliveryAssuranceType assurance = new DeliveryAssuranceType();
        assurance.setExactlyOnce(new DeliveryAssuranceType.ExactlyOnce());
        RMFeature reliable = new RMFeature();
        reliable.setDeliveryAssurance(assurance);
        boolean isKept = arguments.length > 2;
        if (isKept && arguments[1].equals("orders")) {
            DestinationPolicyType policy = new DestinationPolicyType();
            policy.setRetryPolicy(new RetryPolicyType()); // else it does not deliver what its store has at a restart
            reliable.setDestinationPolicy(policy);
        } else {
            assurance.setInOrder(new DeliveryAssuranceType.InOrder());
        }
        if (isKept) {
            RMTxStore store = new RMTxStore();
            store.setUrl("jdbc:derby:" + arguments[2] + ";create=true");
            store.init();
            reliable.setStore(store);
        }
        JaxWsServerFactoryBean factory = new JaxWsServerFactoryBean();
        factory.setBus(bus);
        factory.setBindingId(SOAP_1_2);
        factory.setServiceBean(arguments[1].equals("idle") ? new Idle() : new Desk());
        factory.setAddress("http://127.0.0.1:" + arguments[0] + "/orders");
        factory.getFeatures().add(new WSAddressingFeature());
        factory.getFeatures().add(reliable);
        factory.create();
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
