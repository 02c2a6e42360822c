//! The error table: what a refusal asks for, by code, StorageError, phase and place (write-api.md section 3).

use std::borrow::Cow;
use std::fmt;

use crate::ids::RowCount;
use crate::server_text::{shortened, without_values};

/// Bytes that errors and logs repeat of a server's text about a request.
const LONGEST: usize = 2 << 10;
/// And about a row.
const LONGEST_OF_ROW: usize = 512;
/// Rows that are told of; the others are counted.
const LISTED: usize = 10;

/// gRPC status codes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// AppendRows to a stream of our own, with an offset.
    Append,
    /// AppendRows to a table's default stream, which takes no offset.
    DefaultAppend,
    /// FlushRows.
    Flush,
}

/// Where the error came; which of the two is used for a given failure is no contract (write-api.md 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In an AppendRowsResponse; the connection lives on.
    InBand,
    /// As the status that ended the RPC; every unanswered request of it is in doubt.
    RpcEnd,
}

/// A refusal, as plain facts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// The server's text, of which errors and logs repeat a bounded part.
    pub message: String,
}

/// One row the server named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowFault {
    /// 0-based in its request.
    pub index: u64,
    /// The server's text, which may quote values; [`RowFault::text`] for errors and logs.
    pub message: String,
}

impl RowFault {
    /// The server's text for errors and logs: bounded, and without what may be a value of the row.
    #[must_use]
    pub fn text(&self) -> String {
        shortened(&without_values(&self.message), LONGEST_OF_ROW).into_owned()
    }
}

impl Fault {
    /// The server's text about the request, bounded.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        shortened(&self.message, LONGEST)
    }

    /// The rows named that are within a request of so many, by ascending index, each once.
    pub(crate) fn rows_within(&self, rows: RowCount) -> Vec<RowFault> {
        let named = self.row_errors.iter().filter(|row| row.index < rows.0);
        let mut named: Vec<RowFault> = named.cloned().collect();
        named.sort_by_key(|row| row.index);
        named.dedup_by_key(|row| row.index);
        named
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.code)?;
        if let Some(storage_code) = self.storage_code {
            write!(f, "/{storage_code:?}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.text())?;
        }
        for row in self.row_errors.iter().take(LISTED) {
            // Counted from 1: this is for people.
            let number = row.index.saturating_add(1);
            write!(f, "; row {number} of the request: {}", row.text())?;
        }
        if self.row_errors.len() > LISTED {
            write!(f, "; and {} more rows", self.row_errors.len() - LISTED)?;
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
    /// Send the same again, after a pause. It may have been applied: the resend may meet its own rows.
    Resend,
    /// Open a new connection and send what is unanswered again.
    Reconnect,
    /// As `Reconnect`, for minutes: BigQuery has not noticed a column yet, or the table lacks it.
    SchemaLag,
    /// A quota: the same again after a longer pause, for minutes.
    BackOff,
    /// Maybe not yet or no longer there: try for a while, then take it as gone.
    MaybeGone,
    /// The stream is over, for good or for us.
    Gone,
    /// Rows are bad; the good ones of the request were not taken either.
    RejectRows,
    /// The request is larger than BigQuery takes: send it in parts.
    Split,
    /// Get a new token, once.
    RefreshCredentials,
    /// Try for a short while, since BigQuery says this of things it just made, then fail for good.
    FailSoon,
    /// No retry helps here; a restart may.
    Restart,
    /// No retry and no restart helps.
    FailForGood,
}

/// A reaction and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What to do.
    pub reaction: Reaction,
    /// Why, in words for people; the source stands beside the rule.
    pub reason: &'static str,
}

/// One row of the table: the first that fits decides.
#[derive(Debug)]
pub struct Rule {
    phases: &'static [Phase],
    /// Empty: any.
    codes: &'static [Code],
    place: Option<Place>,
    storage_code: Option<StorageCode>,
    needs_row_errors: bool,
    /// Where no code says it, the text does.
    text: Option<&'static str>,
    verdict: Verdict,
}

impl Rule {
    /// Whether it is about this fault.
    #[must_use]
    pub fn fits(&self, phase: Phase, fault: &Fault) -> bool {
        self.phases.contains(&phase)
            && (self.codes.is_empty() || self.codes.contains(&fault.code))
            && self.place.is_none_or(|place| place == fault.place)
            && self
                .storage_code
                .is_none_or(|code| fault.storage_code == Some(code))
            && !(self.needs_row_errors && fault.row_errors.is_empty())
            && self.text.is_none_or(|text| fault.message.contains(text))
    }
}

/// The one place where errors are told apart.
#[must_use]
pub fn classify(phase: Phase, fault: &Fault) -> Verdict {
    let rule = RULES.iter().find(|rule| rule.fits(phase, fault));
    rule.map_or(UNLISTED, |rule| rule.verdict)
}

const UNLISTED: Verdict = Verdict {
    reaction: Reaction::FailForGood,
    reason: "the server uses this code for nothing that a retry mends",
};

use Code as C;
use Phase::{Append, Create, DefaultAppend, Flush};
use Reaction as R;
use StorageCode as S;

const ALL: &[Phase] = &[Create, Append, DefaultAppend, Flush];
const APPENDS: &[Phase] = &[Append, DefaultAppend];
/// Faults that pass: of the server, the network, or a deadline.
const PASSING: &[Code] = &[
    C::Aborted,
    C::Unavailable,
    C::Internal,
    C::Unknown,
    C::Cancelled,
    C::DeadlineExceeded,
];

const fn rule(
    phases: &'static [Phase],
    codes: &'static [Code],
    reaction: Reaction,
    reason: &'static str,
) -> Rule {
    let verdict = Verdict { reaction, reason };
    Rule {
        phases,
        codes,
        place: None,
        storage_code: None,
        needs_row_errors: false,
        text: None,
        verdict,
    }
}

/// BigQuery's own code decides whatever gRPC code it comes with.
const fn storage(
    phases: &'static [Phase],
    code: StorageCode,
    reaction: Reaction,
    reason: &'static str,
) -> Rule {
    let mut rule = rule(phases, &[], reaction, reason);
    rule.storage_code = Some(code);
    rule
}

const fn at(place: Place, mut rule: Rule) -> Rule {
    rule.place = Some(place);
    rule
}

const fn with_row_errors(mut rule: Rule) -> Rule {
    rule.needs_row_errors = true;
    rule
}

const fn saying(text: &'static str, mut rule: Rule) -> Rule {
    rule.text = Some(text);
    rule
}

/// The table (write-api.md 3.2 and 3.4).
pub static RULES: &[Rule] = &[
    storage(
        &[Append],
        S::OffsetAlreadyExists,
        R::OffsetTaken,
        "the offset is below the stream's end",
    ),
    storage(
        &[Append, Flush],
        S::OffsetOutOfRange,
        R::OffsetBeyondEnd,
        "the offset is beyond the stream's end",
    ),
    storage(
        ALL,
        S::StreamFinalized,
        R::Gone,
        // write-api.md 2.2.
        "a finalized stream takes neither rows nor flushes",
    ),
    storage(
        &[Create, Append, DefaultAppend],
        S::SchemaMismatchExtraFields,
        R::SchemaLag,
        // write-api.md 7.3.
        "the table lacks a column, or BigQuery has not noticed it yet, which takes minutes",
    ),
    storage(
        ALL,
        S::KmsServiceError,
        R::Resend,
        // write-api.md 3.2.
        "the key service failed, which passes",
    ),
    rule(
        &[DefaultAppend],
        &[C::AlreadyExists, C::OutOfRange],
        R::Restart,
        "a request without an offset can meet no other rows, and BigQuery has said that it does",
    ),
    rule(
        &[Append],
        &[C::AlreadyExists],
        R::OffsetTaken,
        "the offset is below the stream's end",
    ),
    rule(
        &[Append, Flush],
        &[C::OutOfRange],
        R::OffsetBeyondEnd,
        "the offset is beyond the stream's end",
    ),
    rule(
        &[Flush],
        &[C::AlreadyExists],
        R::Success,
        // Beam's committer relies on it (write-api.md 2.2).
        "already flushed",
    ),
    rule(
        &[Flush],
        &[C::InvalidArgument],
        R::Gone,
        // write-api.md 2.2.
        "a finalized stream refuses every flush",
    ),
    rule(
        &[Create, DefaultAppend],
        &[C::NotFound],
        R::FailSoon,
        // write-api.md 3.4.
        "the table is not there, or was made just now",
    ),
    rule(
        &[Append, Flush],
        &[C::NotFound],
        R::MaybeGone,
        // write-api.md 3.4.
        "the stream is gone, or the routing is stale",
    ),
    rule(
        &[Append],
        &[C::FailedPrecondition],
        R::Gone,
        // write-api.md 2.6.
        "another connection took the stream, or the service ended it",
    ),
    rule(
        &[Create, DefaultAppend, Flush],
        &[C::FailedPrecondition],
        R::Resend,
        "no cause is known; the call can be repeated",
    ),
    with_row_errors(rule(
        APPENDS,
        &[C::InvalidArgument],
        R::RejectRows,
        // write-api.md 3.5.
        "rows of the request are bad",
    )),
    saying(
        "request too large",
        rule(
            APPENDS,
            &[C::InvalidArgument],
            R::Split,
            // write-api.md 4.
            "the request is larger than BigQuery takes here, which is less than it documents",
        ),
    ),
    rule(
        &[Create, Append, DefaultAppend],
        &[C::InvalidArgument],
        R::FailForGood,
        "the request is wrong",
    ),
    // A throughput bucket can take ten minutes to refill (write-api.md 3.4).
    rule(ALL, &[C::ResourceExhausted], R::BackOff, "a quota is used up"),
    // Idle close, restart, drain, a broken wire (write-api.md 3.6).
    at(
        Place::RpcEnd,
        rule(
            APPENDS,
            &[C::Ok],
            R::Reconnect,
            "the server closed the connection",
        ),
    ),
    at(
        Place::RpcEnd,
        rule(
            APPENDS,
            PASSING,
            R::Reconnect,
            "the connection ended: idle, a server restart, or the network",
        ),
    ),
    rule(
        ALL,
        PASSING,
        R::Resend,
        "a passing fault of the server or the network",
    ),
    rule(
        ALL,
        &[C::Unauthenticated],
        R::RefreshCredentials,
        "the token is not taken",
    ),
    rule(
        ALL,
        &[C::PermissionDenied],
        R::FailSoon,
        "a permission is missing (bigquery.tables.updateData), or the table is not there or was made just now",
    ),
    rule(ALL, &[C::DataLoss], R::Restart, "the server lost data"),
];
