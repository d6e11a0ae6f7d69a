import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * RocketMQ's Java clients of one run, driven over pipes: a line of JSON in says what to do, a line out says what
 * happened. "on" names the client that a line is about, "at" is System.nanoTime() when the line was made. What the
 * library itself prints goes to standard error. The end of standard input ends the process at once.
 *
 * <pre>
 * in   produce  name_server, group, instance, timeout_ms, retries, again, transactional, heartbeat_ms, route_poll_ms
 *      send     id, topic, queue (-1: the library's choice), body (hex), tag, delay
 *      transact id, topic, body, tag, decision (commit, rollback), told ("now", or "later": when it is checked)
 *      join     name_server, group, instance, topics, tags, orderly, broadcast, threads, heartbeat_ms, persist_ms,
 *               route_poll_ms, suspend_ms, retry_level, max_reconsume
 *      verdict  id, success
 *      read     name_server, group, instance, heartbeat_ms, route_poll_ms
 *      poll     id, topic, queue, from (-1: on from where it stands), wait_ms
 *      leave    shut the library's object down; that has an answer
 *      drop     the same without one: its connections were cut before
 *      clock    id
 * out  ready (version); joined, left, failed (error): of produce, join, read, leave
 *      sent     id, nanos, and status, topic, queue, broker, offset; or error, code
 *      delivered id, topic, origin, queue, offset, body, reconsumed, tag, retry
 *      polled   id, records: [[offset, body], ...], or error
 *      clock    id
 * </pre>
 */
public final class Bridge {
    /** One client of the library. */
    interface Served {
        void does(String what, Asked asked) throws Exception;

        void shutdown();
    }

    private final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private final Map<String, Served> served = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> turns = new ConcurrentHashMap<>();
    private final ExecutorService endings = Executors.newCachedThreadPool(Bridge::daemon);

    public static void main(String[] arguments) throws Exception {
        Bridge bridge = new Bridge();
        System.setOut(System.err);
        Map<String, Object> ready = new LinkedHashMap<>();
        ready.put("version", org.apache.rocketmq.common.MQVersion.getVersionDesc(org.apache.rocketmq.common.MQVersion.CURRENT_VERSION));
        bridge.say("", "ready", ready);
        bridge.serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0);
    }

    void say(String on, String said, Map<String, Object> more) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("said", said);
        line.put("on", on);
        line.put("at", System.nanoTime());
        line.putAll(more);
        byte[] bytes = (Json.write(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            out.write(bytes, 0, bytes.length);
            out.flush();
        }
    }

    private void serve(BufferedReader in) throws Exception {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Asked asked = new Asked(Json.read(line));
            String what = asked.text("do");
            String on = asked.text("on");
            switch (what) {
                case "clock":
                    say(on, "clock", Map.of("id", asked.number("id")));
                    break;
                case "verdict": {
                    Served one = served.get(on);
                    if (one != null) {
                        one.does(what, asked);
                    }
                    break;
                }
                case "leave":
                case "drop":
                    endings.execute(() -> end(on, what.equals("leave")));
                    break;
                default:
                    turns.computeIfAbsent(on, name -> Executors.newSingleThreadExecutor(Bridge::daemon))
                        .execute(() -> turn(on, what, asked));
            }
        }
    }

    private void turn(String on, String what, Asked asked) {
        try {
            switch (what) {
                case "produce":
                    begin(on, new Sender(this, on, asked));
                    break;
                case "join":
                    begin(on, new Member(this, on, asked));
                    break;
                case "read":
                    begin(on, new Reader(this, on, asked));
                    break;
                default: {
                    Served one = served.get(on);
                    if (one == null) {
                        throw new IllegalStateException("nothing here is called " + on);
                    }
                    one.does(what, asked);
                }
            }
        } catch (Throwable error) {
            say(on, "failed", Map.of("error", words(error)));
        }
    }

    private void begin(String on, Served one) throws Exception {
        served.put(on, one);
        one.does("begin", null);
        say(on, "joined", Map.of());
    }

    private void end(String on, boolean answers) {
        ExecutorService turn = turns.remove(on);
        Served one = served.get(on);
        try {
            if (one != null) {
                one.shutdown();
            }
            if (answers) {
                say(on, "left", Map.of());
            }
        } catch (Throwable error) {
            if (answers) {
                say(on, "failed", Map.of("error", words(error)));
            }
        } finally {
            served.remove(on);
            if (turn != null) {
                turn.shutdownNow();
            }
        }
    }

    static String words(Throwable error) {
        String message = error.getMessage();
        if (message != null) {
            message = message.replaceAll("\\s*(See|For more information).*", "").replaceAll("\\s+", " ");
        }
        Throwable cause = error.getCause();
        String own = error.getClass().getSimpleName() + (message == null ? "" : ": " + message);
        return cause == null || own.contains(words(cause)) ? own : own + " <- " + words(cause);
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }
}
