import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that is set by hand. */
final class Hands implements Time {
    private long now;

    Hands(long now) {
        this.now = now;
    }

    void put(long milliseconds) {
        now = milliseconds;
    }

    public long milliseconds() {
        return now;
    }

    public long hiResClockMs() {
        return now;
    }

    public long nanoseconds() {
        return now * 1_000_000;
    }

    public void sleep(long ms) { }

    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
}
