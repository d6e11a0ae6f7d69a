import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** What one line asks for, by name. Whole numbers come as long. */
final class Asked {
    private final Map<String, Object> words;

    Asked(Map<String, Object> words) {
        this.words = words;
    }

    String text(String name) {
        return (String) wanted(name);
    }

    long number(String name) {
        return (Long) wanted(name);
    }

    int count(String name) {
        return Math.toIntExact(number(name));
    }

    boolean is(String name) {
        return (Boolean) wanted(name);
    }

    List<String> texts(String name) {
        List<String> found = new ArrayList<>();
        for (Object each : (List<?>) wanted(name)) {
            found.add((String) each);
        }
        return found;
    }

    byte[] bytes(String name) {
        String hex = text(name);
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }

    static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            hex.append(Character.forDigit((each >> 4) & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return hex.toString();
    }

    private Object wanted(String name) {
        Object value = words.get(name);
        if (value == null) {
            throw new IllegalArgumentException("nothing says " + name);
        }
        return value;
    }
}
