package peers;

import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.stomp.Command;
import io.vertx.ext.stomp.Frame;
import io.vertx.ext.stomp.StompClient;
import io.vertx.ext.stomp.StompClientConnection;
import io.vertx.ext.stomp.StompClientOptions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Vert.x's client of STOMP goes through a server: PORT VERSION PASSCODE. What has happened is one line of JSON each. */
public final class StompPeer {
    private static final long SECONDS = 20;
    private final Vertx vertx = Vertx.vertx();
    private final StompClientOptions options;
    private StompClientConnection connection;

    private StompPeer(int port, String version, String passcode) {
        options = new StompClientOptions().setHost("127.0.0.1").setPort(port).setLogin("java").setPasscode(passcode)
            .setAcceptedVersions(List.of(version)).setHeartbeat(new JsonObject().put("x", 500).put("y", 500));
    }

    public static void main(String[] words) throws Exception {
        StompPeer peer = new StompPeer(Integer.parseInt(words[0]), words[1], words[2]);
        peer.connect();
        peer.special();
        peer.acknowledge("client", "/queue/java-client");
        peer.acknowledge("client-individual", "/queue/java-individual");
        peer.automatic();
        peer.transact();
        peer.beat();
        peer.reconnect();
        System.exit(0);
    }

    private static <T> T wait(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(SECONDS, TimeUnit.SECONDS);
    }

    private static void tell(String what, Object value) {
        System.out.println(new JsonObject().put(what, value).encode());
    }

    private void connect() throws Exception {
        connection = wait(StompClient.create(vertx, options).connect());
        tell("version", connection.version());
    }

    private Frame send(String destination, Map<String, String> headers, String body) throws Exception {
        return wait(connection.send(destination, headers, Buffer.buffer(body)));
    }

    private BlockingQueue<Frame> subscribe(String destination, Map<String, String> headers) throws Exception {
        BlockingQueue<Frame> messages = new LinkedBlockingQueue<>();
        wait(connection.subscribe(destination, new HashMap<>(headers), messages::add));
        return messages;
    }

    private static Frame next(BlockingQueue<Frame> messages) throws Exception {
        Frame message = messages.poll(SECONDS, TimeUnit.SECONDS);
        if (message == null) {
            throw new IllegalStateException("no message has come");
        }
        return message;
    }

    private void special() throws Exception {
        BlockingQueue<Frame> messages = subscribe("/queue/java-special", Map.of());
        Map<String, String> headers = new HashMap<>();
        headers.put("name", "a:b\nc\\d Größe");
        send("/queue/java-special", headers, "Größe 🐘");
        Frame message = next(messages);
        tell("special", message.getHeader("name") + "|" + message.getBodyAsString());
        wait(connection.unsubscribe("/queue/java-special"));
    }

    /** Three messages: the second is acknowledged, or refused and comes again. */
    private void acknowledge(String mode, String destination) throws Exception {
        for (int n = 1; n <= 3; n++) {
            send(destination, new HashMap<>(), "order " + n);
        }
        BlockingQueue<Frame> messages = subscribe(destination, Map.of("ack", mode, "prefetch-count", "3"));
        Frame first = next(messages);
        Frame second = next(messages);
        next(messages);
        wait(connection.nack(id(first)));
        Frame again = next(messages);
        tell(mode, again.getBodyAsString() + " " + again.getHeader("redelivered"));
        wait(connection.ack(id(second)));
        wait(connection.ack(id(again)));
        wait(connection.unsubscribe(destination));
    }

    private static String id(Frame message) {
        return message.getAck() == null ? message.getId() : message.getAck();
    }

    private void automatic() throws Exception {
        BlockingQueue<Frame> messages = subscribe("/topic/java/#", Map.of());
        send("/topic/java/created", new HashMap<>(), "event");
        Frame message = next(messages);
        tell("auto", message.getDestination() + " " + message.getBodyAsString());
    }

    private void transact() throws Exception {
        for (String end : List.of("abort", "commit")) {
            wait(connection.beginTX(end));
            wait(connection.send(new Frame(Command.SEND,
                new HashMap<>(Map.of("destination", "/queue/java-transaction", "transaction", end)), Buffer.buffer(end))));
            wait(end.equals("abort") ? connection.abort(end) : connection.commit(end));
        }
        tell("transaction", next(subscribe("/queue/java-transaction", Map.of())).getBodyAsString());
    }

    private void beat() throws Exception {
        Thread.sleep(2_500);
        send("/queue/java-beat", new HashMap<>(), "alive");
        tell("beat", connection.isConnected());
    }

    private void reconnect() throws Exception {
        send("/queue/java-again", new HashMap<>(), "again");
        next(subscribe("/queue/java-again", Map.of("ack", "client-individual")));
        connection.close();
        connect();
        Frame again = next(subscribe("/queue/java-again", Map.of("ack", "client-individual")));
        tell("reconnect", again.getBodyAsString() + " " + again.getHeader("redelivered"));
        wait(connection.disconnect());
    }
}
