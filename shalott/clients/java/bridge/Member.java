import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer whose listener asks the other side what to make of each message. */
final class Member implements Bridge.Served {
    private final Bridge bridge;
    private final String on;
    private final DefaultMQPushConsumer consumer;
    private final AtomicLong numbers = new AtomicLong();
    private final Map<Long, CompletableFuture<Boolean>> verdicts = new ConcurrentHashMap<>();
    private volatile boolean gone;

    Member(Bridge bridge, String on, Asked asked) throws Exception {
        this.bridge = bridge;
        this.on = on;
        consumer = new DefaultMQPushConsumer(asked.text("group"));
        consumer.setInstanceName(asked.text("instance"));
        consumer.setNamesrvAddr(asked.text("name_server"));
        // The type lies in another package before 5.0.
        for (var model : consumer.getMessageModel().getDeclaringClass().getEnumConstants()) {
            if (model.name().equals(asked.is("broadcast") ? "BROADCASTING" : "CLUSTERING")) {
                consumer.setMessageModel(model);
            }
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(asked.count("threads"));
        consumer.setConsumeThreadMax(asked.count("threads"));
        consumer.setMaxReconsumeTimes(asked.count("max_reconsume"));
        consumer.setSuspendCurrentQueueTimeMillis(asked.number("suspend_ms"));
        consumer.setHeartbeatBrokerInterval(asked.count("heartbeat_ms"));
        consumer.setPersistConsumerOffsetInterval(asked.count("persist_ms"));
        consumer.setPollNameServerInterval(asked.count("route_poll_ms"));
        for (String topic : asked.texts("topics")) {
            consumer.subscribe(topic, asked.text("tags"));
        }
        if (asked.is("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                listen(messages.get(0), context.getMessageQueue())
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            int level = asked.count("retry_level");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(level);
                return listen(messages.get(0), context.getMessageQueue())
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
    }

    @Override
    public void does(String what, Asked asked) throws Exception {
        switch (what) {
            case "begin":
                consumer.start();
                break;
            case "verdict": {
                CompletableFuture<Boolean> verdict = verdicts.get(asked.number("id"));
                if (verdict != null) {
                    verdict.complete(asked.is("success"));
                }
                break;
            }
            default:
                throw new IllegalArgumentException("a member can't " + what);
        }
    }

    @Override
    public void shutdown() {
        consumer.shutdown();
        gone = true;
        for (CompletableFuture<Boolean> verdict : verdicts.values()) {
            verdict.complete(false);
        }
    }

    private boolean listen(MessageExt message, MessageQueue from) {
        long id = numbers.getAndIncrement();
        CompletableFuture<Boolean> verdict = new CompletableFuture<>();
        verdicts.put(id, verdict);
        try {
            if (gone) {
                return false;
            }
            bridge.say(on, "delivered", told(id, message, from));
            return verdict.get();
        } catch (InterruptedException | ExecutionException error) {
            return false;
        } finally {
            verdicts.remove(id);
        }
    }

    private static Map<String, Object> told(long id, MessageExt message, MessageQueue from) {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("id", id);
        said.put("topic", from.getTopic());
        said.put("origin", message.getTopic());
        said.put("queue", message.getQueueId());
        said.put("offset", message.getQueueOffset());
        said.put("body", Asked.hex(message.getBody()));
        said.put("reconsumed", message.getReconsumeTimes());
        said.put("tag", message.getTags() == null ? "" : message.getTags());
        said.put("retry", from.getTopic().startsWith("%RETRY%") ? message.getTopic() : "");
        return said;
    }
}
