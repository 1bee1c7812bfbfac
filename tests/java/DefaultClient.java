import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;

/**
 * Java's own HTTP client with its defaults, which offer HTTP/2 with the first request of a connection, as CXF 4.1 does.
 *
 * <p>Arguments: URL, Content-Type, a file with the body. Writes a line for each request: what it was, version and status of
 * the answer, its body in base64.
 */
public class DefaultClient {
    public static void main(String[] arguments) throws Exception {
        byte[] body = Files.readAllBytes(Path.of(arguments[2]));
        HttpClient kept = HttpClient.newHttpClient();
        for (int round = 0; round < 2; round++) {
            ask(kept, arguments, "kept", BodyPublishers.ofByteArray(body), false);
        }
        ask(HttpClient.newHttpClient(), arguments, "chunked",
            BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body)), false);
        ask(HttpClient.newHttpClient(), arguments, "expecting", BodyPublishers.ofByteArray(body), true);
    }

    private static void ask(HttpClient client, String[] arguments, String name, BodyPublisher body, boolean expecting)
            throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
            .header("Content-Type", arguments[1])
            .expectContinue(expecting)
            .POST(body)
            .build();
        HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
        String text = Base64.getEncoder().encodeToString(answer.body());
        System.out.println(String.join(" ", name, answer.version().name(), "" + answer.statusCode(), text));
    }
}
