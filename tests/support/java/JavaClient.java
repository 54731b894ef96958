/*
 * Kafka's Java client as a process that prints what happens as JSON lines, as tests/support/group_member.py does.
 *
 *     JavaClient member BOOTSTRAP GROUP TOPIC [INSTANCE_ID]     a consumer; commits, then prints what it has committed
 *     JavaClient member-cooperative BOOTSTRAP GROUP TOPIC       the same with CooperativeStickyAssignor
 *     JavaClient produce BOOTSTRAP TOPIC FIRST COUNT            an idempotent producer of numbered records
 *     JavaClient seek BOOTSTRAP TOPIC                           reads partition 0 from several positions
 *     JavaClient relay BOOTSTRAP TOPIC BACKOFF_MS               produces each line of its input, and reads it back
 *     JavaClient copy BOOTSTRAP GROUP SOURCE TARGET ID          copies each record exactly once, until it is killed
 *
 * It uses only what the clients 3.9 and 4 both have.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.clients.consumer.CommitFailedException;

public class JavaClient {
    private static final Duration POLL = Duration.ofMillis(200);

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "member" -> consume(arguments[1], arguments[2], arguments[3],
                arguments.length > 4 ? arguments[4] : null, "RangeAssignor");
            case "member-cooperative" -> consume(arguments[1], arguments[2], arguments[3], null,
                "CooperativeStickyAssignor");
            case "produce" -> produce(arguments[1], arguments[2], Integer.parseInt(arguments[3]),
                Integer.parseInt(arguments[4]));
            case "seek" -> seek(arguments[1], arguments[2]);
            case "relay" -> relay(arguments[1], arguments[2], arguments[3]);
            case "copy" -> copy(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static synchronized void say(String event, String values) {
        System.out.println("{\"event\": \"" + event + "\"" + (values.isEmpty() ? "" : ", " + values) + "}");
        System.out.flush();
    }

    private static Properties consumerConfig(String bootstrap, String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        if (group != null) {
            config.put("group.id", group);
            config.put("session.timeout.ms", "6000");
            config.put("heartbeat.interval.ms", "500");
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        return config;
    }

    private static Properties producerConfig(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("enable.idempotence", "true");
        config.put("acks", "all");
        return config;
    }

    /* Says which partitions the member has, each time that some come or go, and which went. */
    private static ConsumerRebalanceListener listener() {
        Set<Integer> assigned = new TreeSet<>();
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> gone) {
                assigned.removeAll(numbers(gone));
                say("revoked", "\"partitions\": " + numbers(gone));
                say("assigned", "\"partitions\": " + assigned);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> added) {
                assigned.addAll(numbers(added));
                say("assigned", "\"partitions\": " + assigned);
            }
        };
    }

    private static Set<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void consume(String bootstrap, String group, String topic, String instance, String assignor) {
        Properties config = consumerConfig(bootstrap, group);
        config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        if (instance != null) {
            config.put("group.instance.id", instance);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of(topic), listener());
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                continue;
            }
            try {
                consumer.commitSync();
            } catch (CommitFailedException | RebalanceInProgressException error) {
                say("refused", "\"error\": \"" + error.getClass().getSimpleName() + "\"");
                continue;
            }
            for (ConsumerRecord<String, String> record : records) {
                sayRecord("committed", record.partition(), record.offset(), record.value());
            }
        }
    }

    private static void sayRecord(String event, int partition, long offset, String value) {
        say(event, "\"partition\": " + partition + ", \"offset\": " + offset + ", \"value\": \"" + value + "\"");
    }

    private static void produce(String bootstrap, String topic, int first, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerConfig(bootstrap))) {
            Map<String, Future<RecordMetadata>> sent = new HashMap<>();
            for (int number = first; number < first + count; number++) {
                String value = String.valueOf(number);
                sent.put(value, producer.send(new ProducerRecord<>(topic, value, value)));
            }
            for (Map.Entry<String, Future<RecordMetadata>> each : sent.entrySet()) {
                RecordMetadata metadata = each.getValue().get();
                sayRecord("produced", metadata.partition(), metadata.offset(), each.getKey());
            }
        }
    }

    /* From the second record, from the end less one, from the beginning, and from the time of the third record. */
    private static void seek(String bootstrap, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerConfig(bootstrap, null))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1);
            sayNext("offset", consumer);
            consumer.seekToEnd(List.of(partition));
            consumer.seek(partition, consumer.position(partition) - 1);
            sayNext("end", consumer);
            consumer.seekToBeginning(List.of(partition));
            sayNext("beginning", consumer);
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, 3000L)).get(partition).offset());
            sayNext("time", consumer);
        }
    }

    private static void sayNext(String event, KafkaConsumer<String, String> consumer) {
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                sayRecord(event, record.partition(), record.offset(), record.value());
                return;
            }
        }
    }

    /* Its producer waits BACKOFF_MS before it retries, unless a response names the new leader. */
    private static void relay(String bootstrap, String topic, String backoffMs) throws Exception {
        Properties producing = producerConfig(bootstrap);
        producing.put("retry.backoff.ms", backoffMs);
        producing.put("retry.backoff.max.ms", backoffMs);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (
            KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
            KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerConfig(bootstrap, null));
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))
        ) {
            consumer.assign(List.of(partition));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                long offset = producer.send(new ProducerRecord<>(topic, 0, null, line)).get().offset();
                sayRecord("produced", 0, offset, line);
                sayNext("read", consumer);
            }
        }
    }

    private static void copy(String bootstrap, String group, String source, String target, String id) {
        Properties consuming = consumerConfig(bootstrap, group);
        consuming.put("isolation.level", "read_committed");
        consuming.put("max.poll.records", "20");
        Properties producing = producerConfig(bootstrap);
        producing.put("transactional.id", id);
        producing.put("transaction.timeout.ms", "20000");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming);
        KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
        producer.initTransactions();
        consumer.subscribe(List.of(source), listener());
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                continue;
            }
            try {
                copyBatch(consumer, producer, records, target);
                say("copied", "\"records\": " + records.count());
            } catch (ProducerFencedException | InvalidProducerEpochException error) {
                say("fenced", "\"error\": \"" + error.getClass().getSimpleName() + "\"");
                System.exit(3);
            } catch (KafkaException error) {
                say("aborted", "\"error\": \"" + error.getClass().getSimpleName() + "\"");
                producer.abortTransaction();
                rewind(consumer);
            }
        }
    }

    private static void copyBatch(
        KafkaConsumer<String, String> consumer,
        KafkaProducer<String, String> producer,
        ConsumerRecords<String, String> records,
        String target
    ) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
            next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        producer.commitTransaction();
    }

    /* Reads again from the committed offsets, after a transaction was aborted. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset.offset());
            }
        }
    }
}
