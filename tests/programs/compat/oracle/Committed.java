import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** A consumer with isolation level read_committed that fetches from Kafka's log. */
final class Committed {
    private static final int FETCH_BYTES = 900;

    private final long from;
    private final Deque<AbortedTransaction> ahead;
    private final Set<Long> aborting = new HashSet<>();

    private Committed(long from, List<AbortedTransaction> aborted) {
        this.from = from;
        ahead = new ArrayDeque<>(aborted.stream()
            .sorted(Comparator.comparingLong(AbortedTransaction::firstOffset)).toList());
    }

    /** Reports the offsets of all records that such a consumer returns. */
    static void tell(UnifiedLog log, ArrayNode offsets) throws Exception {
        for (long at = log.logStartOffset(); at < log.lastStableOffset();) {
            FetchDataInfo info = log.read(at, FETCH_BYTES, FetchIsolation.TXN_COMMITTED, true);
            Committed fetched = new Committed(at, info.abortedTransactions.orElse(List.of()));
            long next = at;
            for (RecordBatch batch : info.records.batches()) {
                fetched.tell(batch, offsets);
                next = batch.nextOffset();
            }
            if (next == at) {
                return; // truncation inside a batch removed it but kept the log end
            }
            at = next;
        }
    }

    private void tell(RecordBatch batch, ArrayNode offsets) {
        while (!ahead.isEmpty() && ahead.peek().firstOffset() <= batch.lastOffset()) {
            aborting.add(ahead.poll().producerId());
        }
        if (batch.isControlBatch()) {
            if (batch.hasProducerId() && isAbort(batch)) {
                aborting.remove(batch.producerId());
            }
            return;
        }
        if (batch.isTransactional() && aborting.contains(batch.producerId())) {
            return;
        }
        for (Record record : batch) {
            if (record.offset() >= from) {
                offsets.add(record.offset());
            }
        }
    }

    private static boolean isAbort(RecordBatch batch) {
        for (Record record : batch) {
            return ControlRecordType.parse(record.key()) == ControlRecordType.ABORT;
        }
        return false;
    }
}
