//! Every metric moves as docs/metrics.md says: what changes from one moment to the next, faults included, and nothing else.

use std::time::Duration;

use arrow_array::TimestampNanosecondArray;
use arrow_schema::TimeUnit;
use bigquery_write_emulator::machine::FlushBelow;
use prometheus::{Registry, TextEncoder};
use tokio::time::sleep;

use super::*;
use crate::metrics::{Metrics, PREFIX, families};

/// A world whose metrics are gathered, and what they said last.
struct Watched {
    world: World,
    registry: Registry,
    last: BTreeMap<String, f64>,
    moved: Vec<String>,
}

impl Watched {
    fn with(options: &[(&str, &str)]) -> Self {
        let registry = Registry::new();
        let mut world = World::with(options);
        world.environment.metrics = Metrics::register(&registry).unwrap();
        Self {
            world,
            registry,
            last: BTreeMap::new(),
            moved: Vec::new(),
        }
    }

    /// A subtask that has started, and what its series say then is known.
    async fn start(&mut self) -> BigQuerySink {
        let sink = self.world.start(None).await;
        self.last = self.samples();
        sink
    }

    /// Every sample by its name, with the value of its own label; of histograms how often.
    fn samples(&self) -> BTreeMap<String, f64> {
        let text = TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap();
        let samples = text.lines().filter_map(|line| {
            let (series, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{')?;
            if name.ends_with("_bucket") || name.ends_with("_sum") {
                return None;
            }
            let mut own = labels.trim_end_matches('}').split(',').filter(|label| {
                let common = ["node_id=", "operator_name=", "subtask_idx="];
                !common.iter().any(|common| label.starts_with(common))
            });
            let own = own.next().map(|label| format!("{{{}}}", label.replace('"', "")));
            Some((
                format!("{name}{}", own.unwrap_or_default()),
                value.parse().unwrap(),
            ))
        });
        samples.collect()
    }

    /// What has changed since the last look: counters by how much, gauges to what. Bytes are told as "some".
    fn changes(&mut self) -> Vec<String> {
        let now = self.samples();
        let names: std::collections::BTreeSet<&String> = now.keys().chain(self.last.keys()).collect();
        let mut changes = Vec::new();
        for name in names {
            let (before, after) = (self.last.get(name), now.get(name));
            if before == after {
                continue;
            }
            self.moved.push(name.clone());
            let is_count = name.contains("_total") || name.ends_with("_count");
            changes.push(match (before, after) {
                (_, None) => format!("{name} gone"),
                (before, Some(after)) if is_count => {
                    let more = after - before.copied().unwrap_or_default();
                    assert!(more > 0.0, "{name} went down by {more}");
                    match name.contains("bytes") {
                        true => format!("{name} +some"),
                        false => format!("{name} +{more}"),
                    }
                }
                (_, Some(after)) if name.contains("bytes") && *after > 0.0 => format!("{name} some"),
                (_, Some(after)) => format!("{name} {after}"),
            });
        }
        self.last = now;
        changes
    }

    /// As [`Self::changes`], of faults alone: what comes with every rows that are published is left out.
    fn faults(&mut self) -> Vec<String> {
        const USUAL: [&str; 14] = [
            "rows_appended_total",
            "bytes_appended_total",
            "append_requests_total{result=ok}",
            "append_duration_seconds_count",
            "rows_committed_total",
            "flushes_total{result=ok}",
            "flush_duration_seconds_count",
            "streams_created_total",
            "checkpoint_drain_seconds_count",
            "commit_duration_seconds_count",
            "uncommitted_rows",
            "oldest_uncommitted_seconds",
            "stream_expiry_seconds",
            "last_committed_epoch",
        ];
        let mut changes = self.changes();
        changes.retain(|change| !USUAL.contains(&change.split(' ').next().unwrap_or_default()));
        changes
    }
}

/// The families that have moved so far.
#[derive(Default)]
struct Moved(std::collections::BTreeSet<String>);

impl Moved {
    fn by(&mut self, watched: &Watched) {
        for name in &watched.moved {
            let family = name.split('{').next().unwrap_or_default();
            self.0
                .insert(format!("{PREFIX}{}", family.trim_end_matches("_count")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_moves_as_it_is_described() {
    let mut moved = Moved::default();
    moved.by(&calm().await);
    moved.by(&refused_and_lost().await);
    for watched in rows_that_do_not_fit().await {
        moved.by(&watched);
    }
    for watched in flushes().await {
        moved.by(&watched);
    }
    moved.by(&left().await);
    moved.by(&given_up().await);
    moved.by(&truncated().await);
    moved.by(&split().await);
    let all: Vec<String> = families().iter().map(|family| family.name()).collect();
    let still: Vec<&String> = all.iter().filter(|name| !moved.0.contains(*name)).collect();
    assert_eq!(still, [""; 0], "never moved");
}

/// An epoch that nothing disturbs, step by step.
async fn calm() -> Watched {
    let mut watched = Watched::with(&[]);
    watched
        .world
        .fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 1000}}"#);
    let mut sink = watched.start().await;
    sink.process_batch(rows(0..5)).await.unwrap();
    sleep(Duration::from_millis(700)).await;
    assert_eq!(
        watched.changes(),
        [
            "inflight_bytes some",
            "inflight_requests 1",
            "streams_created_total +1"
        ]
    );
    sleep(Duration::from_millis(10_500)).await;
    assert_eq!(
        watched.changes(),
        [
            "append_duration_seconds_count +1",
            "append_requests_total{result=ok} +1",
            "bytes_appended_total +some",
            "inflight_bytes 0",
            "inflight_requests 0",
            "oldest_uncommitted_seconds 10",
            "rows_appended_total +5",
            // A week without those ten seconds.
            "stream_expiry_seconds 604790",
            "uncommitted_rows 5",
        ]
    );
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(watched.changes(), ["checkpoint_drain_seconds_count +1"]);
    commit(1, &taken, &mut sink).await;
    assert_eq!(
        watched.changes(),
        [
            "commit_duration_seconds_count +1",
            "flush_duration_seconds_count +1",
            "flushes_total{result=ok} +1",
            "last_committed_epoch 1",
            "oldest_uncommitted_seconds 0",
            "rows_committed_total +5",
            "stream_expiry_seconds gone",
            "uncommitted_rows 0",
        ]
    );
    // Said again, it is done again and counts once.
    commit(1, &taken, &mut sink).await;
    assert_eq!(
        watched.changes(),
        [
            "commit_duration_seconds_count +1",
            "flush_duration_seconds_count +1",
            "flushes_total{result=ok} +1",
        ]
    );
    sink.on_close(CloseReason::Stop).await.unwrap();
    assert_eq!(
        watched.changes(),
        [
            "inflight_bytes gone",
            "inflight_requests gone",
            "last_committed_epoch gone",
            "oldest_uncommitted_seconds gone",
            "streams_discarded_total{reason=ended} +1",
            "uncommitted_rows gone",
        ]
    );
    watched
}

/// Faults of requests, one after the other on one stream.
async fn refused_and_lost() -> Watched {
    let mut watched = Watched::with(&[("append.timeout", "60s")]);
    let mut sink = watched.start().await;
    let refuse = |code: &str, message: &str| {
        format!(r#"{{"kind": "refuse", "code": "{code}", "message": "{message}", "in_band": true}}"#)
    };
    let result = |result: &str| format!("append_requests_total{{result={result}}} +1");
    let own = |text: &str| text.to_owned();
    let cases = [
        (
            refuse("ABORTED", "later"),
            vec![result("transient"), own("requests_resent_total +1")],
        ),
        (
            refuse("RESOURCE_EXHAUSTED", "Exceeds quota"),
            vec![result("quota"), own("requests_resent_total +1")],
        ),
        (
            refuse("OUT_OF_RANGE", "beyond"),
            vec![result("out_of_range"), own("requests_resent_total +1")],
        ),
        (
            own(r#"{"kind": "lose_answer", "code": "UNAVAILABLE"}"#),
            vec![
                result("already_exists"),
                result("lost"),
                own("own_resends_stored_total +1"),
                own("reconnects_total{code=UNAVAILABLE} +1"),
                own("requests_resent_total +1"),
            ],
        ),
        // It never comes: the connection is given up.
        (
            own(r#"{"kind": "delay", "ms": 86400000}"#),
            vec![
                result("already_exists"),
                result("lost"),
                own("own_resends_stored_total +1"),
                own("reconnects_total{code=DEADLINE_EXCEEDED} +1"),
                own("requests_resent_total +1"),
                own("stale_answers_dropped_total +1"),
            ],
        ),
    ];
    for (epoch, (action, expected)) in (1..).zip(cases) {
        watched.world.fault(&format!(
            r#"{{"rpc": "AppendRows", "occurrence": {{"nth": 1}}, "action": {action}}}"#
        ));
        let first = i64::try_from(epoch).unwrap() * 10;
        publish(epoch, rows(first..first + 3), &mut sink).await;
        assert_eq!(watched.faults(), expected, "{action}");
    }
    // Three at once, the first of which fails: the others are echoes.
    watched.world.fault(&format!(
        r#"{{"rpc": "AppendRows", "action": {{"kind": "delay", "ms": 2000}}}},
           {{"rpc": "AppendRows", "occurrence": {{"nth": 1}}, "action": {}}}"#,
        refuse("ABORTED", "later")
    ));
    for first in [100, 110, 120] {
        sink.process_batch(rows(first..first + 3)).await.unwrap();
        sleep(Duration::from_millis(250)).await;
    }
    let taken = checkpoint(10, &mut sink).await;
    commit(10, &taken, &mut sink).await;
    let faults = watched.faults();
    assert!(faults.contains(&own("echoes_discarded_total +2")), "{faults:?}");
    assert!(faults.contains(&own("requests_resent_total +3")), "{faults:?}");
    watched
}

/// Rows that the sink or BigQuery finds wrong, with and without dead letters.
async fn rows_that_do_not_fit() -> [Watched; 2] {
    let bad = r#"{"rpc": "AppendRows", "table": "orders", "occurrence": {"nth": 1}, "action": {"kind": "row_errors", "rows": [0, 2], "message": "bad"}}"#;
    let mut letters = Watched::with(&[
        ("row_errors", "dead_letter"),
        ("dead_letter.table", "refused"),
        ("dead_letter.max_ratio", "1"),
    ]);
    let schema = table_schema_for(&crate::sink::dead_letters::columns()).unwrap();
    let refused = TableRef::new("shop", "sales", "refused");
    let schema = Schema::from_wire(&schema).unwrap();
    letters.world.handle.create_table(&refused, schema).unwrap();
    letters.world.fault(bad);
    let mut sink = letters.start().await;
    publish(1, rows(0..5), &mut sink).await;
    assert_eq!(
        letters.faults(),
        [
            "append_requests_total{result=row_error} +1",
            "dead_letters_written_total +2",
            "rows_rejected_total{by=bigquery} +2",
        ]
    );
    assert_eq!(
        letters.samples()["rows_committed_total"],
        3.0,
        "dead letters are counted apart"
    );

    let mut fail = Watched::with(&[]);
    fail.world.fault(bad);
    let mut sink = fail.start().await;
    sink.process_batch(rows(0..5)).await.unwrap();
    sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    let faults = fail.faults();
    let counted: Vec<&String> = faults.iter().filter(|change| change.contains("_total")).collect();
    assert_eq!(
        counted,
        [
            "append_requests_total{result=row_error} +1",
            "rows_rejected_total{by=bigquery} +2",
            "streams_discarded_total{reason=ended} +1",
        ]
    );
    let status = &fail.world.environment.metrics.subtasks()[0];
    assert!(!status.is_running);
    let troubles: Vec<&str> = status
        .troubles
        .iter()
        .map(|trouble| trouble.text.as_str())
        .collect();
    assert_eq!(
        troubles[0].rsplit_once(" (").unwrap().1,
        "2 rows)",
        "{troubles:?}"
    );
    assert!(
        troubles[1].starts_with("appending failed: InvalidArgument"),
        "{troubles:?}"
    );
    [letters, fail]
}

/// Flushes that are answered late, twice, never.
async fn flushes() -> [Watched; 3] {
    let mut again = Watched::with(&[]);
    again
        .world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().flush_again = FlushBelow::AlreadyExists);
    again
        .world
        .fault(r#"{"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer", "code": "UNAVAILABLE"}}"#);
    let mut sink = again.start().await;
    publish(1, rows(0..5), &mut sink).await;
    let flushes = [
        "flushes_total{result=already_flushed} +1",
        "flushes_total{result=retry} +1",
    ];
    assert_eq!(again.faults(), flushes);
    assert_eq!(again.samples()["rows_committed_total"], 5.0);

    let unprovable = async |decision: &str, expected: &[&str]| {
        let mut watched = Watched::with(&[("commit.unprovable", decision), ("commit.timeout", "60s")]);
        let mut sink = watched.start().await;
        sink.process_batch(rows(0..5)).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        watched.world.handle.advance(8 * 24 * 3_600_000);
        sink.handle_commit(Epoch(1), &taken.commits).await.unwrap();
        let mut faults = watched.faults();
        // How often it is tried is a matter of the budget, and the append call is closed as idle meanwhile.
        let beside = ["flushes_total{result=retry}", "reconnects_total{code=ABORTED}"];
        faults.retain(|change| !beside.iter().any(|beside| change.starts_with(beside)));
        assert_eq!(faults, expected);
        let samples = watched.samples();
        assert_eq!(
            (samples["rows_committed_total"], samples["uncommitted_rows"]),
            (0.0, 0.0)
        );
        watched
    };
    let assumed = ["flushes_total{result=failed} +1", "rows_assumed_visible_total +5"];
    let lost = ["flushes_total{result=failed} +1", "rows_lost_total +5"];
    [
        again,
        unprovable("assume_visible", &assumed).await,
        unprovable("accept_loss", &lost).await,
    ]
}

/// A stream that was idle for so long that another one is taken.
async fn left() -> Watched {
    let mut watched = Watched::with(&[]);
    let mut sink = watched.start().await;
    publish(1, rows(0..3), &mut sink).await;
    sleep(Duration::from_secs(4 * 86_400)).await;
    publish(2, rows(3..5), &mut sink).await;
    assert_eq!(
        watched.faults(),
        [
            "reconnects_total{code=ABORTED} +1",
            "streams_discarded_total{reason=idle} +1"
        ]
    );
    assert_eq!(watched.samples()["streams_created_total"], 2.0);
    watched
}

/// A request that is refused for good, and a flush.
async fn given_up() -> Watched {
    let mut watched = Watched::with(&[]);
    let mut sink = watched.start().await;
    sink.process_batch(rows(0..3)).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    let refuse = |rpc: &str, in_band: bool| {
        format!(
            r#"{{"rpc": "{rpc}", "action": {{"kind": "refuse", "code": "UNIMPLEMENTED", "message": "no", "in_band": {in_band}}}}}"#
        )
    };
    watched.changes();
    watched.world.fault(&refuse("FlushRows", false));
    sink.handle_commit(Epoch(1), &taken.commits).await.unwrap_err();
    let counted = |changes: Vec<String>| -> Vec<String> {
        let counted = changes.into_iter().filter(|change| change.contains("_total"));
        counted.collect()
    };
    let failed = [
        "flushes_total{result=failed} +1",
        "streams_discarded_total{reason=ended} +1",
    ];
    assert_eq!(counted(watched.changes()), failed);

    watched.world.fault(&refuse("AppendRows", true));
    let mut sink = watched.start().await;
    sink.process_batch(rows(0..3)).await.unwrap();
    sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    let fatal = [
        "append_requests_total{result=fatal} +1",
        "streams_created_total +1",
        "streams_discarded_total{reason=ended} +1",
    ];
    assert_eq!(counted(watched.changes()), fatal);
    watched
}

/// Nanoseconds that BigQuery cannot hold.
async fn truncated() -> Watched {
    let mut watched = Watched::with(&[("table", "moments")]);
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let columns = Arc::new(ArrowSchema::new(vec![Field::new("at", nanoseconds, false)]));
    let schema = Schema::from_wire(&table_schema_for(&columns).unwrap()).unwrap();
    let moments = TableRef::new("shop", "sales", "moments");
    watched.world.handle.create_table(&moments, schema).unwrap();
    let mut sink = watched.world.sink(0, 1);
    sink.columns = Arc::clone(&columns);
    sink.on_start(None).await.unwrap();
    watched.last = watched.samples();
    let moments = TimestampNanosecondArray::from(vec![1_000, 1_001, 2_000, 2_999]);
    let batch = RecordBatch::try_new(columns, vec![Arc::new(moments)]).unwrap();
    sink.process_batch(batch).await.unwrap();
    checkpoint(1, &mut sink).await;
    assert_eq!(watched.faults(), ["values_truncated_total +2"]);
    watched
}

/// A request larger than BigQuery takes.
async fn split() -> Watched {
    let mut watched = Watched::with(&[]);
    watched
        .world
        .handle
        .shared()
        .with(|machine| machine.switches_mut().max_request_bytes = 30_000);
    let mut sink = watched.start().await;
    let names = StringArray::from(vec!["x".repeat(1_000); 40]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..40)), Arc::new(names)];
    let batch = RecordBatch::try_new(super::columns(), columns).unwrap();
    publish(1, batch, &mut sink).await;
    assert_eq!(
        watched.faults(),
        [
            "append_requests_total{result=too_large} +1",
            "requests_split_total +1"
        ]
    );
    assert_eq!(watched.samples()["append_requests_total{result=ok}"], 2.0);
    watched
}
