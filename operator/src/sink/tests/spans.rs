//! What is told of the work as it goes on: which rows, where, how many; never what is in them. (That tokens are not told is a test of theirs.)

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing::subscriber::set_default;
use tracing_subscriber::fmt::format::FmtSpan;

use super::*;

/// What was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<u8>>>);

impl Told {
    fn text(&self) -> String {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(told.clone()).unwrap()
    }

    /// The spans of one kind, with all their fields and those around them, in the order of their ends. A stream is told by its last letter.
    fn ended(&self, span: &str) -> Vec<String> {
        let (kind, stream) = (format!("{span}{{"), format!("stream={TABLE}/streams/"));
        let text = self.text();
        let ended = text
            .lines()
            .filter_map(|line| line.trim().strip_suffix(": close"));
        // Of what stands around it the name comes first.
        let ended = ended.filter(|line| line.rsplit(":").next().is_some_and(|last| last.contains(&kind)));
        let ended = ended.map(|line| match line.split_once(&stream) {
            Some((before, behind)) => {
                let end = behind.find([' ', '}']).unwrap_or(behind.len());
                format!("{before}stream={}", &behind[end - 1..])
            }
            None => line.to_owned(),
        });
        ended.collect()
    }
}

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn epochs_requests_and_flushes_are_told_with_streams_and_sizes_and_no_values() {
    let told = Told::default();
    let writer = told.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .finish();
    // Of a line that another test's thread reaches first, `tracing` asks that thread's subscriber alone as long as there is only one:
    // nobody there wants it, and it would be off here too.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let _guard = set_default(subscriber);
    let world = World::new();
    world.fault(
        r#"{"rpc": "AppendRows", "occurrence": {"nth": 2}, "action": {"kind": "refuse", "code": "ABORTED", "message": "later", "in_band": true}},
           {"rpc": "FlushRows", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer", "code": "UNAVAILABLE"}}"#,
    );
    let mut sink = world.start(None).await;
    publish(1, rows(0..3), &mut sink).await;
    publish(2, rows(3..8), &mut sink).await;
    sink.process_batch(rows(8..9)).await.unwrap();
    sink.on_close(CloseReason::EndOfData).await.unwrap();
    drop(sink);
    assert_eq!(
        told.ended("append"),
        [
            r#"epoch{subtask=0}:append{stream=A rows=3 bytes=280 offset=0 result="ok"}"#,
            r#"epoch{subtask=0}:append{stream=A rows=5 bytes=312 offset=3 result="transient"}"#,
            r#"epoch{subtask=0}:append{stream=A rows=5 bytes=312 offset=3 result="ok"}"#,
            r#"epoch{subtask=0}:append{stream=A rows=1 bytes=248 offset=8 result="ok"}"#,
        ]
    );
    assert_eq!(
        told.ended("flush"),
        [
            r#"epoch{subtask=0 epoch=1 rows=3}:flush{stream=A offset=2 result="UNAVAILABLE"}"#,
            r#"epoch{subtask=0 epoch=1 rows=3}:flush{stream=A offset=2 rows=3 result="ok"}"#,
            r#"epoch{subtask=0 epoch=2 rows=5}:flush{stream=A offset=7 rows=5 result="ok"}"#,
            r#"epoch{subtask=0}:flush{stream=A offset=8 rows=1 result="ok"}"#,
        ]
    );
    assert_eq!(
        told.ended("epoch"),
        [
            "epoch{subtask=0 epoch=1 rows=3}",
            "epoch{subtask=0 epoch=2 rows=5}",
            "epoch{subtask=0}"
        ]
    );
    // At every level, of every library: the text is long.
    let text = told.text();
    assert!(text.len() > 100_000, "{} bytes", text.len());
    let named = name(1).unwrap();
    assert!(!text.contains(&named), "the value '{named}' is told");
}
