import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.server.util.Scheduler;

/** Runs tasks without a delay at once, and delayed tasks never. */
final class AtOnce implements Scheduler {
    public void startup() { }

    public void shutdown() { }

    public void resizeThreadPool(int size) { }

    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (delayMs <= 0 && periodMs < 0) {
            task.run();
        }
        return new Done();
    }

    /** A completed task. */
    private record Done() implements ScheduledFuture<Object> {
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        public int compareTo(Delayed other) {
            return 0;
        }

        public boolean cancel(boolean interrupt) {
            return false;
        }

        public boolean isCancelled() {
            return false;
        }

        public boolean isDone() {
            return true;
        }

        public Object get() {
            return null;
        }

        public Object get(long timeout, TimeUnit unit) {
            return null;
        }
    }
}
