import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers of one client, one for each queue that is asked for, which it is assigned. */
final class Reader implements Bridge.Served {
    private final Bridge bridge;
    private final String on;
    private final Asked wanted;
    private final Map<String, DefaultLitePullConsumer> consumers = new LinkedHashMap<>();
    private final Map<String, MessageQueue> queues = new LinkedHashMap<>();

    Reader(Bridge bridge, String on, Asked asked) {
        this.bridge = bridge;
        this.on = on;
        wanted = asked;
    }

    @Override
    public void does(String what, Asked asked) throws Exception {
        switch (what) {
            case "begin":
                break;
            case "poll":
                answer(asked);
                break;
            default:
                throw new IllegalArgumentException("a reader can't " + what);
        }
    }

    @Override
    public void shutdown() {
        List<DefaultLitePullConsumer> all;
        synchronized (consumers) {
            all = new ArrayList<>(consumers.values());
            consumers.clear();
        }
        for (DefaultLitePullConsumer consumer : all) {
            consumer.shutdown();
        }
    }

    private void answer(Asked asked) {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("id", asked.number("id"));
        try {
            List<Object> records = new ArrayList<>();
            for (MessageExt message : poll(asked)) {
                List<Object> record = new ArrayList<>();
                record.add(message.getQueueOffset());
                record.add(Asked.hex(message.getBody()));
                records.add(record);
            }
            said.put("records", records);
        } catch (Throwable error) {
            said.put("error", Bridge.words(error));
        }
        bridge.say(on, "polled", said);
    }

    private List<MessageExt> poll(Asked asked) throws Exception {
        String topic = asked.text("topic");
        int number = asked.count("queue");
        String key = topic + "/" + number;
        DefaultLitePullConsumer consumer = consumer(key, number);
        MessageQueue queue = queues.get(key);
        if (queue == null) {
            queue = find(consumer, topic, number);
            consumer.assign(Collections.singletonList(queue));
            queues.put(key, queue);
        }
        if (asked.number("from") >= 0) {
            consumer.seek(queue, asked.number("from"));
        }
        return consumer.poll(asked.number("wait_ms"));
    }

    private DefaultLitePullConsumer consumer(String key, int number) throws Exception {
        synchronized (consumers) {
            DefaultLitePullConsumer known = consumers.get(key);
            if (known != null) {
                return known;
            }
        }
        DefaultLitePullConsumer made = new DefaultLitePullConsumer(wanted.text("group") + "-" + number);
        made.setInstanceName(wanted.text("instance"));
        made.setNamesrvAddr(wanted.text("name_server"));
        made.setAutoCommit(false);
        made.setPullThreadNums(1);
        made.setHeartbeatBrokerInterval(wanted.count("heartbeat_ms"));
        made.setPollNameServerInterval(wanted.count("route_poll_ms"));
        made.start();
        synchronized (consumers) {
            consumers.put(key, made);
        }
        return made;
    }

    private static MessageQueue find(DefaultLitePullConsumer consumer, String topic, int number) throws Exception {
        for (MessageQueue queue : consumer.fetchMessageQueues(topic)) {
            if (queue.getQueueId() == number) {
                return queue;
            }
        }
        throw new IllegalStateException("no route has " + topic + "/" + number);
    }
}
