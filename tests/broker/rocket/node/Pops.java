import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Pops the topic "pp": one message is consumed at once, one when it comes for the second time. */
public class Pops {
    public static void main(String[] arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(arguments[0]);
        admin.start();
        admin.setMessageRequestMode(arguments[1], "pp", "java-pops", MessageRequestMode.POP, 0, 10_000);
        DefaultMQProducer producer = new DefaultMQProducer("java-pops-sends");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        for (String body : new String[] {"once", "later"}) {
            producer.send(new Message("pp", body.getBytes(StandardCharsets.UTF_8)), 10_000);
        }
        CountDownLatch consumed = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-pops");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10_000);
        consumer.subscribe("pp", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                boolean popped = each.getProperty("POP_CK") != null;
                System.out.println("popped " + body + " " + each.getReconsumeTimes() + " " + popped);
                if (body.equals("later") && each.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                consumed.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumed.await(90, TimeUnit.SECONDS);
        Thread.sleep(15_000);
        System.exit(0);
    }
}
