/*
 * Nodes of Apache Kafka in one process, started and looked into by lines on the standard input:
 *
 *   <number> start <name> <properties file>     the node has started
 *   <number> rest <name> <broker>...            yes, or what is still going on; brokers named here owe an answer
 *   <number> session <name>                     id and password of its ZooKeeper session
 *   <number> stop <name>
 *
 * Each is answered by `<number> ok ...` or `<number> failed ...` when it is done; several go on at once. The end of the
 * input ends the process. Only Kafka's public classes are used.
 */

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import kafka.controller.ControllerBrokerStateInfo;
import kafka.controller.ControllerEventManager;
import kafka.controller.KafkaController;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServer;
import org.apache.kafka.common.utils.Time;
import org.apache.zookeeper.ZooKeeper;
import scala.jdk.javaapi.CollectionConverters;

public class KafkaHost {
    private static final Map<String, KafkaServer> SERVERS = new ConcurrentHashMap<>();
    private static final long PATIENCE_NS = 20_000_000;
    private static final PrintStream ANSWERS = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            new Thread(() -> answer(words), "host").start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String[] words) {
        String text;
        try {
            text = "ok " + carryOut(words[1], words[2], Arrays.copyOfRange(words, 3, words.length));
        } catch (Throwable error) {
            error.printStackTrace();
            text = "failed " + error;
        }
        synchronized (ANSWERS) {
            ANSWERS.println(words[0] + " " + text.replace('\n', ' '));
            ANSWERS.flush();
        }
    }

    private static String carryOut(String verb, String name, String[] rest) throws Exception {
        switch (verb) {
            case "start":
                start(name, rest[0]);
                return "";
            case "rest":
                return waitForRest(SERVERS.get(name), Arrays.stream(rest).map(Integer::valueOf).collect(Collectors.toSet()));
            case "session":
                ZooKeeper session = SERVERS.get(name).zkClient().currentZooKeeper();
                return session.getSessionId() + " " + HexFormat.of().formatHex(session.getSessionPasswd());
            case "stop":
                SERVERS.remove(name).shutdown();
                return "";
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static void start(String name, String path) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(path)) {
            properties.load(file);
        }
        KafkaServer server =
            new KafkaServer(KafkaConfig.fromProps(properties), Time.SYSTEM, scala.Option.empty(), false);
        SERVERS.put(name, server);
        server.startup();
    }

    private static String waitForRest(KafkaServer server, Set<Integer> late) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (true) {
            // answered behind every watch that fired before
            server.zkClient().pathExists("/brokers");
            String busy = whatGoesOn(server.kafkaController(), late);
            if (busy.equals("") || System.nanoTime() > deadline) return busy;
            Thread.sleep(1);
        }
    }

    private static String whatGoesOn(KafkaController controller, Set<Integer> late) {
        ControllerEventManager events = controller.eventManager();
        if (!isWaitingForEvents(events)) return "an event in " + events.state();
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            String name = thread.getName();
            boolean feedsTheController = name.endsWith("-event-process-thread") || name.startsWith("zk-session-expiry");
            if (feedsTheController && !isIn(thread, "take") && !isIn(thread, "poll")) return "thread " + name;
        }
        Map<Object, ControllerBrokerStateInfo> channels =
            CollectionConverters.asJava(controller.controllerChannelManager().brokerStateInfo());
        for (Map.Entry<Object, ControllerBrokerStateInfo> each : channels.entrySet()) {
            ControllerBrokerStateInfo channel = each.getValue();
            boolean isIdle = channel.messageQueue().isEmpty() && isIn(channel.requestSendThread(), "take");
            if (!isIdle && !late.contains(each.getKey())) return "a request to " + each.getKey();
        }
        return isWaitingForEvents(events) ? "" : "an event in " + events.state();
    }

    private static boolean isWaitingForEvents(ControllerEventManager events) {
        return events.isEmpty() && isIn(events.thread(), "pollFromEventQueue");
    }

    private static boolean isIn(Thread thread, String method) {
        return Arrays.stream(thread.getStackTrace()).anyMatch(frame -> frame.getMethodName().endsWith(method));
    }
}
