//! The error table: what a refusal asks for, by code, StorageError, phase and place (write-api.md section 3).

use std::fmt;

/// gRPC status codes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are gRPC's own")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of a number; numbers gRPC does not know are `Unknown`, as its specification says.
    #[must_use]
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|index| Self::ALL.get(index).copied())
            .unwrap_or(Self::Unknown)
    }
}

/// The StorageErrorCodes that change a reaction (write-api.md 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageCode {
    /// TABLE_NOT_FOUND.
    TableNotFound = 1,
    /// STREAM_NOT_FOUND.
    StreamNotFound = 3,
    /// STREAM_FINALIZED.
    StreamFinalized = 6,
    /// SCHEMA_MISMATCH_EXTRA_FIELDS.
    SchemaMismatchExtraFields = 7,
    /// OFFSET_ALREADY_EXISTS.
    OffsetAlreadyExists = 8,
    /// OFFSET_OUT_OF_RANGE.
    OffsetOutOfRange = 9,
    /// KMS_SERVICE_ERROR, retryable.
    KmsServiceError = 13,
}

impl StorageCode {
    /// Every code that changes a reaction.
    pub const ALL: [Self; 7] = [
        Self::TableNotFound,
        Self::StreamNotFound,
        Self::StreamFinalized,
        Self::SchemaMismatchExtraFields,
        Self::OffsetAlreadyExists,
        Self::OffsetOutOfRange,
        Self::KmsServiceError,
    ];

    /// The code of a number; `None` for those that change nothing.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as i32 == number)
    }
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// CreateWriteStream.
    Create,
    /// AppendRows.
    Append,
    /// FlushRows.
    Flush,
}

/// Where the error came; which of the two is used for a given failure is no contract (write-api.md 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In an AppendRowsResponse; the connection lives on.
    InBand,
    /// As the status that ended the RPC; every unanswered request of it is in doubt.
    RpcEnd,
}

/// A refusal, as plain facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// gRPC code.
    pub code: Code,
    /// StorageErrorCode, where given and known.
    pub storage_code: Option<StorageCode>,
    /// In-band or at the end of the RPC.
    pub place: Place,
    /// The server's end of the stream, where the text gives it ("expected offset N").
    pub expected_offset: Option<u64>,
    /// Rows named as bad.
    pub row_errors: Vec<RowFault>,
    /// The server's text, for people; never row values.
    pub message: String,
}

/// One row the server named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// 0-based in its request.
    pub index: u64,
    /// The server's text.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.code)?;
        if let Some(storage_code) = self.storage_code {
            write!(f, "/{storage_code:?}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        for row in self.row_errors.iter().take(10) {
            write!(f, "; row {}: {}", row.index, row.message)?;
        }
        if self.row_errors.len() > 10 {
            write!(f, "; and {} more rows", self.row_errors.len() - 10)?;
        }
        Ok(())
    }
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// It is done already (a flush below the cursor).
    Success,
    /// The offset is taken: success only for our own resend (invariant 5).
    OffsetTaken,
    /// The offset is beyond the end: echo, stale end or loss (invariant 6).
    OffsetBeyondEnd,
    /// Send the same again on this connection, after a pause.
    Resend,
    /// Open a new connection and send what is unanswered again.
    Reconnect,
    /// A quota: the same again after a longer pause, for minutes.
    BackOff,
    /// Maybe not yet or no longer there: try for a while, then take it as gone.
    MaybeGone,
    /// The stream is over for good.
    Gone,
    /// Leave the stream: it can still be flushed, but is not ours to append to.
    LeaveStream,
    /// Rows are bad; the good ones of the request were not taken either.
    RejectRows,
    /// Get a new token, once.
    RefreshCredentials,
    /// Try for a short while, since BigQuery says this of things it just made, then fail for good.
    FailSoon,
    /// No retry and no restart helps.
    FailForGood,
}

/// A reaction, whether the request may have been applied all the same, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What to do.
    pub reaction: Reaction,
    /// The request may have been applied: its resend may meet its own rows.
    pub in_doubt: bool,
    /// Why, with the source.
    pub reason: &'static str,
}

/// One row of the table: the first that fits decides.
#[derive(Debug)]
pub struct Rule {
    phases: &'static [Phase],
    place: Option<Place>,
    code: Code,
    storage_code: Option<StorageCode>,
    row_errors: Option<bool>,
    verdict: Verdict,
}

impl Rule {
    /// What it decides.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn fits(&self, phase: Phase, fault: &Fault) -> bool {
        self.phases.contains(&phase)
            && self.place.is_none_or(|place| place == fault.place)
            && self.code == fault.code
            && self
                .storage_code
                .is_none_or(|code| fault.storage_code == Some(code))
            && self
                .row_errors
                .is_none_or(|rows| rows != fault.row_errors.is_empty())
    }
}

/// The one place where errors are told apart.
#[must_use]
pub fn classify(phase: Phase, fault: &Fault) -> Verdict {
    let rule = RULES.iter().find(|rule| rule.fits(phase, fault));
    rule.map_or(UNLISTED, |rule| rule.verdict)
}

const UNLISTED: Verdict = verdict(
    Reaction::FailForGood,
    false,
    "the server uses this code for nothing that a retry mends",
);

const ALL: &[Phase] = &[Phase::Create, Phase::Append, Phase::Flush];
const CREATE: &[Phase] = &[Phase::Create];
const APPEND: &[Phase] = &[Phase::Append];
const FLUSH: &[Phase] = &[Phase::Flush];
const CREATE_AND_FLUSH: &[Phase] = &[Phase::Create, Phase::Flush];

const fn verdict(reaction: Reaction, in_doubt: bool, reason: &'static str) -> Verdict {
    Verdict {
        reaction,
        in_doubt,
        reason,
    }
}

const fn rule(
    phases: &'static [Phase],
    code: Code,
    reaction: Reaction,
    in_doubt: bool,
    reason: &'static str,
) -> Rule {
    Rule {
        phases,
        place: None,
        code,
        storage_code: None,
        row_errors: None,
        verdict: verdict(reaction, in_doubt, reason),
    }
}

const fn at(place: Place, mut rule: Rule) -> Rule {
    rule.place = Some(place);
    rule
}

const fn with_storage(code: StorageCode, mut rule: Rule) -> Rule {
    rule.storage_code = Some(code);
    rule
}

const fn with_rows(mut rule: Rule) -> Rule {
    rule.row_errors = Some(true);
    rule
}

use Place::{InBand, RpcEnd};
use Reaction as R;
use StorageCode as S;

/// The table. In doubt is what may have been applied: every loss, and every answer that does not say that it was refused.
pub static RULES: &[Rule] = &[
    // Offsets (write-api.md 2.1, 2.2, 3.4).
    rule(
        APPEND,
        Code::AlreadyExists,
        R::OffsetTaken,
        false,
        "the offset is below the stream's end",
    ),
    rule(
        APPEND,
        Code::OutOfRange,
        R::OffsetBeyondEnd,
        false,
        "the offset is beyond the stream's end",
    ),
    rule(
        FLUSH,
        Code::AlreadyExists,
        R::Success,
        false,
        "already flushed (Beam's committer relies on it, write-api.md 2.2)",
    ),
    rule(
        FLUSH,
        Code::OutOfRange,
        R::OffsetBeyondEnd,
        false,
        "the flush target is beyond the stream's end",
    ),
    // Streams that are over, or not ours any more.
    with_storage(
        S::StreamFinalized,
        rule(
            ALL,
            Code::InvalidArgument,
            R::Gone,
            false,
            "a finalized stream takes neither rows nor flushes (write-api.md 2.2)",
        ),
    ),
    rule(
        FLUSH,
        Code::InvalidArgument,
        R::Gone,
        false,
        "a finalized stream refuses every flush (write-api.md 2.2)",
    ),
    with_storage(
        S::TableNotFound,
        rule(
            CREATE,
            Code::NotFound,
            R::FailSoon,
            false,
            "the table is not there, or was made just now (write-api.md 3.4)",
        ),
    ),
    rule(
        CREATE,
        Code::NotFound,
        R::FailSoon,
        false,
        "the table is not there, or was made just now (write-api.md 3.4)",
    ),
    rule(
        APPEND,
        Code::NotFound,
        R::MaybeGone,
        false,
        "the stream is gone, or the routing is stale (write-api.md 3.4)",
    ),
    rule(
        FLUSH,
        Code::NotFound,
        R::MaybeGone,
        false,
        "the stream is gone, or the routing is stale (write-api.md 3.4)",
    ),
    rule(
        APPEND,
        Code::FailedPrecondition,
        R::LeaveStream,
        true,
        "another connection took the stream (write-api.md 2.6)",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::FailedPrecondition,
        R::Resend,
        true,
        "no cause is known; the call can be repeated",
    ),
    // Rows and requests that are wrong.
    with_rows(rule(
        APPEND,
        Code::InvalidArgument,
        R::RejectRows,
        false,
        "rows of the request are bad (write-api.md 3.5)",
    )),
    with_storage(
        S::SchemaMismatchExtraFields,
        rule(
            APPEND,
            Code::InvalidArgument,
            R::Reconnect,
            false,
            "the table lacks a column, or BigQuery has not noticed it yet, which takes minutes (write-api.md 7.3)",
        ),
    ),
    with_storage(
        S::KmsServiceError,
        rule(
            ALL,
            Code::InvalidArgument,
            R::Resend,
            true,
            "the key service failed, which passes (write-api.md 3.2)",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::InvalidArgument,
            R::FailForGood,
            false,
            "the request is wrong",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::InvalidArgument,
            R::FailForGood,
            false,
            "the request is wrong",
        ),
    ),
    rule(
        CREATE,
        Code::InvalidArgument,
        R::FailForGood,
        false,
        "the request is wrong",
    ),
    // Quotas: a throughput bucket can take ten minutes to refill (write-api.md 3.4).
    rule(
        ALL,
        Code::ResourceExhausted,
        R::BackOff,
        false,
        "a quota is used up",
    ),
    // Passing faults of an append that was answered.
    at(
        InBand,
        rule(
            APPEND,
            Code::Aborted,
            R::Resend,
            true,
            "a passing fault, or an echo of an earlier one",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::Unavailable,
            R::Resend,
            true,
            "the server is overloaded or draining",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::Internal,
            R::Resend,
            true,
            "a passing fault of the server",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::Unknown,
            R::Resend,
            true,
            "a passing fault of the server",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::Cancelled,
            R::Resend,
            true,
            "a passing fault of the server",
        ),
    ),
    at(
        InBand,
        rule(
            APPEND,
            Code::DeadlineExceeded,
            R::Resend,
            true,
            "a passing fault of the server",
        ),
    ),
    // Ends of a connection: idle, restart, drain, broken wire (write-api.md 3.6).
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Ok,
            R::Reconnect,
            true,
            "the server closed the connection",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Aborted,
            R::Reconnect,
            true,
            "idle close or server restart",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Unavailable,
            R::Reconnect,
            true,
            "draining, or the network",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Internal,
            R::Reconnect,
            true,
            "a passing fault of the server or the wire",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Unknown,
            R::Reconnect,
            true,
            "a passing fault of the server or the wire",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::Cancelled,
            R::Reconnect,
            true,
            "a passing fault of the server or the wire",
        ),
    ),
    at(
        RpcEnd,
        rule(
            APPEND,
            Code::DeadlineExceeded,
            R::Reconnect,
            true,
            "no answer in time",
        ),
    ),
    // The same for the calls that are simply made again.
    rule(
        CREATE_AND_FLUSH,
        Code::Aborted,
        R::Resend,
        true,
        "a passing fault",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::Unavailable,
        R::Resend,
        true,
        "draining, or the network",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::Internal,
        R::Resend,
        true,
        "a passing fault of the server or the wire",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::Unknown,
        R::Resend,
        true,
        "a passing fault of the server or the wire",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::Cancelled,
        R::Resend,
        true,
        "a passing fault of the server or the wire",
    ),
    rule(
        CREATE_AND_FLUSH,
        Code::DeadlineExceeded,
        R::Resend,
        true,
        "no answer in time",
    ),
    // Permissions.
    rule(
        ALL,
        Code::Unauthenticated,
        R::RefreshCredentials,
        false,
        "the token is not taken",
    ),
    rule(
        ALL,
        Code::PermissionDenied,
        R::FailSoon,
        false,
        "a permission is missing (bigquery.tables.updateData), or the table is not there or was made just now",
    ),
];
