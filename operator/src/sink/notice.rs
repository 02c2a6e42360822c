//! What the core finds worth telling: counted, and logged as loud as it matters.

use bigquery_sink_state::Notice;

use super::Counters;

pub(super) fn tell(notice: &Notice, counters: &Counters) {
    match notice {
        Notice::Reconnect { fault } => {
            Counters::add(&counters.reconnects, 1);
            tracing::debug!(%fault, "an append connection ended");
        }
        Notice::Retry { fault, pause } => {
            Counters::add(&counters.retries, 1);
            tracing::debug!(%fault, ?pause, "sending a request again");
        }
        Notice::OwnResendStored => {
            Counters::add(&counters.own_resends_stored, 1);
            tracing::debug!("a resend met its own rows");
        }
        Notice::EchoDiscarded => {
            Counters::add(&counters.echoes_discarded, 1);
            tracing::debug!("discarded an answer behind a failed request");
        }
        Notice::StaleAnswerDropped => {
            Counters::add(&counters.stale_answers_dropped, 1);
            tracing::debug!("dropped an answer of an older connection");
        }
        Notice::StreamLeft {
            stream,
            flushable,
            reason,
        } => {
            Counters::add(&counters.streams_left, 1);
            tracing::warn!(%stream, %flushable, reason, "left a write stream");
        }
        Notice::RequestTooLarge { bytes, fault } => {
            Counters::add(&counters.requests_split, 1);
            tracing::warn!(bytes, %fault, "BigQuery refused a request as too large; sending it in parts");
        }
        Notice::RowsRejected { stream, rows } => {
            Counters::add(&counters.rows_rejected_by_bigquery, rows.0);
            tracing::warn!(%stream, %rows, "BigQuery refused rows");
        }
        Notice::AlreadyFlushed => Counters::add(&counters.already_flushed, 1),
        Notice::UnprovableAccepted {
            stream,
            epoch,
            rows,
            lost,
        } => {
            let counter = if *lost {
                &counters.rows_lost
            } else {
                &counters.rows_assumed_visible
            };
            Counters::add(counter, rows.0);
            tracing::error!(%stream, ?epoch, %rows, lost, "accepted a commit that cannot be shown to be visible");
        }
    }
}
