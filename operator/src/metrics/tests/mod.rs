//! The table, the registry, and what the gauges say over time.

mod monitoring;

use std::collections::BTreeSet;
use std::time::Duration;

use bigquery_sink_state::{Code, Epoch, Micros, RowCount, SubtaskIndex};
use prometheus::TextEncoder;
use tokio::time::{Instant, advance};

use super::*;

fn task(subtask: u32) -> Task {
    Task {
        subtask: SubtaskIndex(subtask),
        parallelism: 2,
        started_at_micros: 0,
        operator_name: "orders".to_owned(),
        node_id: 7,
    }
}

fn clock() -> Clock {
    Clock {
        started_at: Micros(1_800_000_000_000_000),
        started: Instant::now(),
    }
}

fn stream(name: &str) -> StreamName {
    StreamName(format!("projects/p/datasets/d/tables/t/streams/{name}"))
}

/// The samples of a family, without what is common to all names.
fn gathered(registry: &Registry, family: &str) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let prefix = format!("{PREFIX}{family}{{");
    let samples = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    samples.map(str::to_owned).collect()
}

#[test]
fn the_page_of_metrics_in_the_docs_is_the_table() {
    // UPDATE_EXPECT=1 writes it.
    expect_test::expect_file!["../../../../docs/metrics.md"].assert_eq(&describe());
}

#[test]
fn no_name_is_one_that_the_engine_breaks_off_at() {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry).unwrap();
    let _sink = metrics.start(&task(0), clock());
    let gathered = registry.gather();
    assert!(gathered.len() > 20);
    for family in &gathered {
        // As `job_metrics.rs` of the engine does with every name.
        assert!(!family.name()["arroyo_worker_".len()..].is_empty());
        assert!(family.name().starts_with("arroyo_worker_bigquery_"), "{family:?}");
    }
    let families = families();
    let names: BTreeSet<String> = families.iter().map(Family::name).collect();
    assert_eq!(names.len(), families.len(), "each name is there once");
    let gathered: BTreeSet<String> = gathered.iter().map(|family| family.name().to_owned()).collect();
    let absent: Vec<&String> = names.difference(&gathered).collect();
    // Those that say nothing before there is something to say.
    let expected = ["last_committed_epoch", "stream_expiry_seconds"].map(|name| format!("{PREFIX}{name}"));
    assert_eq!(absent, expected.iter().collect::<Vec<_>>());
    assert_eq!(gathered.difference(&names).count(), 0);
}

#[test]
fn every_counter_has_a_series_from_the_start() {
    let metrics = Arc::new(Metrics::default());
    let sink = metrics.start(&task(0), clock());
    for (number, counter) in (1..).zip(Counter::all()) {
        sink.add(counter, number);
        assert_eq!(metrics.total(counter), number, "{counter:?}");
    }
    let code = |counter| matches!(counter, Counter::Reconnects(Code::Unavailable | Code::Aborted));
    let each = metrics.total(Counter::Reconnects(Code::Unavailable))
        + metrics.total(Counter::Reconnects(Code::Aborted));
    assert_eq!(metrics.sum(code), each);
}

#[test]
fn a_registry_takes_the_metrics_once_and_the_default_one_gives_the_same_to_all() {
    let registry = Registry::new();
    let _metrics = Metrics::register(&registry).unwrap();
    let again = Metrics::register(&registry).unwrap_err();
    assert!(matches!(again, prometheus::Error::AlreadyReg), "{again:?}");
    Metrics::register(&Registry::new()).unwrap();

    let metrics = Metrics::of_default_registry();
    assert!(Arc::ptr_eq(&metrics, &Metrics::of_default_registry()));
    let mut another_job = task(3);
    another_job.operator_name = "a test of the default registry".to_owned();
    metrics.start(&another_job, clock()).add(Counter::RowsAppended, 5);
    metrics.start(&another_job, clock()).add(Counter::RowsAppended, 6);
    let labels = r#"node_id="7",operator_name="a test of the default registry",subtask_idx="3"} 11"#;
    assert_eq!(
        gathered(prometheus::default_registry(), "rows_appended_total"),
        [labels]
    );
}

#[tokio::test(start_paused = true)]
async fn ages_grow_while_nothing_moves_and_are_gone_with_the_subtask() {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry).unwrap();
    let sink = metrics.start(&task(1), clock());
    let value = |family: &str| {
        let samples = gathered(&registry, family);
        let labels = r#"node_id="7",operator_name="orders",subtask_idx="1"} "#;
        samples.first().map(|sample| {
            assert_eq!(samples.len(), 1);
            sample.strip_prefix(labels).unwrap().parse::<f64>().unwrap()
        })
    };
    let gauges = || {
        [
            "uncommitted_rows",
            "oldest_uncommitted_seconds",
            "stream_expiry_seconds",
            "last_committed_epoch",
        ]
        .map(value)
    };
    let week = 7.0 * 86_400.0;
    let name = stream("s1");
    sink.opened(&name, Destination::Table);
    assert_eq!(gauges(), [Some(0.0), Some(0.0), None, None]);
    sink.acknowledged(&name, Destination::Table, Some(NextOffset(3)), (RowCount(3), 30));
    advance(Duration::from_secs(10)).await;
    sink.acknowledged(&name, Destination::Table, Some(NextOffset(8)), (RowCount(5), 50));
    sink.prepared();
    advance(Duration::from_secs(5)).await;
    // Rows of the next checkpoint, on a stream that is left after them.
    sink.acknowledged(&name, Destination::Table, Some(NextOffset(9)), (RowCount(1), 10));
    sink.left(&name, Discarded::Idle);
    advance(Duration::from_secs(20)).await;
    assert_eq!(gauges(), [Some(9.0), Some(35.0), Some(week - 20.0), None]);
    advance(Duration::from_secs(7 * 86_400)).await;
    assert_eq!(gauges(), [Some(9.0), Some(week + 35.0), Some(0.0), None]);

    sink.flush_asked(&name, NextOffset(8));
    sink.flushed(&name, NextOffset(8));
    sink.committed(Epoch(4));
    assert_eq!(gauges(), [Some(1.0), Some(week + 20.0), Some(0.0), Some(4.0)]);
    let status = metrics.subtasks();
    assert_eq!(
        status[0].streams,
        [StreamStatus {
            stream: name.0.clone(),
            destination: Destination::Table,
            next_offset: 9,
            flushed: 8,
            phase: StreamPhase::Left,
        }]
    );
    sink.flushed(&name, NextOffset(9));
    sink.committed(Epoch(5));
    assert_eq!(gauges(), [Some(0.0), Some(0.0), None, Some(5.0)]);
    assert_eq!(
        metrics.subtasks()[0].streams,
        [],
        "a stream that is left and owes nothing is forgotten"
    );
    sink.trouble("something");
    drop(sink);
    assert_eq!(gauges(), [None; 4]);
    let status = &metrics.subtasks()[0];
    assert!(!status.is_running);
    assert_eq!(status.troubles.len(), 1, "what went wrong is still told");
    assert_eq!(value("rows_committed_total"), Some(9.0), "counters stay");
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_committed_again_after_a_restart_count_once() {
    let metrics = Arc::new(Metrics::default());
    let sink = metrics.start(&task(0), clock());
    let name = stream("s1");
    sink.opened(&name, Destination::Table);
    sink.acknowledged(&name, Destination::Table, Some(NextOffset(8)), (RowCount(8), 80));
    sink.prepared();
    sink.flush_asked(&name, NextOffset(8));
    sink.flushed(&name, NextOffset(8));
    drop(sink);
    assert_eq!(metrics.total(Counter::StreamsDiscarded(Discarded::Ended)), 1);

    // Its commit was not confirmed; another subtask repeats it, and goes on with rows of its own.
    let (commit, state) = restored(&name, 5, 8);
    for is_expected in [true, false] {
        let sink = metrics.start(&task(1), clock());
        sink.restored(&[&state], is_expected, |_| Destination::Table);
        let owed = if is_expected { 3 } else { 0 };
        assert_eq!(metrics.subtasks()[1].uncommitted_rows, owed);
        sink.flush_asked(&name, commit);
        assert_eq!(
            metrics.subtasks()[1].uncommitted_rows,
            3,
            "owed from its flush on"
        );
        sink.flushed(&name, commit);
        assert_eq!(metrics.subtasks()[1].uncommitted_rows, 0);
    }
    assert_eq!(metrics.total(Counter::RowsCommitted), 8);
}

/// A checkpoint whose commit list names rows of a stream.
fn restored(name: &StreamName, from: u64, end: u64) -> (NextOffset, bigquery_sink_state::SubtaskState) {
    use bigquery_sink_state::{BigQueryCommitInfo, CommitList, FlushOffset, Incarnation, SubtaskState};
    let commit = BigQueryCommitInfo {
        stream: name.clone(),
        from_offset: NextOffset(from),
        flush_offset: FlushOffset(end - 1),
    };
    let state = SubtaskState {
        checkpoint_id: Epoch(1),
        subtask: SubtaskIndex(0),
        parallelism: 1,
        incarnation: Incarnation(1),
        table: "projects/p/datasets/d/tables/t".to_owned(),
        streams: Vec::new(),
        commit: CommitList(vec![commit]),
    };
    (NextOffset(end), state)
}

#[test]
fn the_newest_instance_is_the_one_that_is_told_of() {
    let metrics = Arc::new(Metrics::default());
    let old = metrics.start(&task(0), clock());
    let new = metrics.start(&task(0), clock());
    new.inflight(10, 1);
    old.inflight(99, 9);
    drop(old);
    let status = &metrics.subtasks()[0];
    assert_eq!((status.is_running, status.inflight_bytes), (true, 10));
}

#[test]
fn troubles_are_few_and_short() {
    let metrics = Arc::new(Metrics::default());
    let sink = metrics.start(&task(0), clock());
    for number in 0..100 {
        sink.trouble(&format!("{number} {}", "ä".repeat(2000)));
    }
    let troubles = &metrics.subtasks()[0].troubles;
    assert_eq!(troubles.len(), 16);
    assert!(troubles[0].text.starts_with("84 "), "{}", troubles[0].text);
    assert!(
        troubles
            .iter()
            .all(|trouble| (1000..=1024).contains(&trouble.text.len()))
    );
}

#[test]
fn what_is_remembered_of_streams_has_a_bound() {
    let metrics = Metrics::default();
    for number in 0..2 * COUNTED_STREAMS {
        metrics.shown(&stream(&number.to_string()), NextOffset(1));
    }
    assert_eq!(lock(&metrics.counted).ends.len(), COUNTED_STREAMS);
    let last = stream(&(2 * COUNTED_STREAMS - 1).to_string());
    assert_eq!(metrics.shown(&last, NextOffset(4)), NextOffset(1));
    assert_eq!(
        metrics.shown(&stream("0"), NextOffset(4)),
        NextOffset(0),
        "forgotten"
    );
}
