//! Mistakes of a sink at its close, made on purpose ([`Mutant`]) to see that the simulation notices them. Never in a normal build.

use bigquery_sink_state::Mutant;

use super::{BigQuerySink, driver};
use crate::host::{Barrier, CloseReason};

impl BigQuerySink {
    /// Makes the mistake, if it is one of the close; gives the reason to go on with.
    pub(super) async fn mistaken_close(&mut self, reason: CloseReason) -> CloseReason {
        let mutation = self.environment.mutation;
        if mutation.is(Mutant::AppendInCloseAfterSnapshot) {
            return CloseReason::EndOfData;
        }
        if mutation.is(Mutant::FinalizeInClose) {
            self.finalize_streams().await;
        }
        reason
    }

    async fn finalize_streams(&mut self) {
        // A snapshot tells which streams the sink holds.
        let barrier = Barrier {
            epoch: bigquery_sink_state::Epoch(u64::MAX),
            then_stop: true,
        };
        let Ok(mut running) = self.take_running() else {
            return;
        };
        let (reply, prepared) = tokio::sync::oneshot::channel();
        let mark = driver::Mark::Barrier {
            epoch: barrier.epoch,
            since: tokio::time::Instant::now(),
            reply,
        };
        if running.feed(driver::Feed::Mark(mark)).await.is_err() {
            return;
        }
        let Ok(driver::Prepared { state, .. }) = running.answer(prepared).await else {
            return;
        };
        self.running = Some(running);
        for held in state.streams {
            if let Ok(stream) = held.state.stream.0.parse() {
                self.environment.transport.finalize_stream(&stream).await.ok();
            }
        }
    }
}
