//! What users of other sinks reported of sizes (reports.md E), each by its smallest input, with the server's older limit of 10 MiB.

use std::iter::repeat_n;

use super::*;

/// Writes rows with names of these lengths in one batch and publishes them; the number of requests.
async fn requests(options: &[(&str, &str)], limit: u64, lengths: impl IntoIterator<Item = usize>) -> u64 {
    let world = World::with(options);
    world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().max_request_bytes = limit);
    world.count_appends();
    let names: Vec<_> = lengths.into_iter().map(|length| "x".repeat(length)).collect();
    let ids = Int64Array::from_iter_values((0..).take(names.len()));
    let count = names.len();
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(StringArray::from(names))];
    let batch = RecordBatch::try_new(self::columns(), columns).unwrap();
    let mut sink = world.start(None).await;
    publish(1, batch.clone(), &mut sink).await;
    let visible = world.handle.rows(&target()).unwrap();
    assert_eq!(visible.num_rows(), count);
    assert_eq!(visible.columns(), batch.columns(), "in their order, as they were");
    world.counted()
}

const OLD_LIMIT: u64 = 10 << 20;
const FORMATS: [&str; 2] = ["arrow", "proto"];

/// reports.md 71
#[tokio::test(start_paused = true)]
async fn three_rows_of_4_mb_in_one_batch_are_more_than_one_request() {
    for format in FORMATS {
        let options = [("write.append.bytes", "9 MiB"), ("write.format", format)];
        assert_eq!(
            requests(&options, OLD_LIMIT, repeat_n(4_000_000, 3)).await,
            2,
            "{format}"
        );
    }
}

/// reports.md 72
#[tokio::test(start_paused = true)]
async fn a_thousand_rows_of_12_kb_are_cut_by_bytes_and_not_refused_as_too_large() {
    for format in FORMATS {
        let options = [("write.append.bytes", "9 MiB"), ("write.format", format)];
        assert_eq!(
            requests(&options, OLD_LIMIT, repeat_n(12_000, 1_000)).await,
            2,
            "{format}"
        );
    }
}

/// reports.md 73
#[tokio::test(start_paused = true)]
async fn what_tiny_rows_cost_beside_their_values_is_counted() {
    // 12 bytes and a quarter of a row in Arrow; in protobuf 1 to 3 of the number, and 5 of tags and lengths.
    for (format, expected) in [("arrow", 10), ("proto", 6)] {
        let options = [("write.append.bytes", "64 KiB"), ("write.format", format)];
        // Names of no length, so that a row is hardly more than what stands around it.
        let sent = requests(&options, (64 << 10) + 1_024, repeat_n(0, 50_000)).await;
        assert_eq!(sent, expected, "{format}");
    }
}
