import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Asks over the topic "rq" and prints what is answered. It does so by callbacks: of 5.3.3 the form
 * that waits gives up as soon as the request is stored, unless it was answered before.
 */
public class Requests {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer asks = new DefaultMQProducer("java-asks");
        DefaultMQProducer answers = new DefaultMQProducer("java-answers");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-requests");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("rq", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (Message each : messages) {
                try {
                    byte[] body = ("to " + new String(each.getBody(), StandardCharsets.UTF_8)).getBytes();
                    answers.send(MessageUtil.createReplyMessage(each, body), 3000);
                } catch (Exception error) {
                    System.out.println("failed " + error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        for (DefaultMQProducer each : new DefaultMQProducer[] {asks, answers}) {
            each.setNamesrvAddr(arguments[0]);
            each.setInstanceName(each.getProducerGroup());
            each.start();
        }
        consumer.start();
        for (String body : new String[] {"one", "two"}) {
            CompletableFuture<String> answer = new CompletableFuture<>();
            asks.request(new Message("rq", body.getBytes(StandardCharsets.UTF_8)), new RequestCallback() {
                public void onSuccess(Message reply) {
                    answer.complete(new String(reply.getBody(), StandardCharsets.UTF_8));
                }

                public void onException(Throwable error) {
                    answer.complete(error.toString());
                }
            }, 60_000);
            System.out.println("answered " + answer.get());
        }
        System.exit(0);
    }
}
