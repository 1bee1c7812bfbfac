package peers;

import jakarta.xml.ws.WebServiceException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;
import java.util.stream.Collectors;

/**
 * Reads commands from standard input, a line each, and answers each with lines, the last of which is
 * <code>done</code>, or <code>failed</code> and why:
 *
 * <pre>
 * open address=URL …     make a port of Orders; the options are the client's
 * page address=URL …     the same of PageOrders
 * put FROM TO            one-way calls
 * echo FROM TO THREADS   two-way calls, so many at once
 * unacknowledged         how many messages are not acknowledged
 * close                  end the port
 * </pre>
 *
 * A call is one line: its number, what came back, and how many milliseconds that took.
 */
public final class Loop {
    private final Client client;
    private IntFunction<String> put;
    private IntFunction<String> echo;

    private Loop(Client client) {
        this.client = client;
    }

    public static void run(Client client) throws Exception {
        Loop loop = new Loop(client);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            try {
                loop.obey(line.split(" "));
                System.out.println("done");
            } catch (Exception error) {
                error.printStackTrace();
                System.out.println("failed " + String.valueOf(error).lines().findFirst().orElse(""));
            }
        }
        System.exit(0);
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "open" -> open(client.open(Orders.class, options(words)));
            case "page" -> open(client.open(PageOrders.class, options(words)));
            case "put" -> calls(put, words, 1);
            case "echo" -> calls(echo, words, Integer.parseInt(words[3]));
            case "unacknowledged" -> System.out.println(client.unacknowledged());
            case "close" -> client.close();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void open(Orders orders) {
        put = n -> {
            orders.put(n, "order " + n);
            return "";
        };
        echo = n -> orders.echo("order " + n);
    }

    private void open(PageOrders orders) {
        put = n -> {
            orders.put("order " + n);
            return "";
        };
    }

    private static Map<String, String> options(String[] words) {
        return Arrays.stream(words).skip(1).map(word -> word.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }

    private static void calls(IntFunction<String> operation, String[] words, int threads) throws Exception {
        ExecutorService callers = Executors.newFixedThreadPool(threads);
        List<Future<?>> running = new ArrayList<>();
        for (int n = Integer.parseInt(words[1]); n <= Integer.parseInt(words[2]); n++) {
            int number = n;
            running.add(callers.submit(() -> call(operation, number)));
        }
        callers.shutdown();
        for (Future<?> call : running) {
            call.get();
        }
    }

    private static void call(IntFunction<String> operation, int n) {
        long begun = System.nanoTime();
        String result;
        try {
            result = operation.apply(n);
        } catch (ClassCastException | WebServiceException crossed) {
            // CXF takes away from a message that it sends again what the first transmission, still under way, needs to
            // tell its caller. The message is not lost.
            result = "unread";
        }
        System.out.println(n + "\t" + result + "\t" + (System.nanoTime() - begun) / 1_000_000);
    }
}
