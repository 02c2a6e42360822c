//! The table of metrics: what is registered, documented and tested comes from here.

use std::fmt::Write as _;

use bigquery_sink_state::{Code, LeaveReason, Reaction};

/// What every name begins with. The engine cuts as many letters off the front of every name as `arroyo_worker_` has, and breaks off at a
/// shorter one (arroyo.md section 5).
pub const PREFIX: &str = "arroyo_worker_bigquery_";

/// Labels of every series: the engine's own.
pub const LABELS: [&str; 3] = ["node_id", "subtask_idx", "operator_name"];

/// One family of series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    name: &'static str,
    /// What it is to Prometheus.
    pub kind: Kind,
    /// The label beside [`LABELS`], if there is one.
    pub label: Option<&'static str>,
    /// What it counts or measures, in one line.
    pub help: &'static str,
}

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only goes up, from 0 at the start of the process.
    Counter,
    /// It goes up and down, and is gone when the subtask is.
    Gauge,
    /// How often something took how long.
    Histogram,
}

/// What is counted; a label's value is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`family` says what each counts")]
pub enum Counter {
    RowsAppended,
    BytesAppended,
    AppendRequests(AppendResult),
    RowsCommitted,
    Flushes(FlushResult),
    StreamsCreated,
    StreamsDiscarded(Discarded),
    Reconnects(Code),
    RowsRejected(RejectedBy),
    DeadLettersWritten,
    RequestsResent,
    RequestsSplit,
    ValuesTruncated,
    RowsAssumedVisible,
    RowsLost,
    StaleAnswersDropped,
    EchoesDiscarded,
    OwnResendsStored,
}

/// What is measured when somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`family` says what each measures")]
pub enum Gauge {
    UncommittedRows,
    OldestUncommittedSeconds,
    StreamExpirySeconds,
    InflightBytes,
    InflightRequests,
    LastCommittedEpoch,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`family` says what each times")]
pub enum Histogram {
    AppendDuration,
    FlushDuration,
    CheckpointDrain,
    CommitDuration,
}

/// How a request to append ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppendResult {
    /// Its rows were taken.
    Ok,
    /// Rows stand at its offset already.
    AlreadyExists,
    /// Its offset is beyond the stream's end.
    OutOfRange,
    /// Rows of it are bad.
    RowError,
    /// It is larger than BigQuery takes.
    TooLarge,
    /// A quota is used up.
    Quota,
    /// A fault that passes.
    Transient,
    /// The stream is over.
    StreamGone,
    /// A fault that does not pass.
    Fatal,
    /// The connection ended before its answer.
    Lost,
}

/// How a call of FlushRows ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushResult {
    /// The rows are visible.
    Ok,
    /// They were visible before.
    AlreadyFlushed,
    /// A fault; the flush is asked for again.
    Retry,
    /// A fault, after which nothing more is tried.
    Failed,
}

/// Why a stream gets no more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Discarded {
    /// It was idle for days.
    Idle,
    /// It is gone and owed nothing.
    Gone,
    /// Rows that are not ours stand at its end.
    ForeignRows,
    /// What became of requests on it is not known.
    InDoubt,
    /// Its subtask ended.
    Ended,
}

/// Who found that a row does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectedBy {
    /// The sink, before it sent the row.
    Sink,
    /// BigQuery.
    BigQuery,
}

impl Family {
    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            name,
            kind,
            label: None,
            help,
        }
    }

    const fn by(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    /// Its name as Prometheus has it; [`PREFIX`] is part of every one.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// The names of its labels, in order.
    #[must_use]
    pub fn labels(&self) -> Vec<&'static str> {
        LABELS.into_iter().chain(self.label).collect()
    }
}

impl Counter {
    /// Its row of the table.
    #[must_use]
    pub const fn family(self) -> Family {
        const fn counter(name: &'static str, help: &'static str) -> Family {
            Family::new(name, Kind::Counter, help)
        }
        match self {
            Self::RowsAppended => counter(
                "rows_appended_total",
                "Rows that BigQuery acknowledged, dead letters aside. Rows that are read again after a restart count again.",
            ),
            Self::BytesAppended => counter("bytes_appended_total", "Bytes of those rows on the wire."),
            Self::AppendRequests(_) => counter(
                "append_requests_total",
                "Requests to append that ended, dead letters among them, by how.",
            )
            .by("result"),
            Self::RowsCommitted => counter(
                "rows_committed_total",
                "Rows that this process saw become visible, dead letters aside, each once however often its commit is repeated.",
            ),
            Self::Flushes(_) => counter("flushes_total", "Calls of FlushRows that ended, by how.").by("result"),
            Self::StreamsCreated => counter("streams_created_total", "Write streams created."),
            Self::StreamsDiscarded(_) => counter(
                "streams_discarded_total",
                "Write streams that get no more rows, by why.",
            )
            .by("reason"),
            Self::Reconnects(_) => counter(
                "reconnects_total",
                "Connections that ended and are opened again when there are rows, by the gRPC code of their end. An idle close, a server's \
                 restart and a drain are normal life.",
            )
            .by("code"),
            Self::RowsRejected(_) => counter(
                "rows_rejected_total",
                "Rows that do not fit the table, by who found out.",
            )
            .by("by"),
            Self::DeadLettersWritten => counter("dead_letters_written_total", "Dead letters that BigQuery acknowledged."),
            Self::RequestsResent => counter("requests_resent_total", "Requests to append that went out once more."),
            Self::RequestsSplit => counter(
                "requests_split_total",
                "Requests that BigQuery refused as too large and that were cut in two.",
            ),
            Self::ValuesTruncated => counter(
                "values_truncated_total",
                "Values that lost digits below a microsecond (option write.sub_microseconds).",
            ),
            Self::RowsAssumedVisible => counter(
                "rows_assumed_visible_total",
                "Rows that cannot be shown to be visible and count as visible (option commit.unprovable).",
            ),
            Self::RowsLost => counter(
                "rows_lost_total",
                "Rows that cannot be shown to be visible and count as lost (option commit.unprovable).",
            ),
            Self::StaleAnswersDropped => counter(
                "stale_answers_dropped_total",
                "Answers of connections that were given up.",
            ),
            Self::EchoesDiscarded => counter(
                "echoes_discarded_total",
                "Answers behind a failed request that were dropped; the requests go out again.",
            ),
            Self::OwnResendsStored => counter(
                "own_resends_stored_total",
                "Requests sent again whose rows BigQuery had already stored.",
            ),
        }
    }

    /// Its value of the family's label.
    #[must_use]
    pub fn value(self) -> Option<&'static str> {
        match self {
            Self::AppendRequests(result) => Some(result.as_str()),
            Self::Flushes(result) => Some(result.as_str()),
            Self::StreamsDiscarded(reason) => Some(reason.as_str()),
            Self::Reconnects(code) => Some(code_name(code)),
            Self::RowsRejected(by) => Some(by.as_str()),
            _ => None,
        }
    }

    /// Every series of a subtask, in the order of the table.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::RowsAppended, Self::BytesAppended];
        all.extend(AppendResult::ALL.map(Self::AppendRequests));
        all.push(Self::RowsCommitted);
        all.extend(FlushResult::ALL.map(Self::Flushes));
        all.push(Self::StreamsCreated);
        all.extend(Discarded::ALL.map(Self::StreamsDiscarded));
        all.extend(Code::ALL.map(Self::Reconnects));
        all.extend(RejectedBy::ALL.map(Self::RowsRejected));
        all.extend([
            Self::DeadLettersWritten,
            Self::RequestsResent,
            Self::RequestsSplit,
            Self::ValuesTruncated,
            Self::RowsAssumedVisible,
            Self::RowsLost,
            Self::StaleAnswersDropped,
            Self::EchoesDiscarded,
            Self::OwnResendsStored,
        ]);
        all
    }
}

impl Gauge {
    /// All, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::UncommittedRows,
        Self::OldestUncommittedSeconds,
        Self::StreamExpirySeconds,
        Self::InflightBytes,
        Self::InflightRequests,
        Self::LastCommittedEpoch,
    ];

    /// Its row of the table.
    #[must_use]
    pub const fn family(self) -> Family {
        const fn gauge(name: &'static str, help: &'static str) -> Family {
            Family::new(name, Kind::Gauge, help)
        }
        match self {
            Self::UncommittedRows => gauge(
                "uncommitted_rows",
                "Rows and dead letters that BigQuery acknowledged and nobody sees yet.",
            ),
            Self::OldestUncommittedSeconds => gauge(
                "oldest_uncommitted_seconds",
                "How long ago the oldest checkpoint's first of those rows was acknowledged; 0 without any. It grows for as long as no commit \
                 succeeds, whatever else goes on.",
            ),
            Self::StreamExpirySeconds => gauge(
                "stream_expiry_seconds",
                "Seconds until BigQuery collects the first of the streams that hold such rows: seven idle days after its last append. Not \
                 there without any.",
            ),
            Self::InflightBytes => gauge(
                "inflight_bytes",
                "Bytes in requests to append that are not acknowledged.",
            ),
            Self::InflightRequests => gauge(
                "inflight_requests",
                "Requests to append that are not acknowledged.",
            ),
            Self::LastCommittedEpoch => gauge(
                "last_committed_epoch",
                "The newest checkpoint known to be committed. Not there before the first.",
            ),
        }
    }
}

impl Histogram {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [
        Self::AppendDuration,
        Self::FlushDuration,
        Self::CheckpointDrain,
        Self::CommitDuration,
    ];

    /// Its row of the table.
    #[must_use]
    pub const fn family(self) -> Family {
        const fn histogram(name: &'static str, help: &'static str) -> Family {
            Family::new(name, Kind::Histogram, help)
        }
        match self {
            Self::AppendDuration => histogram(
                "append_duration_seconds",
                "From sending a request to append to its answer.",
            ),
            Self::FlushDuration => {
                histogram("flush_duration_seconds", "From one call of FlushRows to its end.")
            }
            Self::CheckpointDrain => histogram(
                "checkpoint_drain_seconds",
                "From a barrier to the acknowledgement of everything before it.",
            ),
            Self::CommitDuration => histogram(
                "commit_duration_seconds",
                "From the call to commit a checkpoint until its rows are visible.",
            ),
        }
    }

    /// Upper bounds in seconds: calls take milliseconds, and their budgets are minutes.
    pub(super) fn buckets(self) -> Vec<f64> {
        match self {
            Self::AppendDuration | Self::FlushDuration => vec![
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0,
            ],
            Self::CheckpointDrain | Self::CommitDuration => vec![
                0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 600.0, 900.0,
            ],
        }
    }
}

/// Every family, in the order of the table.
#[must_use]
pub fn families() -> Vec<Family> {
    let mut families: Vec<Family> = Counter::all().into_iter().map(Counter::family).collect();
    families.dedup();
    families.extend(Gauge::ALL.map(Gauge::family));
    families.extend(Histogram::ALL.map(Histogram::family));
    families
}

/// The values that a family's label can have, in order.
#[must_use]
pub fn values(family: &Family) -> Vec<&'static str> {
    let of_it = Counter::all().into_iter();
    let of_it = of_it.filter(|counter| counter.family() == *family);
    of_it.filter_map(Counter::value).collect()
}

/// The table as Markdown.
#[must_use]
pub fn describe() -> String {
    let mut page = String::from(
        "# Metrics of the sink\n\n\
         The same in every host, in Prometheus' default registry. Each series has the labels `node_id`, `subtask_idx` and `operator_name`, as \
         the engine's own have, and at most one more. Counters begin at 0 with the process and go on when the job restarts within it. A gauge is \
         there while its subtask is. Nothing is updated for a single row.\n\n\
         | name | kind | label | what it says |\n| --- | --- | --- | --- |\n",
    );
    for family in families() {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let label = family.label.map_or(String::new(), |label| {
            let values: Vec<String> = values(&family).iter().map(|value| format!("`{value}`")).collect();
            format!("`{label}`: {}", values.join(", "))
        });
        writeln!(
            page,
            "| `{}` | {kind} | {label} | {} |",
            family.name(),
            family.help
        )
        .expect("a String takes all text");
    }
    page.push_str(
        "\nWith `write.mode = 'at_least_once'` rows are visible when they are acknowledged, and count as committed then; no stream is created, nothing is \
         flushed, and `uncommitted_rows` stays 0.\n\n\
         Rules for alerts and a dashboard: [examples/monitoring](../examples/monitoring/README.md).\n",
    );
    page
}

impl AppendResult {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::AlreadyExists,
        Self::OutOfRange,
        Self::RowError,
        Self::TooLarge,
        Self::Quota,
        Self::Transient,
        Self::StreamGone,
        Self::Fatal,
        Self::Lost,
    ];

    /// That of a refused request, by what it asks for.
    pub(crate) fn of(reaction: Reaction) -> Self {
        match reaction {
            Reaction::Success => Self::Ok,
            Reaction::OffsetTaken => Self::AlreadyExists,
            Reaction::OffsetBeyondEnd => Self::OutOfRange,
            Reaction::RejectRows => Self::RowError,
            Reaction::Split => Self::TooLarge,
            Reaction::BackOff => Self::Quota,
            Reaction::Gone => Self::StreamGone,
            Reaction::Resend
            | Reaction::Reconnect
            | Reaction::SchemaLag
            | Reaction::MaybeGone
            | Reaction::RefreshCredentials
            | Reaction::FailSoon => Self::Transient,
            Reaction::Restart | Reaction::FailForGood => Self::Fatal,
        }
    }

    /// Whether it is about the request itself, not about the connection or the server.
    pub(crate) fn is_of_request(self) -> bool {
        matches!(
            self,
            Self::AlreadyExists | Self::OutOfRange | Self::RowError | Self::TooLarge
        )
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::AlreadyExists => "already_exists",
            Self::OutOfRange => "out_of_range",
            Self::RowError => "row_error",
            Self::TooLarge => "too_large",
            Self::Quota => "quota",
            Self::Transient => "transient",
            Self::StreamGone => "stream_gone",
            Self::Fatal => "fatal",
            Self::Lost => "lost",
        }
    }
}

impl FlushResult {
    /// All.
    pub const ALL: [Self; 4] = [Self::Ok, Self::AlreadyFlushed, Self::Retry, Self::Failed];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::AlreadyFlushed => "already_flushed",
            Self::Retry => "retry",
            Self::Failed => "failed",
        }
    }
}

impl Discarded {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Gone,
        Self::ForeignRows,
        Self::InDoubt,
        Self::Ended,
    ];

    pub(crate) fn of(reason: &LeaveReason) -> Self {
        match reason {
            LeaveReason::Idle => Self::Idle,
            LeaveReason::Gone(_) => Self::Gone,
            LeaveReason::ForeignRows(_) => Self::ForeignRows,
            LeaveReason::InDoubt => Self::InDoubt,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Gone => "gone",
            Self::ForeignRows => "foreign_rows",
            Self::InDoubt => "in_doubt",
            Self::Ended => "ended",
        }
    }
}

impl RejectedBy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sink, Self::BigQuery];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::BigQuery => "bigquery",
        }
    }
}

/// As gRPC spells it.
pub(crate) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
