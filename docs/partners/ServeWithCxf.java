import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebService;
import org.apache.cxf.Bus;
import org.apache.cxf.bus.CXFBusFactory;
import org.apache.cxf.jaxws.JaxWsServerFactoryBean;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.feature.RMFeature;
import org.apache.cxf.ws.rm.manager.DeliveryAssuranceType;
import org.apache.cxf.ws.rm.manager.DestinationPolicyType;
import org.apache.cxf.ws.rm.manager.RetryPolicyType;
import org.apache.cxf.ws.rm.persistence.jdbc.RMTxStore;

/** Takes orders at the port that is its argument, and keeps what it knows of sequences in Derby. */
public class ServeWithCxf {
    private static final String NAMESPACE = "urn:example:orders";

    @WebService(targetNamespace = NAMESPACE, serviceName = "Orders")
    public static class Orders {
        @Oneway
        @WebMethod(action = "put")
        public void put(@WebParam(name = "text", targetNamespace = NAMESPACE) String text) {
            System.out.println("an order: " + text);
        }

        @WebMethod(action = "ask")
        public String ask(@WebParam(name = "text", targetNamespace = NAMESPACE) String text) {
            return text + " is noted";
        }
    }

    public static void main(String[] arguments) throws Exception {
        Bus bus = new CXFBusFactory().createBus();
        bus.setId("orders"); // the store finds its sequences by it: keep it
        DeliveryAssuranceType assurance = new DeliveryAssuranceType();
        assurance.setExactlyOnce(new DeliveryAssuranceType.ExactlyOnce());
        DestinationPolicyType policy = new DestinationPolicyType();
        policy.setRetryPolicy(new RetryPolicyType());
        RMTxStore store = new RMTxStore();
        store.setUrl("jdbc:derby:received;create=true");
        store.init();
        RMFeature reliable = new RMFeature();
        reliable.setDeliveryAssurance(assurance);
        reliable.setDestinationPolicy(policy);
        reliable.setStore(store);
        JaxWsServerFactoryBean factory = new JaxWsServerFactoryBean();
        factory.setBus(bus);
        factory.setServiceBean(new Orders());
        factory.setAddress("http://127.0.0.1:" + arguments[0] + "/orders");
        factory.getFeatures().add(new WSAddressingFeature());
        factory.getFeatures().add(reliable);
        factory.create();
        System.out.println("ready");
    }
}
