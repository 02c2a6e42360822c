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
    let split = world.total(Counter::RequestsSplit);
    assert_eq!(split, 0, "no request was larger than BigQuery takes");
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

/// reports.md 71: all of them in one batch, each in a request of its own.
#[tokio::test(start_paused = true)]
async fn three_rows_of_8_mb_go_through() {
    for (format, target) in FORMATS
        .into_iter()
        .flat_map(|format| [(format, "64 KiB"), (format, "9 MiB")])
    {
        let options = [("write.append.bytes", target), ("write.format", format)];
        let sent = requests(&options, OLD_LIMIT, repeat_n(8_000_000, 3)).await;
        assert_eq!(sent, 3, "{format} {target}");
    }
}

/// reports.md 73: what stands around a row weighs more than its values, and a request a little above what it should take is refused.
async fn five_million_tiny_rows(format: &str) -> u64 {
    let options = [("write.append.bytes", "2 MiB"), ("write.format", format)];
    requests(&options, (2 << 20) + 1_024, repeat_n(0, 5_000_000)).await
}

#[tokio::test(start_paused = true)]
async fn five_million_tiny_rows_go_through_as_arrow() {
    // 12 bytes and a quarter of a row.
    assert_eq!(five_million_tiny_rows("arrow").await, 30);
}

#[tokio::test(start_paused = true)]
async fn five_million_tiny_rows_go_through_as_protobuf() {
    // 1 to 4 of the number, and 5 of tags and lengths.
    assert_eq!(five_million_tiny_rows("proto").await, 21);
}

/// reports.md 73, by a smaller target.
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

/// reports.md 72: the ceiling that a region still has is found out, by halves, and kept to.
#[tokio::test(start_paused = true)]
async fn requests_that_the_server_refuses_as_too_large_are_halved_until_they_fit_and_later_ones_are_smaller()
{
    let modes = ["exactly_once", "at_least_once"].into_iter();
    for (mode, format) in modes.flat_map(|mode| FORMATS.map(|format| (mode, format))) {
        let world = World::with(&[("write.mode", mode), ("write.format", format)]);
        let limit = 300_000;
        world
            .handle
            .shared()
            .with(|machine| machine.switches_mut().max_request_bytes = limit);
        let names = StringArray::from(vec!["x".repeat(4_000); 1_000]);
        let ids = Int64Array::from_iter_values(0..1_000);
        let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(names)];
        let batch = RecordBatch::try_new(self::columns(), columns).unwrap();
        let mut sink = world.start(None).await;
        publish(1, batch.clone(), &mut sink).await;
        let refused = world.total(Counter::RequestsSplit);
        assert!(
            (6..=24).contains(&refused),
            "two requests of 2 MB into parts of 0.25: {refused}"
        );
        publish(2, batch.clone(), &mut sink).await;
        assert_eq!(world.total(Counter::RequestsSplit), refused, "{mode} {format}");
        let visible = world.handle.rows(&target()).unwrap();
        let twice = arrow_select::concat::concat_batches(&batch.schema(), [&batch, &batch]).unwrap();
        if mode == "exactly_once" {
            assert_eq!(visible.columns(), twice.columns(), "in their order, as they were");
            assert_eq!(world.handle.streams_created(), 1, "no offset changes its rows");
        } else {
            // What was under way beside a request goes in before its parts.
            assert_eq!(
                by_id(&visible).columns(),
                by_id(&twice).columns(),
                "each as often, as it was"
            );
            assert_eq!(world.handle.streams_created(), 0);
        }
    }
}

/// The rows in the order of their ids.
fn by_id(rows: &RecordBatch) -> RecordBatch {
    let ids = rows.column(0).as_primitive::<Int64Type>().values();
    let mut order: Vec<u32> = (0..).take(ids.len()).collect();
    order.sort_by_key(|&row| ids[row as usize]);
    arrow_select::take::take_record_batch(rows, &arrow_array::UInt32Array::from(order)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_row_that_the_server_alone_finds_too_large_is_told_with_its_size() {
    let world = World::new();
    world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().max_request_bytes = 100_000);
    let names = StringArray::from(vec!["x".to_owned(), "x".repeat(200_000), "x".to_owned()]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![0, 1, 2])), Arc::new(names)];
    let mut sink = world.start(None).await;
    sink.process_batch(RecordBatch::try_new(self::columns(), columns).unwrap())
        .await
        .unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(
        text.starts_with("the row at offset 1 of projects/shop/datasets/sales/tables/orders/streams/")
            && text.contains(" takes 2002")
            && text.contains(" bytes, which BigQuery does not take: AppendRows request too large: "),
        "{text}"
    );
}
