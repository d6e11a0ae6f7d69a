import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as the bridge needs it: objects, arrays, strings, whole numbers, booleans and null. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** One object of one line. Throws IllegalArgumentException where it is none. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> read(String line) {
        Json json = new Json(line);
        Object value = json.value();
        json.blanks();
        if (!(value instanceof Map) || json.at != line.length()) {
            throw new IllegalArgumentException("not one object: " + line);
        }
        return (Map<String, Object>) value;
    }

    static String write(Map<String, Object> object) {
        StringBuilder out = new StringBuilder();
        write(out, object);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value instanceof Map) {
            String between = "";
            out.append('{');
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(between);
                write(out, entry.getKey());
                out.append(':');
                write(out, entry.getValue());
                between = ",";
            }
            out.append('}');
        } else if (value instanceof List) {
            String between = "";
            out.append('[');
            for (Object each : (List<?>) value) {
                out.append(between);
                write(out, each);
                between = ",";
            }
            out.append(']');
        } else if (value instanceof String) {
            quote(out, (String) value);
        } else {
            out.append(value);
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private Object value() {
        blanks();
        switch (peek()) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        blanks();
        while (peek() != '}') {
            String name = string();
            blanks();
            expect(':');
            found.put(name, value());
            blanks();
            if (peek() == ',') {
                at++;
                blanks();
            }
        }
        at++;
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        at++;
        blanks();
        while (peek() != ']') {
            found.add(value());
            blanks();
            if (peek() == ',') {
                at++;
                blanks();
            }
        }
        at++;
        return found;
    }

    private String string() {
        expect('"');
        StringBuilder found = new StringBuilder();
        while (peek() != '"') {
            char c = text.charAt(at++);
            found.append(c == '\\' ? escaped() : c);
        }
        at++;
        return found.toString();
    }

    private char escaped() {
        char c = text.charAt(at++);
        switch (c) {
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default:
                return c;
        }
    }

    private Long number() {
        int begin = at;
        while (at < text.length() && "-0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return Long.parseLong(text.substring(begin, at));
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw new IllegalArgumentException("not JSON at " + at);
        }
        at += word.length();
        return value;
    }

    private void expect(char wanted) {
        if (peek() != wanted) {
            throw new IllegalArgumentException(wanted + " is wanted at " + at);
        }
        at++;
    }

    private char peek() {
        if (at >= text.length()) {
            throw new IllegalArgumentException("the line ends too early");
        }
        return text.charAt(at);
    }

    private void blanks() {
        while (at < text.length() && text.charAt(at) <= ' ') {
            at++;
        }
    }
}
