//! Answers that no source confirms, each a switch with its default; and limits that Google has changed before.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;
use super::refusal::Code;
use crate::catalog::Millis;

/// Every answer that write-api.md section 10 leaves open, and every limit. In JSON all fields may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Largest `AppendRowsRequest`, in bytes. Default 20 MiB; Google's test projects have 10,485,760
    /// (write-api.md 4).
    pub max_request_bytes: u64,
    /// Streams that a project may create in a location in an hour. Default 10,000, as in BigQuery; `null` for no limit
    /// (write-api.md 4).
    pub create_streams_per_hour: Option<u64>,
    /// `AppendRows` calls that a project may have open in a location. Default BigQuery's: 20,000 in US and EU, 5,000 elsewhere
    /// (write-api.md 4).
    pub connections_per_project: Option<usize>,
    /// Bytes that a project may append in a location in a second; ten seconds' worth may come at once. Default none,
    /// so that the emulator holds up no client; BigQuery's are 3 GB in US and EU, 300 MB elsewhere (write-api.md 4).
    pub append_bytes_per_second: Option<u64>,
    /// The same over a longer time: ten minutes' worth may come at once, and when that is used up nothing is taken until
    /// all of it is there again. Default none (write-api.md 3.4 [beam PR #31837], which has no figure).
    pub long_term_append_bytes_per_second: Option<u64>,
    /// How long those who append do not know of a table's new columns. Default 10 s; BigQuery takes up to minutes
    /// (write-api.md 7.3).
    pub schema_lag_ms: Millis,
    /// UNCONFIRMED: is `updated_schema` sent with every success until the connection is left, or once? Default once.
    pub updated_schema_repeats: bool,
    /// UNCONFIRMED: does CreateWriteStream answer the columns that those who append know, `schema_lag_ms` late, as it may? Default no:
    /// the table's (write-api.md 1.2).
    pub create_answer_lags: bool,
    /// An `AppendRows` call without traffic ends after this long. Default 600 s (write-api.md 3.6).
    pub idle_close_ms: Millis,
    /// Life of a BUFFERED stream without traffic. Default 7 days (write-api.md 2).
    pub buffered_ttl_ms: Millis,
    /// Life of a COMMITTED stream without traffic. Default 3 days; it was four once.
    pub committed_ttl_ms: Millis,
    /// Life of a PENDING stream. Default 24 hours.
    pub pending_ttl_ms: Millis,
    /// UNCONFIRMED: does a PENDING stream's life begin with its creation, or anew with its traffic? Default with its
    /// traffic (write-api.md 2).
    pub pending_ttl_from_creation: bool,
    /// How long a PENDING stream that is finalized waits for its commit. Default 4 hours (write-api.md 2).
    pub pending_finalized_ttl_ms: Millis,
    /// UNCONFIRMED: does a flush renew a stream's life, or appends alone? Default: appends alone.
    pub flush_renews_life: bool,
    /// UNCONFIRMED: does opening a connection renew it too, though its first request be refused? Default no
    /// (write-api.md 2).
    pub open_renews_life: bool,
    /// INFERRED: the code of any call on a stream whose life is over, other than a commit. Default NOT_FOUND
    /// (write-api.md 2.7).
    pub expired_stream: Code,
    /// UNCONFIRMED: streams that a table may have which are not finalized. Default none; the documents speak of a limit
    /// without a figure (write-api.md 2).
    pub live_streams_per_table: Option<usize>,
    /// How the older of two connections on an application's stream ends. Default FAILED_PRECONDITION
    /// [java-bigquerystorage PR #2214] (write-api.md 2.6).
    pub fenced_code: Code,
    /// UNCONFIRMED: and with which text; the stream's name follows it (write-api.md 2.6).
    pub fenced_text: String,
    /// INFERRED: the code of an append that begins before the end and reaches beyond it. Default ALREADY_EXISTS: only
    /// its first row counts (write-api.md 2.1).
    pub straddling_resend: Code,
    /// UNCONFIRMED: the code of a flush of a stream that is not BUFFERED. Default INVALID_ARGUMENT (write-api.md 2.2).
    pub flush_other_kinds: Code,
    /// A flush of the offset flushed last. Default `ok` [PROD flink #235]; Beam also expects `already_exists`.
    pub flush_again: FlushBelow,
    /// UNCONFIRMED: a flush of a smaller offset than the one flushed last. Default `ok`, publishing nothing.
    pub flush_below: FlushBelow,
    /// UNCONFIRMED: a flush without an offset. Default `refuse`.
    pub flush_unset: FlushUnset,
    /// UNCONFIRMED: do refused flushes carry a `StorageError`? Default no, so that no client relies on it.
    pub flush_error_details: bool,
    /// UNCONFIRMED: does finalizing count unflushed rows of a BUFFERED stream? Default yes, as the proto reads.
    pub finalize_counts_unflushed: bool,
    /// UNCONFIRMED: is a second finalize an error? Default no, the same count again.
    pub finalize_twice_refused: bool,
    /// UNCONFIRMED: is an append without rows accepted, answering the stream's end? Default no.
    pub zero_rows_accepted: bool,
    /// UNCONFIRMED: are offsets checked before schema and rows? Default yes (GIT hints at it).
    pub offset_before_schema: bool,
    /// UNCONFIRMED: is an append to a finalized stream refused inside the stream, or does the call end?
    /// Default inside.
    pub finalized_in_band: bool,
    /// Is a writer schema that does not fit refused inside the stream? Default no: it ends the call
    /// [PROD beam #27892].
    pub schema_error_in_band: bool,
    /// UNCONFIRMED: does an INT64 take unsigned Arrow integers, of 64 bits too? Default no (write-api.md 5.5).
    pub arrow_unsigned_integers: bool,
    /// UNCONFIRMED: are texts and bytes in other Arrow layouts accepted (LargeUtf8, LargeBinary, Utf8View, BinaryView,
    /// FixedSizeBinary)? Default no (write-api.md 5.5).
    pub arrow_other_layouts: bool,
    /// UNCONFIRMED: are times in other Arrow units accepted (timestamps in s, ms or ns, Date64, Time32, Time64 in ns)?
    /// Default no (write-api.md 5.5).
    pub arrow_other_time_units: bool,
    /// UNCONFIRMED: is an Arrow record batch accepted whose body is compressed? Default no; with yes LZ4 is read, and
    /// ZSTD is not (write-api.md 5.5). A dictionary has no place in a request, whatever the switches.
    pub arrow_compression: bool,
    /// INFERRED: does an enum stand in a STRING by its name? Default yes; with no, by its number (write-api.md 5.1).
    pub enum_name_into_string: bool,
    /// UNCONFIRMED: are the sections that a sequence number lacks zero, so that `A` equals `A/0`? Default no: the longer
    /// is greater (write-api.md 6).
    pub short_sequence_padded: bool,
    /// Memory that one request's protobuf rows may take when they are read; a few bytes can stand for many. Default
    /// 1 GiB. Not BigQuery's limit but the emulator's.
    pub max_decoded_bytes: u64,
    /// What a table without a primary key says to an UPSERT. Default no: a text about the key; with yes, that
    /// `_change_type` is an extra field, as one report has it (debezium-server-bigquery #268).
    pub upsert_without_key_is_extra_field: bool,
    /// What a missing table answers. Default `not_found`; PERMISSION_DENIED is seen as well (write-api.md 3.4).
    pub missing_table: MissingTable,
    /// Is the routing header needed where the location is not US? Default yes (write-api.md 3.7).
    pub routing_header_required: bool,
    /// UNCONFIRMED: how many requests an AppendRows call on a table whose name ends in `_reconnect_on_close` answers
    /// before it is ended. Default 10: Google's tests of it say that every 10 requests the connection drops.
    pub reconnect_after_requests: u64,
    /// UNCONFIRMED: how often opening an AppendRows call on a stream of a table whose name ends in
    /// `_initial_connect_failure` fails before one is let in. Default 1; Google's tests of it retry up to 100 times.
    pub failed_openings: u64,
    /// Bearer tokens that are let in; without it none is asked for. Default none. Not BigQuery's behaviour but the
    /// emulator's, for tests of credentials.
    pub require_token: Option<Vec<String>>,
    /// What the emulator gets wrong on purpose. Default nothing. For tests of tests: a conformance row, or a test of a
    /// client, that does not notice is worth nothing.
    pub unlearned: BTreeSet<Behaviour>,
}

impl Switches {
    /// Whether the emulator behaves so, as it does unless told otherwise.
    pub(crate) fn keeps(&self, behaviour: Behaviour) -> bool {
        !self.unlearned.contains(&behaviour)
    }
}

/// Answer to a flush that would publish nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushBelow {
    /// OK with the asked offset.
    Ok,
    /// ALREADY_EXISTS.
    AlreadyExists,
}

/// Answer to a flush without offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushUnset {
    /// INVALID_ARGUMENT.
    Refuse,
    /// As offset 0.
    Zero,
    /// Up to the end.
    Everything,
}

/// Answer for a missing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingTable {
    /// NOT_FOUND with TABLE_NOT_FOUND.
    NotFound,
    /// PERMISSION_DENIED.
    PermissionDenied,
}

const HOUR: Millis = 3_600_000;

impl Default for Switches {
    fn default() -> Self {
        Self {
            max_request_bytes: 20 << 20,
            create_streams_per_hour: Some(10_000),
            connections_per_project: None,
            append_bytes_per_second: None,
            long_term_append_bytes_per_second: None,
            schema_lag_ms: 10_000,
            updated_schema_repeats: false,
            create_answer_lags: false,
            idle_close_ms: 600_000,
            buffered_ttl_ms: 7 * 24 * HOUR,
            committed_ttl_ms: 3 * 24 * HOUR,
            pending_ttl_ms: 24 * HOUR,
            pending_ttl_from_creation: false,
            pending_finalized_ttl_ms: 4 * HOUR,
            flush_renews_life: false,
            open_renews_life: false,
            expired_stream: Code::NotFound,
            live_streams_per_table: None,
            fenced_code: Code::FailedPrecondition,
            fenced_text: "Closing the stream because another connection was opened on it.".to_owned(),
            straddling_resend: Code::AlreadyExists,
            flush_other_kinds: Code::InvalidArgument,
            flush_again: FlushBelow::Ok,
            flush_below: FlushBelow::Ok,
            flush_unset: FlushUnset::Refuse,
            flush_error_details: false,
            finalize_counts_unflushed: true,
            finalize_twice_refused: false,
            zero_rows_accepted: false,
            offset_before_schema: true,
            finalized_in_band: true,
            schema_error_in_band: false,
            arrow_unsigned_integers: false,
            arrow_other_layouts: false,
            arrow_other_time_units: false,
            arrow_compression: false,
            enum_name_into_string: true,
            short_sequence_padded: false,
            max_decoded_bytes: 1 << 30,
            upsert_without_key_is_extra_field: false,
            missing_table: MissingTable::NotFound,
            routing_header_required: true,
            reconnect_after_requests: 10,
            failed_openings: 1,
            require_token: None,
            unlearned: BTreeSet::new(),
        }
    }
}
