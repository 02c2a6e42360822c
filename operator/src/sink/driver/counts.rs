//! What the driver's metrics are told, beyond what the core's commands say themselves.

use std::time::Duration;

use bigquery_sink_state::{Failure, FailureKind, Fault, Generation, Input, Phase, Reaction, classify};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::{Driver, Flush, reply};
use crate::metrics::{AppendResult, Counter, FlushResult, Histogram, RejectedBy, code_name};
use crate::options::{RowErrors, WriteMode};

/// What is known of the last refusals only when the core has said what it makes of them.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    /// A flush was refused: it is asked for again, or not.
    flush: bool,
    /// Rows that a refusal named, where the job may end with them (`row_errors = 'fail'`).
    rows: u64,
}

impl Driver {
    /// A request was answered that was sent then.
    pub(super) fn count_answer(&self, sent: Instant, span: &Span, answer: Result<(), &Fault>) {
        self.metrics.observe(Histogram::AppendDuration, sent.elapsed());
        let result = answer.map_or_else(|fault| self.append_result(fault), |()| AppendResult::Ok);
        self.metrics.add(Counter::AppendRequests(result), 1);
        span.record("result", result.as_str());
        // Rows that are there already are those of a resend, as a rule; of others it is told that the stream is left.
        if let Err(fault) = answer
            && result != AppendResult::AlreadyExists
        {
            self.metrics.fault("AppendRows", fault);
        }
    }

    /// The end of a connection takes answers along that it owes.
    pub(super) fn count_lost(&self, connection: Generation, fault: &Fault) {
        let Some(open) = self.connections.get(&connection) else {
            return;
        };
        let unanswered = open.unanswered.len();
        if unanswered == 0 {
            // An idle close is normal life.
            return;
        }
        let result = self.append_result(fault);
        let result = match unanswered {
            1 if result.is_of_request() => result,
            _ => AppendResult::Lost,
        };
        for sent in &open.unanswered {
            sent.span.record("result", result.as_str());
        }
        self.metrics
            .add(Counter::AppendRequests(result), unanswered as u64);
        self.metrics.fault("AppendRows ended", fault);
    }

    /// A connection is given up that may owe answers.
    pub(super) fn count_given_up(&self, connection: Generation) {
        if let Some(open) = self.connections.get(&connection) {
            let owed = open.unanswered.len() as u64;
            self.metrics.add(Counter::StaleAnswersDropped, owed);
            self.metrics
                .add(Counter::AppendRequests(AppendResult::Lost), owed);
        }
    }

    /// A call of FlushRows has ended.
    pub(super) fn count_flush(
        &mut self,
        flush: &Flush,
        span: &Span,
        took: Duration,
        answer: Result<i64, &Fault>,
    ) {
        self.metrics.observe(Histogram::FlushDuration, took);
        let result = match answer {
            Ok(offset) if u64::try_from(offset).is_ok_and(|offset| offset >= flush.offset.0) => {
                FlushResult::Ok
            }
            Err(fault) if classify(Phase::Flush, fault).reaction == Reaction::Success => {
                FlushResult::AlreadyFlushed
            }
            Ok(_) => {
                self.undecided.flush = true;
                return;
            }
            Err(fault) => {
                self.metrics.fault("FlushRows", fault);
                span.record("result", code_name(fault.code));
                self.undecided.flush = true;
                return;
            }
        };
        self.metrics.add(Counter::Flushes(result), 1);
        let rows = self.metrics.flushed(&flush.stream, flush.offset.next_offset());
        span.record("rows", rows.0).record("result", result.as_str());
    }

    /// What has become of a flush that was refused, if one was.
    pub(super) fn count_refused_flush(&mut self, result: FlushResult) {
        if std::mem::take(&mut self.undecided.flush) {
            self.metrics.add(Counter::Flushes(result), 1);
        }
    }

    /// With `row_errors = 'fail'` the core says nothing of the rows that it fails for.
    pub(super) fn note_refused_rows(&mut self, input: &Input) {
        if self.options.row_errors != RowErrors::Fail {
            return;
        }
        match input {
            Input::AppendFailed { fault, .. } | Input::ConnectionLost { fault, .. } => {
                let rejects = self.append_result(fault) == AppendResult::RowError;
                self.undecided.rows = if rejects { fault.row_errors.len() as u64 } else { 0 };
            }
            Input::AppendAcked { .. } => self.undecided.rows = 0,
            _ => {}
        }
    }

    pub(super) fn count_failure(&mut self, failure: &Failure) {
        self.count_refused_flush(FlushResult::Failed);
        if failure.kind == FailureKind::User {
            let rows = std::mem::take(&mut self.undecided.rows);
            self.metrics
                .add(Counter::RowsRejected(RejectedBy::BigQuery), rows);
        }
    }

    pub(super) fn tell_inflight(&self) {
        self.metrics.inflight(self.payloads.bytes(), self.payloads.len());
    }

    /// Answers the host, which has waited since then.
    pub(super) fn reply_timed<T>(
        &self,
        histogram: Histogram,
        host: Option<(oneshot::Sender<T>, Instant)>,
        value: T,
    ) {
        if let Some((host, since)) = host {
            self.metrics.observe(histogram, since.elapsed());
            reply(Some(host), value);
        }
    }

    fn append_result(&self, fault: &Fault) -> AppendResult {
        let phase = match self.options.mode {
            WriteMode::ExactlyOnce => Phase::Append,
            WriteMode::AtLeastOnce => Phase::DefaultAppend,
        };
        AppendResult::of(classify(phase, fault).reaction)
    }
}
