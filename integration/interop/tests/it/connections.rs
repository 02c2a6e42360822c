//! What Google's Rust client does by itself: leaving out what it has said, pipelining, resending, sharing connections.

use std::time::Duration;

use google_cloud_bigquery::error::{AppendError, CommitError, WriterBuilderError};
use google_cloud_bigquery::model::storage_error::StorageErrorCode;
use google_cloud_bigquery::write::DefaultWriter;
use google_cloud_bigquery::write::format::Arrow;
use google_cloud_bigquery::write::stream_type::{BufferedStream, CommittedStream, PendingStream};
use google_cloud_gax::error::rpc::Code;
use google_cloud_gax::exponential_backoff::ExponentialBackoffBuilder;
use tokio::task::JoinSet;

use crate::world::{World, batch, batch_with_note, limited, numbered, path, schema, schema_with_note};

const NO_FAULTS: &str = "{}";

/// The client names stream and schema in the first request of a connection alone, and waits for no answer.
#[tokio::test]
async fn a_thousand_pipelined_appends_are_answered_in_order() {
    const APPENDS: i64 = 1000;
    let world = World::start(&["t"], NO_FAULTS).await;
    let create = world.write.create_stream::<CommittedStream>(path("t"));
    let writer = limited(create.build_arrow(schema())).await.unwrap();
    let answers: Vec<_> = (0..APPENDS)
        .map(|number| 3 * number)
        .map(|offset| {
            let append = writer.append(batch(&numbered(offset, offset + 3)));
            append.set_offset(offset).send()
        })
        .collect();
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(limited(answer).await.unwrap().offset, Some(3 * number));
    }
    assert_eq!(world.rows("t").await, numbered(0, 3 * APPENDS));
    let route = format!("write_stream={}", writer.write_stream());
    let calls = world.appends();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].0, route);
    assert!(calls[0].1.starts_with("rust-writer:"), "{}", calls[0].1);
}

/// One refused append, then pipelined ones behind it: each hears that its offset is beyond the end.
#[tokio::test]
async fn what_is_pipelined_behind_a_refused_append_is_out_of_range() {
    let world = World::start(&["t"], NO_FAULTS).await;
    let create = world.write.create_stream::<CommittedStream>(path("t"));
    let writer = limited(create.build_arrow(schema())).await.unwrap();
    let append = |from, to| {
        let append = writer.append(batch(&numbered(from, to)));
        append.set_offset(from).send()
    };
    let answers = [
        append(0, 2),
        append(1, 2),
        append(3, 4),
        append(4, 5),
        append(2, 3),
    ];
    let mut seen = Vec::new();
    for answer in answers {
        seen.push(match limited(answer).await {
            Ok(answer) => Ok(answer.offset),
            Err(AppendError::Rpc { source, .. }) => Err(source.status().unwrap().code),
            Err(other) => panic!("unexpected: {other}"),
        });
    }
    let expected = [
        Ok(Some(0)),
        Err(Code::AlreadyExists),
        Err(Code::OutOfRange),
        Err(Code::OutOfRange),
        Ok(Some(2)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(world.rows("t").await, numbered(0, 3));
}

/// Whatever becomes of the second append before it is applied, the client sends it again, on a new call where it must.
#[tokio::test]
async fn the_default_stream_is_appended_to_again_after_a_fault() {
    let faults = [
        (
            r#"{"kind": "refuse", "code": "ABORTED", "message": "Closing the stream because server is restarted."}"#,
            2,
        ),
        (
            r#"{"kind": "refuse", "code": "UNAVAILABLE", "message": "the connection is draining"}"#,
            2,
        ),
        (
            r#"{"kind": "refuse", "code": "INTERNAL", "message": "try again", "in_band": true}"#,
            1,
        ),
        (r#"{"kind": "end", "ok": true}"#, 2),
        (r#"{"kind": "end"}"#, 2),
        (r#"{"kind": "reset"}"#, 2),
        (r#"{"kind": "go_away"}"#, 1),
    ];
    for (action, calls) in faults {
        let plan = format!(
            r#"{{"rules": [{{"rpc": "AppendRows", "occurrence": {{"nth": 2}}, "action": {action}}}]}}"#
        );
        let world = World::start(&["t"], &plan).await;
        let writer = default_writer(&world).await;
        for id in 0..3 {
            let answer = limited(writer.append(batch(&numbered(id, id + 1))).send()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{action}: {error}"));
            assert_eq!((answer.offset, answer.updated_schema), (None, None), "{action}");
        }
        assert_eq!(world.rows("t").await, numbered(0, 3), "{action}");
        assert_eq!(world.appends().len(), calls, "{action}");
        assert_eq!(world.handle().faults()[0].fired, 1, "{action}");
    }
}

/// Nothing of a request with a bad row is taken in, and the connection carries on (write-api.md 3.5).
#[tokio::test]
async fn bad_rows_are_named() {
    let bad = r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 1},
        "action": {"kind": "row_errors", "rows": [1], "message": "Field name: too long"}}]}"#;
    let world = World::start(&["t"], bad).await;
    let create = world.write.create_stream::<CommittedStream>(path("t"));
    let writer = limited(create.build_arrow(schema())).await.unwrap();
    let append = || writer.append(batch(&numbered(0, 2))).set_offset(0).send();
    let Err(AppendError::RowErrors {
        status, row_errors, ..
    }) = limited(append()).await
    else {
        panic!("row 1 is bad");
    };
    assert_eq!(status.code, Code::InvalidArgument);
    let [error] = row_errors.as_slice() else {
        panic!("one row is bad: {row_errors:?}");
    };
    assert_eq!((error.index, error.message.as_str()), (1, "Field name: too long"));
    assert_eq!(limited(append()).await.unwrap().offset, Some(0));
    assert_eq!(world.rows("t").await, numbered(0, 2));
    assert_eq!(world.appends().len(), 1);
}

/// The default stream is at least once (write-api.md 2): the client cannot know that the rows were taken in.
#[tokio::test]
async fn a_lost_answer_on_the_default_stream_doubles_its_rows() {
    let lost =
        r#"{"rules": [{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "lose_answer"}}]}"#;
    let world = World::start(&["t"], lost).await;
    let writer = default_writer(&world).await;
    for id in 0..3 {
        limited(writer.append(batch(&numbered(id, id + 1))).send())
            .await
            .unwrap();
    }
    let expected = [numbered(0, 2), numbered(1, 3)].concat();
    assert_eq!(world.rows("t").await, expected);
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_default_stream_goes_on() {
    let world = World::start(&["t"], NO_FAULTS).await;
    let writer = default_writer(&world).await;
    for id in 0..3 {
        limited(writer.append(batch(&numbered(id, id + 1))).send())
            .await
            .unwrap();
        world.handle().advance(600_000);
        assert_eq!(world.handle().connections(), 0);
    }
    assert_eq!(world.rows("t").await, numbered(0, 3));
    assert_eq!(world.appends().len(), 3);
}

/// Of two hundred appends none is given up when the server goes away, nor those in flight when the line is cut.
#[tokio::test]
async fn the_default_stream_outlives_its_connections() {
    const APPENDS: i64 = 200;
    /// The answer to this request is held, and so are those behind it.
    const STALLED: usize = 120;
    let stall = format!(
        r#"{{"rules": [{{"rpc": "AppendRows", "occurrence": {{"nth": {STALLED}}}, "action": {{"kind": "stall"}}}}]}}"#
    );
    let world = World::start(&["t"], &stall).await;
    let writer = default_writer(&world).await;
    let mut answers = JoinSet::new();
    for id in 0..APPENDS {
        answers.spawn(writer.append(batch(&numbered(id, id + 1))).send());
    }
    let mut answered = 0;
    while let Some(answer) = limited(answers.join_next()).await {
        answer.unwrap().unwrap();
        answered += 1;
        if answered == STALLED / 2 {
            world.handle().go_away();
        }
        if answered == STALLED - 1 {
            world.handle().cut();
        }
    }
    let mut rows = world.rows("t").await;
    assert!(rows.len() > APPENDS as usize, "what was in flight is there again");
    rows.dedup();
    assert_eq!(rows, numbered(0, APPENDS));
}

/// write-api.md 7.3 [PROD JIT, GIT]: connections go on, are told with a success after a while, and a new one writes it.
#[tokio::test]
async fn a_column_is_added_while_rows_stream_in() {
    const LAG_MS: u32 = 10_000;
    let world = World::start(&["t"], NO_FAULTS).await;
    let create = world.write.create_stream::<CommittedStream>(path("t"));
    let writer = limited(create.build_arrow(schema())).await.unwrap();
    let mut told = Vec::new();
    for id in 0..4 {
        match id {
            1 => drop(world.query("ALTER TABLE interop.t ADD COLUMN note STRING").await),
            2 => world.handle().advance(LAG_MS),
            _ => {}
        }
        let append = writer.append(batch(&numbered(id, id + 1))).set_offset(id).send();
        let news = limited(append).await.unwrap().updated_schema;
        told.push(news.map(|schema| schema.fields.into_iter().map(|f| f.name).collect::<Vec<_>>()));
    }
    let names = ["id", "name", "note"].map(str::to_owned).to_vec();
    assert_eq!(told[..3], [None, None, Some(names)]);
    let attach = world
        .write
        .attach_to_stream::<CommittedStream>(writer.write_stream());
    let wide = limited(attach.build_arrow(schema_with_note())).await.unwrap();
    let append = wide
        .append(batch_with_note(&numbered(4, 6), "noted"))
        .set_offset(4);
    assert_eq!(limited(append.send()).await.unwrap().offset, Some(4));
    let noted = "SELECT id, note AS name FROM interop.t WHERE note IS NOT NULL ORDER BY id";
    assert_eq!(
        world.query(noted).await,
        [4, 5].map(|id| (id, Some("noted".to_owned())))
    );
    assert_eq!(world.rows("t").await, numbered(0, 6));
}

/// A request that goes to another table than the one before names its stream and schema (write-api.md 1.2).
#[tokio::test]
async fn two_tables_share_a_connection() {
    let world = World::start(&["a", "b"], NO_FAULTS).await;
    let mut writers = Vec::new();
    for table in ["a", "b"] {
        let open = world.write.open_default_stream(path(table));
        let open = open.with_multiplexing(true).build_arrow(schema());
        writers.push(limited(open).await.unwrap());
    }
    for (id, table) in (0..).zip([0, 0, 1, 1, 0, 1, 1, 0]) {
        let append = writers[table].append(batch(&numbered(id, id + 1))).send();
        limited(append).await.unwrap();
    }
    let rows = |ids: [i64; 4]| ids.map(|id| (id, Some(format!("row {id}")))).to_vec();
    assert_eq!(world.rows("a").await, rows([0, 1, 4, 7]));
    assert_eq!(world.rows("b").await, rows([2, 3, 5, 6]));
    assert_eq!(world.appends().len(), 1);
}

#[tokio::test]
async fn a_stream_of_another_type_is_not_attached_to() {
    let world = World::start(&["t"], NO_FAULTS).await;
    let create = world.write.create_stream::<BufferedStream>(path("t"));
    let stream = limited(create.build_arrow(schema())).await.unwrap();
    let attach = world
        .write
        .attach_to_stream::<CommittedStream>(stream.write_stream());
    let Err(WriterBuilderError::TypeMismatch { actual, .. }) = limited(attach.build_arrow(schema())).await
    else {
        panic!("the stream is BUFFERED");
    };
    assert_eq!(actual, "Buffered");
}

/// A refused commit is an OK answer with errors and without a time (write-api.md 2.4).
#[tokio::test]
async fn a_pending_stream_is_committed_once_it_is_finalized_and_once() {
    let world = World::start(&["t"], NO_FAULTS).await;
    let create = world.write.create_stream::<PendingStream>(path("t"));
    let writer = limited(create.build_arrow(schema())).await.unwrap();
    for (from, to) in [(0, 1), (1, 3)] {
        let append = writer.append(batch(&numbered(from, to))).set_offset(from).send();
        assert_eq!(limited(append).await.unwrap().offset, Some(from));
    }
    let refused = |error| match error {
        CommitError::FailedTransaction { stream_errors, .. } => stream_errors
            .into_iter()
            .map(|error| (error.code, error.entity))
            .collect::<Vec<_>>(),
        other => panic!("unexpected: {other}"),
    };
    let stream = || writer.write_stream().to_owned();
    let early = limited(writer.commit()).await.unwrap_err();
    assert_eq!(refused(early), [(StorageErrorCode::InvalidStreamState, stream())]);
    assert_eq!(limited(writer.finalize()).await.unwrap().row_count, 3);
    assert_eq!(world.rows("t").await, []);
    assert!(limited(writer.commit()).await.unwrap().commit_time.is_some());
    assert_eq!(world.rows("t").await, numbered(0, 3));
    let again = limited(writer.commit()).await.unwrap_err();
    assert_eq!(
        refused(again),
        [(StorageErrorCode::StreamAlreadyCommitted, stream())]
    );
    assert_eq!(world.rows("t").await, numbered(0, 3));
}

/// A writer that is quick to try again.
async fn default_writer(world: &World) -> DefaultWriter<Arrow> {
    let backoff = ExponentialBackoffBuilder::new()
        .with_initial_delay(Duration::from_millis(1))
        .with_maximum_delay(Duration::from_millis(100))
        .build()
        .unwrap();
    let open = world.write.open_default_stream(path("t"));
    let open = open.with_backoff_policy(backoff).build_arrow(schema());
    limited(open).await.unwrap()
}
