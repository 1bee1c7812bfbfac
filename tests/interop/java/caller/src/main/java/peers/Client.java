package peers;

import java.util.Map;

/** A client of one stack. It has one port at a time. */
public interface Client {
    /** Make the port. What the options do not name is as the stack has it by itself. */
    <T> T open(Class<T> contract, Map<String, String> options) throws Exception;

    /** How many messages of the port are not acknowledged. */
    int unacknowledged() throws Exception;

    /** End the port as an application does that shuts down. */
    void close() throws Exception;
}
