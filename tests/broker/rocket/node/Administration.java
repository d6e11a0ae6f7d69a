import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin's commands of a file, one a line, and prints each before what it says. */
public class Administration {
    public static void main(String[] arguments) throws Exception {
        System.setErr(new PrintStream(System.out));
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println("\n### " + line);
            MQAdminStartup.main0(line.split(" "), null);
        }
        System.exit(0);
    }
}
