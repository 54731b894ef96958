/*
 * Apache Kafka's log cleaner and log loader on directories that no broker uses, by lines on the standard input:
 *
 *   clean <directory> <checkpoint or -1> <now ms> <map keys> <config=value,...>    the new checkpoint, then the producers
 *   recover <directory> <now ms> <config=value,...>                                the log end offset, then the producers
 *
 * Each is answered by one line: `ok ...` or `failed ...`. A producer is `id:epoch:last sequence:last offset:coordinator
 * epoch`. `recover` loads the log as after an unclean shutdown. The clock says what the line says.
 */

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogCleanerManager$;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

public class KafkaCleaner {
    private static final int IO_BYTES = 64 * 1024;
    private static final int KEY_BYTES = 24;
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        SCHEDULER.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text;
            try {
                text = "ok " + carryOut(line.split(" "));
            } catch (Throwable error) {
                error.printStackTrace();
                text = "failed " + error;
            }
            answers.println(text.replace('\n', ' '));
            answers.flush();
        }
    }

    private static String carryOut(String[] words) throws Exception {
        File directory = new File(words[1]);
        boolean cleans = words[0].equals("clean");
        FixedTime time = new FixedTime(Long.parseLong(words[cleans ? 3 : 2]));
        Properties properties = new Properties();
        for (String config : words[words.length - 1].split(",")) {
            properties.put(config.split("=")[0], config.split("=")[1]);
        }
        UnifiedLog log = open(directory, new LogConfig(properties), time, cleans);
        try {
            long result = log.logEndOffset();
            if (cleans) {
                log.updateHighWatermark(log.logEndOffset());
                result = clean(log, Long.parseLong(words[2]), Integer.parseInt(words[4]), time);
            }
            return result + producers(log);
        } finally {
            log.close();
        }
    }

    private static UnifiedLog open(File directory, LogConfig config, Time time, boolean isClean) {
        return UnifiedLog.apply(
            directory, config, 0, isClean ? Long.MAX_VALUE : 0, SCHEDULER, new BrokerTopicStats(false), time,
            900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), isClean,
            Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    private static long clean(UnifiedLog log, long checkpoint, int mapKeys, Time time) throws Exception {
        Option<Object> last = checkpoint < 0 ? Option.empty() : Option.apply(checkpoint);
        var offsets = LogCleanerManager$.MODULE$.cleanableOffsets(log, last, time.milliseconds());
        LogToClean chosen = new LogToClean(
            log.topicPartition(), log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
        if (chosen.cleanableBytes() == 0) {
            return checkpoint;
        }
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(mapKeys * KEY_BYTES), IO_BYTES, IO_BYTES * 16, 0.9, throttler, time,
            partition -> BoxedUnit.UNIT);
        Tuple2<Object, CleanerStats> result = cleaner.clean(chosen);
        return (Long) result._1();
    }

    private static String producers(UnifiedLog log) {
        Map<Long, String> entries = new TreeMap<>();
        log.producerStateManager().activeProducers().forEach((id, entry) -> entries.put(id, String.join(
            ":", String.valueOf(id), String.valueOf(entry.producerEpoch()), String.valueOf(entry.lastSeq()),
            String.valueOf(entry.lastDataOffset()), String.valueOf(entry.coordinatorEpoch()))));
        return entries.values().stream().map(entry -> " " + entry).collect(Collectors.joining());
    }

    private static class FixedTime implements Time {
        private final long now;

        FixedTime(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object lock, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }
}
