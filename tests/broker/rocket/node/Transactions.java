import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends three transactions to the topic "tx": committed, rolled back, committed when asked for. */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        ConcurrentHashMap<String, Boolean> asked = new ConcurrentHashMap<>();
        TransactionMQProducer producer = new TransactionMQProducer("java-tx");
        producer.setNamesrvAddr(arguments[0]);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.put(new String(message.getBody(), StandardCharsets.UTF_8), true);
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        String[] bodies = {"commit", "rollback", "asked"};
        LocalTransactionState[] states = {
            LocalTransactionState.COMMIT_MESSAGE,
            LocalTransactionState.ROLLBACK_MESSAGE,
            LocalTransactionState.UNKNOW,
        };
        for (int number = 0; number < bodies.length; number++) {
            Message message = new Message("tx", bodies[number].getBytes(StandardCharsets.UTF_8));
            System.out.println(producer.sendMessageInTransaction(message, states[number]).getSendStatus());
        }
        for (int tries = 0; tries < 600 && !asked.containsKey("asked"); tries++) {
            Thread.sleep(100);
        }
        System.out.println("asked " + asked.keySet());
        Thread.sleep(500);
        producer.shutdown();
        System.exit(0);
    }
}
