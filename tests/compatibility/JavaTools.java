import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main classes one after another in one Java machine, since its start costs a second each time.
 *
 * Request on stdin:   int count, then the main class and its arguments (modified UTF-8 strings),
 *                     int timeout in ms, int length and bytes of the tool's stdin.
 * Answer on stdout:   int exit code (124: it did not end in time), then length and bytes of its
 *                     stdout, length and bytes of its stderr.
 *
 * A tool's exit ends its thread instead of this process; its shutdown hooks are not run.
 */
public class JavaTools {
    private static final class Ended extends Error {}

    /** What is written goes to the tool that runs now; Scala keeps the first stream it sees. */
    private static final class Current extends OutputStream {
        volatile ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public void write(int content) {
            buffer.write(content);
        }

        @Override
        public void write(byte[] content, int from, int count) {
            buffer.write(content, from, count);
        }
    }

    private static final Current OUT = new Current();
    private static final Current ERR = new Current();

    private static volatile Integer status;

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUT, true, "UTF-8"));
        System.setErr(new PrintStream(ERR, true, "UTF-8"));
        Exit.Procedure end = (code, message) -> {
            if (status == null) {
                status = code;
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> {});
        while (true) {
            String[] command;
            try {
                command = new String[requests.readInt()];
            } catch (EOFException closed) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < command.length; i++) {
                command[i] = requests.readUTF();
            }
            int timeout = requests.readInt();
            byte[] input = requests.readNBytes(requests.readInt());
            run(command, timeout, input, answers);
        }
    }

    private static void run(String[] command, int timeout, byte[] input, DataOutputStream answers)
            throws Exception {
        OUT.buffer = new ByteArrayOutputStream();
        ERR.buffer = new ByteArrayOutputStream();
        InputStream noInput = System.in;
        System.setIn(new ByteArrayInputStream(input));
        status = null;
        Thread tool = new Thread(() -> call(command), "tool");
        tool.setDaemon(true);
        tool.start();
        tool.join(timeout);
        int code = tool.isAlive() ? 124 : status == null ? 0 : status;
        tool.interrupt();
        System.setIn(noInput);
        answers.writeInt(code);
        for (ByteArrayOutputStream said : new ByteArrayOutputStream[] {OUT.buffer, ERR.buffer}) {
            byte[] bytes = said.toByteArray();
            answers.writeInt(bytes.length);
            answers.write(bytes);
        }
        answers.flush();
    }

    private static void call(String[] command) {
        String[] arguments = new String[command.length - 1];
        System.arraycopy(command, 1, arguments, 0, arguments.length);
        try {
            Class.forName(command[0])
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
                status = status == null ? 1 : status;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            status = 127;
        }
    }
}
