//! What the core finds worth telling: counted, and logged as loud as it matters.

use bigquery_sink_state::Notice;

use crate::metrics::{Counter, Discarded, RejectedBy, SubtaskMetrics};

pub(super) fn tell(notice: &Notice, metrics: &SubtaskMetrics) {
    match notice {
        Notice::Reconnect { fault } => {
            metrics.add(Counter::Reconnects(fault.code), 1);
            tracing::debug!(%fault, "an append connection ended");
        }
        Notice::Retry { fault, pause } => {
            tracing::debug!(%fault, ?pause, "trying again");
        }
        Notice::OwnResendStored => {
            metrics.add(Counter::OwnResendsStored, 1);
            tracing::debug!("a resend met its own rows");
        }
        Notice::EchoDiscarded => {
            metrics.add(Counter::EchoesDiscarded, 1);
            tracing::debug!("discarded an answer behind a failed request");
        }
        Notice::StaleAnswerDropped => {
            metrics.add(Counter::StaleAnswersDropped, 1);
            tracing::debug!("dropped an answer of an older connection");
        }
        Notice::StreamLeft {
            stream,
            flushable,
            reason,
        } => {
            metrics.left(stream, Discarded::of(reason));
            metrics.trouble(&format!("left write stream {stream}: {reason}"));
            tracing::warn!(%stream, %flushable, %reason, "left a write stream");
        }
        Notice::RequestTooLarge { bytes, fault } => {
            metrics.add(Counter::RequestsSplit, 1);
            tracing::warn!(bytes, %fault, "BigQuery refused a request as too large; sending it in parts");
        }
        Notice::RowsRejected { stream, rows } => {
            metrics.add(Counter::RowsRejected(RejectedBy::BigQuery), rows.0);
            tracing::warn!(%stream, %rows, "BigQuery refused rows");
        }
        // Counted with the answer that says so.
        Notice::AlreadyFlushed => tracing::debug!("a flush had been done before"),
        Notice::UnprovableAccepted {
            stream,
            epoch,
            rows,
            lost,
        } => {
            metrics.accepted(stream, *rows, *lost);
            tracing::error!(%stream, ?epoch, %rows, lost, "accepted a commit that cannot be shown to be visible");
        }
    }
}
