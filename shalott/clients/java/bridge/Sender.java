import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer that sends synchronously, with the library's own retries unless a queue is asked for. */
final class Sender implements Bridge.Served, TransactionListener {
    private static final String DECISION = "SHALOTT_DECISION";
    private static final String TOLD = "SHALOTT_TOLD";

    private final Bridge bridge;
    private final String on;
    private final DefaultMQProducer producer;

    Sender(Bridge bridge, String on, Asked asked) {
        this.bridge = bridge;
        this.on = on;
        String group = asked.text("group");
        if (asked.is("transactional")) {
            TransactionMQProducer transactions = new TransactionMQProducer(group);
            transactions.setTransactionListener(this);
            producer = transactions;
        } else {
            producer = new DefaultMQProducer(group);
        }
        producer.setInstanceName(asked.text("instance"));
        producer.setNamesrvAddr(asked.text("name_server"));
        producer.setSendMsgTimeout(asked.count("timeout_ms"));
        producer.setRetryTimesWhenSendFailed(asked.count("retries"));
        producer.setRetryAnotherBrokerWhenNotStoreOK(asked.is("again"));
        producer.setHeartbeatBrokerInterval(asked.count("heartbeat_ms"));
        producer.setPollNameServerInterval(asked.count("route_poll_ms"));
    }

    @Override
    public void does(String what, Asked asked) throws Exception {
        switch (what) {
            case "begin":
                producer.start();
                break;
            case "send":
            case "transact":
                answer(what, asked);
                break;
            default:
                throw new IllegalArgumentException("a sender can't " + what);
        }
    }

    @Override
    public void shutdown() {
        producer.shutdown();
    }

    private void answer(String what, Asked asked) {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("id", asked.number("id"));
        long begun = System.nanoTime();
        try {
            SendResult result = what.equals("send") ? send(asked) : transact(asked);
            said.put("nanos", System.nanoTime() - begun);
            said.put("status", result.getSendStatus().name());
            said.put("topic", result.getMessageQueue().getTopic());
            said.put("queue", result.getMessageQueue().getQueueId());
            said.put("broker", result.getMessageQueue().getBrokerName());
            said.put("offset", result.getQueueOffset());
        } catch (Throwable error) {
            said.put("nanos", System.nanoTime() - begun);
            said.put("error", Bridge.words(error));
            said.put("code", code(error));
        }
        bridge.say(on, "sent", said);
    }

    private SendResult send(Asked asked) throws Exception {
        Message message = message(asked);
        if (asked.count("delay") > 0) {
            message.setDelayTimeLevel(asked.count("delay"));
        }
        int wanted = asked.count("queue");
        if (wanted < 0) {
            return producer.send(message);
        }
        return producer.send(message, (queues, each, argument) -> queues.get(wanted % queues.size()), null);
    }

    private SendResult transact(Asked asked) throws Exception {
        Message message = message(asked);
        message.putUserProperty(DECISION, asked.text("decision"));
        message.putUserProperty(TOLD, asked.text("told"));
        return producer.sendMessageInTransaction(message, null);
    }

    private static Message message(Asked asked) {
        Message message = new Message(asked.text("topic"), asked.bytes("body"));
        if (!asked.text("tag").isEmpty()) {
            message.setTags(asked.text("tag"));
        }
        return message;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return "later".equals(message.getUserProperty(TOLD)) ? LocalTransactionState.UNKNOW : decided(message);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return decided(message);
    }

    /** A broker asks any producer of the group, so the message itself says what its sender decided. */
    private static LocalTransactionState decided(Message message) {
        boolean commit = "commit".equals(message.getUserProperty(DECISION));
        return commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    private static int code(Throwable error) {
        if (error instanceof MQBrokerException) {
            return ((MQBrokerException) error).getResponseCode();
        }
        return error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : -1;
    }
}
