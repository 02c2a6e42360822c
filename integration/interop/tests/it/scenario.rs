//! The conversation of `scenario/golden.json`, held by Google's Rust client with Arrow rows.

use std::path::Path;

use bigquery_write_emulator::machine::Behaviour;
use google_cloud_bigquery::Error;
use google_cloud_bigquery::error::AppendError;
use google_cloud_bigquery::model_ext::AppendResponse;
use google_cloud_bigquery::write::BufferedWriter;
use google_cloud_bigquery::write::format::Arrow;
use google_cloud_bigquery::write::stream_type::BufferedStream;
use serde_json::{Map, Value, json};

use crate::world::{Row, World, batch, limited, path, schema};

const GOLDEN: &str = include_str!("../../scenario/golden.json");
const FAULTS: &str = include_str!("../../scenario/faults.json");
/// The name of this client in the golden transcript, and of its table in the fault plan.
const CLIENT: &str = "rust-arrow";
const TABLE: &str = "rust_arrow";

/// What the client holds between the steps.
#[derive(Default)]
struct Client {
    stream: String,
    writer: Option<BufferedWriter<Arrow>>,
    connections: u32,
}

#[tokio::test]
async fn the_client_sees_the_golden_transcript() {
    let world = World::start(&[TABLE], FAULTS).await;
    let mut transcript = Vec::new();
    let held = hold(&world, &mut transcript).await;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{CLIENT}.json"));
    std::fs::write(file, serde_json::to_string_pretty(&transcript).unwrap()).unwrap();
    held.unwrap();
}

/// The transcript is no good if a server may err and it does not show.
#[tokio::test]
async fn the_golden_transcript_shows_a_server_that_errs() {
    const SHOWN: [Behaviour; 12] = [
        Behaviour::AnswersFirstRowOffset,
        Behaviour::OffsetBelowEndExists,
        Behaviour::OffsetAboveEndOutOfRange,
        Behaviour::FinalizedTakesNoAppends,
        Behaviour::LaterRequestsInherit,
        Behaviour::AnyProcessGoesOn,
        Behaviour::HeldUntilPublished,
        Behaviour::FlushIsInclusive,
        Behaviour::FlushShowsRowsOnce,
        Behaviour::FinalizedTakesNoFlush,
        Behaviour::FinalizeCountsRows,
        Behaviour::FaultsFire,
    ];
    for behaviour in SHOWN {
        let world = World::start_unlearned(&[TABLE], FAULTS, Some(behaviour)).await;
        let held = hold(&world, &mut Vec::new()).await;
        assert!(
            held.is_err(),
            "the transcript does not show an emulator without {behaviour:?}"
        );
    }
}

/// Takes every step, up to the first at which something else is seen.
async fn hold(world: &World, transcript: &mut Vec<Value>) -> Result<(), String> {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let mut client = Client::default();
    for (number, step) in golden["steps"].as_array().unwrap().iter().enumerate() {
        let mut expected = step["see"].clone();
        forget_not_seen(&golden["not_seen"], &mut expected);
        let seen = client.take(world, &step["do"]).await;
        transcript.push(json!({ "do": step["do"], "see": seen }));
        if seen != expected {
            let (done, fact) = (&step["do"], &step["fact"]);
            return Err(format!(
                "step {number}, {done} ({fact}):\nexpected {expected}\nfound    {seen}"
            ));
        }
    }
    Ok(())
}

/// Removes what this client does not show.
fn forget_not_seen(not_seen: &Value, expected: &mut Value) {
    for rule in not_seen.as_array().unwrap() {
        if rule["client"] == CLIENT {
            expected
                .as_object_mut()
                .unwrap()
                .remove(rule["field"].as_str().unwrap());
        }
    }
}

impl Client {
    /// Carries out one step, and says what there was to see.
    async fn take(&mut self, world: &World, step: &Value) -> Value {
        if step.get("create").is_some() {
            let build = world
                .write
                .create_stream::<BufferedStream>(path(TABLE))
                .build_arrow(schema());
            self.stream = limited(build).await.unwrap().write_stream().to_owned();
            json!({ "code": "OK" })
        } else if step.get("attach").is_some() {
            // The client compares the stream's type with the one asked for.
            self.attach(world).await;
            json!({ "code": "OK", "type": "BUFFERED" })
        } else if step.get("append").is_some() {
            self.append(world, step).await
        } else if let Some(offset) = step.get("flush") {
            let flush = self.writer().flush(offset.as_i64().unwrap());
            match limited(flush).await {
                Ok(answer) => json!({ "code": "OK", "offset": answer.offset }),
                Err(error) => refused(&error),
            }
        } else if step.get("finalize").is_some() {
            match limited(self.writer().finalize()).await {
                Ok(answer) => json!({ "code": "OK", "row_count": answer.row_count }),
                Err(error) => refused(&error),
            }
        } else {
            assert_eq!(step["read"], "rows");
            json!({ "rows": world.rows(TABLE).await })
        }
    }

    fn writer(&self) -> &BufferedWriter<Arrow> {
        self.writer.as_ref().unwrap()
    }

    async fn attach(&mut self, world: &World) {
        let attach = world.write.attach_to_stream::<BufferedStream>(&self.stream);
        self.writer = Some(limited(attach.build_arrow(schema())).await.unwrap());
        self.connections += 1;
    }

    /// A writer has one connection, and is over with it.
    async fn append(&mut self, world: &World, step: &Value) -> Value {
        let mut answer = self.send(step).await;
        if step.get("cut").is_none() && matches!(answer, Err(AppendError::UnexpectedEndOfStream)) {
            self.attach(world).await;
            answer = self.send(step).await;
        }
        let mut seen = match answer {
            Ok(answer) => json!({ "code": "OK", "offset": answer.offset.unwrap() }),
            Err(AppendError::Rpc { source, .. }) => refused(&source),
            Err(other) => json!({ "code": other.to_string() }),
        };
        if step.get("cut").is_some_and(|cut| cut == "line") {
            seen.as_object_mut().unwrap().remove("code").unwrap();
        }
        seen["connection"] = self.connections.into();
        seen
    }

    async fn send(&self, step: &Value) -> Result<AppendResponse, AppendError> {
        let rows: Vec<Row> = serde_json::from_value(step["append"].clone()).unwrap();
        let append = self.writer().append(batch(&rows));
        limited(append.set_offset(step["offset"].as_i64().unwrap()).send()).await
    }
}

/// A refusal's code, and the part of its text that clients parse.
fn refused(error: &Error) -> Value {
    let Some(status) = error.status() else {
        return json!({ "code": error.to_string() });
    };
    let mut seen = Map::from_iter([("code".to_owned(), status.code.name().into())]);
    if let Some(text) = parsed(&status.message) {
        seen.insert("text".to_owned(), text.into());
    }
    seen.into()
}

/// `expected offset N, received M` or `Stream has been finalized`.
fn parsed(message: &str) -> Option<&str> {
    const FINALIZED: &str = "Stream has been finalized";
    if message.contains(FINALIZED) {
        return Some(FINALIZED);
    }
    let from = message.find("expected offset ")?;
    let end = message[from..]
        .find(" Entity")
        .map_or(message.len(), |end| from + end);
    Some(&message[from..end])
}
