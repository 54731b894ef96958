/*
 * Apache Kafka's command-line tools in one process, one command after the other: a start of Java for all of them.
 *
 * A line of the standard input is a command: the file that it reads as its standard input (may be empty), its main class
 * and arguments, parted by tabs. Each is answered by a line `<exit status> <bytes> <bytes> <bytes>`, then
 * standard output and standard error as they came, standard output alone, and standard error alone. The end of the input
 * ends the process.
 * Only Kafka's public classes are used.
 */

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

public class KafkaTools {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        LoggerFactory.getLogger(KafkaTools.class); // logs go where errors go now
        ByteArrayOutputStream everything = new ByteArrayOutputStream();
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(new Both(everything, output), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Both(everything, errors), true, StandardCharsets.UTF_8));
        SynchronousQueue<Integer> ends = new SynchronousQueue<>();
        Exit.setExitProcedure((status, message) -> {
            end(ends, status);
            while (true) {
                LockSupport.park(); // nothing after an exit happens
            }
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] command = line.split("\t");
            System.setIn(command[0].isEmpty() ? new ByteArrayInputStream(new byte[0]) : new FileInputStream(command[0]));
            Thread tool = new Thread(() -> end(ends, run(command)), "tool");
            tool.setDaemon(true);
            tool.start();
            int status = ends.take();
            System.out.flush();
            System.err.flush();
            answers.println(status + " " + everything.size() + " " + output.size() + " " + errors.size());
            for (ByteArrayOutputStream content : List.of(everything, output, errors)) {
                content.writeTo(answers);
                content.reset();
            }
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void end(SynchronousQueue<Integer> ends, int status) {
        try {
            ends.put(status);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int run(String[] command) {
        String[] rest = Arrays.copyOfRange(command, 2, command.length);
        try {
            Class.forName(command[1]).getMethod("main", String[].class).invoke(null, (Object) rest);
            return 0;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
    }

    /** Writes to two streams. */
    private static class Both extends OutputStream {
        private final OutputStream first;
        private final OutputStream second;

        Both(OutputStream first, OutputStream second) {
            this.first = first;
            this.second = second;
        }

        @Override
        public void write(int content) throws IOException {
            first.write(content);
            second.write(content);
        }

        @Override
        public void write(byte[] content, int start, int length) throws IOException {
            first.write(content, start, length);
            second.write(content, start, length);
        }
    }
}
