//! Sizes, linger and backpressure: what goes into a request and when, and who waits for whom.

use std::time::Duration;

use bigquery_write_proto::rows::{EncodedRows, MeasuredRows};
use tokio::time::{sleep, timeout};

use super::*;
use crate::sink::coalesce::Coalescer;

const TARGET: usize = 2 << 20;

/// Rows whose names have these lengths.
fn sized(lengths: impl IntoIterator<Item = usize>) -> RecordBatch {
    let names: Vec<_> = lengths.into_iter().map(|length| "x".repeat(length)).collect();
    let ids = Int64Array::from_iter_values((0..).take(names.len()));
    RecordBatch::try_new(columns(), vec![Arc::new(ids), Arc::new(StringArray::from(names))]).unwrap()
}

const FORMATS: [Format; 2] = [Format::Arrow, Format::Proto];

/// Rows and bytes of each request that these batches make, when nothing else comes.
fn requests(format: Format, batches: impl IntoIterator<Item = RecordBatch>) -> Vec<(usize, usize)> {
    let mut coalescer = Coalescer::new(Arc::new(wire(format)), TARGET, 64 << 20);
    let mut requests = Vec::new();
    let mut take = |coalescer: &mut Coalescer| {
        let payload = coalescer.take().unwrap().unwrap();
        requests.push((payload.rows, payload.encoded.bytes()));
    };
    for batch in batches {
        coalescer.push(measured(format, &batch)).unwrap();
        while coalescer.is_full() {
            take(&mut coalescer);
        }
    }
    while !coalescer.is_empty() {
        take(&mut coalescer);
    }
    assert!(coalescer.take().unwrap().is_none());
    requests
}

fn measured(format: Format, batch: &RecordBatch) -> MeasuredRows {
    wire(format)
        .measure(encoder().convert(batch).unwrap().batch)
        .unwrap()
}

/// The rows of a message, under the pipeline's schema.
fn decoded(encoder: &RowEncoder, rows: &EncodedRows) -> RecordBatch {
    let EncodedRows::Arrow(message) = rows else {
        panic!("not Arrow: {rows:?}")
    };
    let stream = [encoder.writer_schema().as_ref(), message].concat();
    let mut reader = arrow_ipc::reader::StreamReader::try_new(stream.as_slice(), None).unwrap();
    let rows = reader.next().unwrap().unwrap();
    RecordBatch::try_new(columns(), rows.columns().to_vec()).unwrap()
}

/// All but the last are about as large as asked for.
fn assert_full(requests: &[(usize, usize)], rows: usize) {
    assert_eq!(requests.iter().map(|(rows, _)| rows).sum::<usize>(), rows);
    let (last, full) = requests.split_last().unwrap();
    for (_, bytes) in full {
        assert!((TARGET * 19 / 20..=TARGET + 1024).contains(bytes), "{requests:?}");
    }
    assert!(last.1 <= TARGET + 1024);
}

#[tokio::test(start_paused = true)]
async fn tiny_batches_fill_requests_as_large_ones_do() {
    for (format, size) in FORMATS
        .into_iter()
        .flat_map(|format| [1, 2, 7, 50, 512, 5_000, 50_000].map(|size| (format, size)))
    {
        let batches = (0..50_000 / size).map(|_| sized((0..size).map(|_| 90)));
        let requests = requests(format, batches);
        assert_full(&requests, 50_000 / size * size);
        assert_eq!(
            requests.len(),
            3,
            "5 MB in batches of {size}, {format:?}: {requests:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_cut_by_bytes_and_not_by_rows() {
    for format in FORMATS {
        // A few large rows, then many small ones, and the other way round.
        let uneven = (0..8).map(|_| 800_000).chain((0..20_000).map(|_| 10));
        let requests = requests(format, [sized(uneven)]);
        let counts: Vec<_> = requests.iter().map(|(rows, _)| *rows).collect();
        assert_eq!(counts[..3], [2, 2, 2]);
        assert_eq!(counts.iter().sum::<usize>(), 20_008);
        assert!(
            requests.iter().all(|(_, bytes)| *bytes <= TARGET + 1024),
            "{requests:?}"
        );

        let uneven = (0..60_000).map(|_| 10).chain((0..3).map(|_| 3_000_000));
        let requests = self::requests(format, [sized(uneven)]);
        let last: Vec<_> = requests.iter().rev().take(3).map(|(rows, _)| *rows).collect();
        assert_eq!(last, [1, 1, 1], "rows above the target go alone");
        assert_eq!(requests.iter().map(|(rows, _)| rows).sum::<usize>(), 60_003);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_keep_their_order_through_joining_and_cutting() {
    let encoder = encoder();
    let mut coalescer = Coalescer::new(Arc::new(wire(Format::Arrow)), 64 << 10, 64 << 20);
    let (mut next, mut taken, mut expected) = (0, Vec::new(), Vec::new());
    // Tiny ones in a row, merged and not, and large ones between.
    for size in std::iter::repeat_n(1, 200)
        .chain([9_000, 3, 3, 20_000])
        .chain(std::iter::repeat_n(2, 63))
    {
        let batch = rows(next..next + size);
        next += size;
        expected.push(batch.clone());
        coalescer.push(measured(Format::Arrow, &batch)).unwrap();
        while coalescer.is_full() {
            taken.push(coalescer.take().unwrap().unwrap());
        }
    }
    while let Some(payload) = coalescer.take().unwrap() {
        taken.push(payload);
    }
    let all = arrow_select::concat::concat_batches(&columns(), &expected).unwrap();
    let mut from = 0;
    for payload in taken {
        assert_eq!(
            decoded(&encoder, &payload.encoded),
            all.slice(from, payload.rows),
            "rows {from} and on"
        );
        from += payload.rows;
    }
    assert_eq!(from, all.num_rows());
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_full_request_waits_since_its_own_arrival() {
    let mut coalescer = Coalescer::new(Arc::new(wire(Format::Arrow)), TARGET, 64 << 20);
    assert_eq!(coalescer.since(), None);
    let begin = Instant::now();
    coalescer
        .push(measured(Format::Arrow, &sized([1_500_000])))
        .unwrap();
    sleep(Duration::from_millis(150)).await;
    coalescer
        .push(measured(Format::Arrow, &sized([1_500_000])))
        .unwrap();
    assert_eq!(coalescer.since(), Some(begin));
    sleep(Duration::from_millis(30)).await;
    assert_eq!(coalescer.take().unwrap().unwrap().rows, 1);
    assert_eq!(coalescer.since(), Some(begin + Duration::from_millis(150)));
}

#[tokio::test(start_paused = true)]
async fn five_megabytes_of_tiny_batches_go_out_in_three_requests() {
    let world = World::new();
    // Anything larger than a request should be would be refused.
    let limit = TARGET as u64 + 2048;
    world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().max_request_bytes = limit);
    world.count_appends();
    let mut sink = world.start(None).await;
    for _ in 0..5_000 {
        sink.process_batch(sized((0..10).map(|_| 90))).await.unwrap();
    }
    assert_eq!(
        world.counted(),
        2,
        "the third is not full, and its rows have not waited"
    );
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!((taken.rows, world.counted()), (50_000, 3));

    // The same in one batch.
    sink.process_batch(sized((0..50_000).map(|_| 90))).await.unwrap();
    let taken = checkpoint(2, &mut sink).await;
    assert_eq!((taken.rows, world.counted()), (50_000, 6));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_no_request_can_hold_is_said_with_its_size() {
    let world = World::new();
    let mut sink = world.start(None).await;
    sink.process_batch(sized([10, 9_900_000, 10])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(
        (taken.rows, commit(1, &taken, &mut sink).await),
        (3, 3),
        "above the target, below the limit"
    );

    let error = sink.process_batch(sized([10, 12_000_000, 10])).await.unwrap_err();
    let text = "row 2 of the batch takes 12000336 bytes, more than the 9961472 bytes of the largest request; shorten the values, or \
                let such rows become dead letters (option 'row_errors')";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn lingering_rows_go_out_without_a_call_of_the_host() {
    let world = World::with(&[("write.append.linger", "300ms")]);
    world.count_appends();
    let mut sink = world.start(None).await;
    // With a stream and a connection, the linger is all there is to wait for.
    publish(1, rows(0..1), &mut sink).await;
    let before = world.counted();
    sink.process_batch(rows(1..2)).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    sink.process_batch(rows(2..3)).await.unwrap();
    sleep(Duration::from_millis(199)).await;
    assert_eq!(world.counted(), before);
    sleep(Duration::from_millis(5)).await;
    assert_eq!(world.counted(), before + 1, "300 ms after the first of them");
    assert_eq!(world.streams(), [(3, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_does_not_wait_for_the_linger() {
    let world = World::with(&[("write.append.linger", "10s")]);
    let mut sink = world.start(None).await;
    let begin = Instant::now();
    publish(1, rows(0..3), &mut sink).await;
    assert!(
        begin.elapsed() < Duration::from_millis(50),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn rows_wait_while_the_window_is_full_and_go_on_after_an_answer() {
    // Invariant 13.
    let world = World::with(&[
        ("write.append.bytes", "64KiB"),
        ("write.inflight.bytes", "256KiB"),
        ("write.inflight.time", "60s"),
    ]);
    let mut sink = world.start(None).await;
    publish(1, rows(0..1), &mut sink).await;
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 10000}}"#);
    let batch = || sized((0..64).map(|_| 1000));
    let mut taken = 0_u64;
    let begin = Instant::now();
    // Four requests in the window, one being filled, one batch in the queue.
    for _ in 0..4 + 1 + 1 {
        sink.process_batch(batch()).await.unwrap();
        taken += 1;
    }
    assert!(
        begin.elapsed() < Duration::from_millis(50),
        "{:?}",
        begin.elapsed()
    );
    while begin.elapsed() < Duration::from_secs(60) {
        sink.process_batch(batch()).await.unwrap();
        taken += 1;
        let stored = world.handle.streams()[0].end - 1;
        assert!(
            taken * 64 - stored <= 3 * 64 && stored <= taken * 64,
            "{taken} batches, {stored} rows"
        );
    }
    assert!(
        (20..=40).contains(&taken),
        "four requests in ten seconds: {taken}"
    );
    let prepared = checkpoint(2, &mut sink).await;
    assert_eq!(prepared.rows, taken * 64);
    assert_eq!(commit(2, &prepared, &mut sink).await, taken * 64);
}

#[tokio::test(start_paused = true)]
async fn the_window_is_bounded_in_requests_too() {
    let world = World::with(&[("write.inflight.requests", "3"), ("write.append.linger", "1ms")]);
    let mut sink = world.start(None).await;
    publish(1, rows(0..1), &mut sink).await;
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 10000}}"#);
    for id in 1..=5 {
        sink.process_batch(rows(id..id + 1)).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.streams(), [(4, 1)], "the other two are joined and wait");
    let prepared = checkpoint(2, &mut sink).await;
    assert_eq!((prepared.rows, world.counted()), (5, 4));
    commit(2, &prepared, &mut sink).await;
    assert_eq!(world.visible(), (0..6).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_done_while_rows_of_the_next_epoch_wait_for_room() {
    let world = World::with(&[("write.append.bytes", "64KiB"), ("write.inflight.bytes", "64KiB")]);
    let mut sink = world.start(None).await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let first = checkpoint(1, &mut sink).await;
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 30000}}"#);
    // The first fills the window and what is held beside it, the second waits in the queue.
    for _ in 0..2 {
        sink.process_batch(sized((0..400).map(|_| 1000))).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    assert!(world.streams()[0].0 < 200, "{:?}", world.streams());
    let begin = Instant::now();
    let committed = timeout(Duration::from_secs(1), commit(1, &first, &mut sink)).await;
    assert_eq!(committed, Ok(3));
    assert!(
        begin.elapsed() < Duration::from_millis(50),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(world.visible(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_costs_the_answers_under_way_and_no_more() {
    let world = World::new();
    let mut sink = world.start(None).await;
    publish(1, rows(0..1), &mut sink).await;
    world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 50}}"#);
    for _ in 0..10 {
        sink.process_batch(sized((0..2000).map(|_| 1000))).await.unwrap();
    }
    let begin = Instant::now();
    assert_eq!(checkpoint(2, &mut sink).await.rows, 20_000);
    assert!(
        begin.elapsed() <= Duration::from_millis(60),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_goes_out_in_one_turn() {
    // More requests than a task may await in one turn of the runtime: they must neither wait nor get lost.
    let world = World::new();
    world.fault(r#"{"rpc": "CreateWriteStream", "action": {"kind": "delay", "ms": 55000}}"#);
    let mut sink = world.start(None).await;
    for id in 0..220 {
        sink.process_batch(rows(id..id + 1)).await.unwrap();
        // Past the linger: a request of its own.
        sleep(Duration::from_millis(230)).await;
    }
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 220);
    assert_eq!(world.visible(), (0..220).collect::<Vec<_>>());
    assert_eq!(world.reconnects(), 0);
}
