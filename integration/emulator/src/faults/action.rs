//! What can happen to a call.

use bigquery_write_proto::wire::storage_error::StorageErrorCode;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Rpc;
use crate::machine::Code;

/// Longest time that a fault may take, in milliseconds: a year is as good as never.
const LONGEST_MS: u64 = 365 * 86_400_000;

/// What happens to a call; in JSON an object whose `kind` is the name in lower case with underscores. `docs/faults.md`
/// has an example of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum FaultAction {
    /// Nothing is done; the call ends with this status.
    Refuse {
        /// gRPC code.
        code: Code,
        /// Text.
        #[serde(default)]
        message: String,
        /// A `StorageError` in the details: its code by name, such as `STREAM_NOT_FOUND`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        storage_error: Option<String>,
        /// On AppendRows: answered inside the stream, which lives on. Default: the call ends.
        #[serde(default)]
        in_band: bool,
    },
    /// On AppendRows: rows are found wrong. Nothing is appended; answered inside the stream as BigQuery does
    /// (write-api.md 3.5).
    RowErrors {
        /// Their places in the request, from 0.
        rows: Vec<u32>,
        /// What is wrong with each.
        message: String,
    },
    /// On AppendRows: nothing is done, and the call ends with a status, or well, or without any status (the stream is
    /// reset). On another call it can only be reset.
    End {
        /// gRPC code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
        /// Text, beside a code.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        /// It ends well: the server has just closed it.
        #[serde(default)]
        ok: bool,
    },
    /// The HTTP/2 connection that carries the call is cut, with every call on it.
    Reset {
        /// Everything was done before. Default: nothing was.
        #[serde(default)]
        applied: bool,
    },
    /// Everything is done, but the answer is lost: the call ends with this status instead.
    LoseAnswer {
        /// gRPC code.
        #[serde(default = "unavailable")]
        code: Code,
    },
    /// The client loses the call, and it is done later, whatever has become of client, connection and stream by then.
    /// A late append neither takes the stream from a newer connection nor minds it: only its offset decides.
    ApplyLate {
        /// So much later, by the emulator's clock.
        ms: u64,
        /// The call ends at once with this status. Default: it is never answered, and what an AppendRows call sends
        /// behind it is lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
    },
    /// The call is delivered twice.
    ApplyTwice {
        /// Which delivery's answer the client sees.
        #[serde(default)]
        answer: Delivered,
    },
    /// The HTTP/2 connection that carries the call gets GOAWAY: the calls on it go on, new ones need another.
    GoAway {},
    /// Everything is done at once, and the answer held back, with what comes behind it on the call.
    Delay {
        /// For so long.
        ms: u64,
    },
    /// As `delay`, until [`Handle::release`](crate::Handle::release) lets everything go that is held so.
    Stall {
        /// At most for so long; default without end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
    /// On AppendRows: everything is done at once, and answered as if the requests of the call came over a slow line.
    Slow {
        /// How slow.
        bytes_per_second: u64,
    },
    /// The stream's life is over before the call.
    ExpireStream {},
    /// The table is deleted before the call, and one of the same name and schema created. Its streams are of the
    /// old one.
    RecreateTable {},
    /// On AppendRowsOpen: for some time the connection takes the stream's end for an earlier one, and appends at the
    /// end for out of range (write-api.md 2.7). It never takes a row twice.
    StaleEnd {
        /// For so long.
        ms: u64,
        /// So many rows behind the end; default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rows: Option<u64>,
    },
    /// On AppendRows: if rows were appended, the answer says what the table's schema is now.
    UpdatedSchema {},
}

/// One of two deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivered {
    /// The first.
    #[default]
    First,
    /// The second.
    Second,
}

impl FaultAction {
    /// Whether it makes sense for this call.
    pub(super) fn check(&self, rpc: Rpc) -> Result<(), String> {
        if let Some(ms) = self.ms().filter(|ms| *ms > LONGEST_MS) {
            return Err(format!("ms: {ms} is more than a year ({LONGEST_MS})"));
        }
        match self {
            Self::Refuse {
                storage_error: Some(name),
                ..
            } if StorageErrorCode::from_str_name(name).is_none() => {
                Err(format!("storage_error: {name:?} is no StorageErrorCode"))
            }
            Self::Refuse { in_band: true, .. } if !rpc.is_append() => {
                Err("in_band: only AppendRows answers inside a stream".to_owned())
            }
            Self::RowErrors { rows, .. } if rows.is_empty() => Err("rows: name at least one row".to_owned()),
            Self::RowErrors { .. }
            | Self::Slow { .. }
            | Self::UpdatedSchema {}
            | Self::End { ok: true, .. }
            | Self::End { code: Some(_), .. }
                if !rpc.is_append() =>
            {
                Err("only AppendRows and AppendRowsOpen can have it".to_owned())
            }
            Self::End {
                code: Some(_),
                ok: true,
                ..
            } => Err("`code` and `ok` exclude each other".to_owned()),
            Self::End {
                code: None, message, ..
            } if !message.is_empty() => Err("message: it needs a `code`".to_owned()),
            Self::Slow { bytes_per_second: 0 } => {
                Err("bytes_per_second: it cannot be 0; `stall` holds everything".to_owned())
            }
            Self::ExpireStream {} if !rpc.names_stream() => Err(format!("{rpc:?} names no stream")),
            Self::StaleEnd { .. } if rpc != Rpc::AppendRowsOpen => {
                Err("only AppendRowsOpen can have it".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn ms(&self) -> Option<u64> {
        match self {
            Self::ApplyLate { ms, .. } | Self::Delay { ms } | Self::StaleEnd { ms, .. } => Some(*ms),
            Self::Stall { ms } => *ms,
            _ => None,
        }
    }
}

/// Written flat: `{"kind": "delay", "ms": 5}`. serde's own way of doing so forgets in which field it stopped reading.
impl Serialize for FaultAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tagged = Self::serialize(self, serde_json::value::Serializer).map_err(S::Error::custom)?;
        let mut flat = Map::new();
        if let Value::Object(tagged) = tagged {
            for (kind, fields) in tagged {
                flat.insert("kind".to_owned(), kind.into());
                if let Value::Object(fields) = fields {
                    flat.extend(fields);
                }
            }
        }
        flat.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FaultAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let kind = match fields.remove("kind") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(D::Error::custom("kind: it must be a text")),
            None => return Err(D::Error::missing_field("kind")),
        };
        let tagged = Value::Object(Map::from_iter([(kind.clone(), Value::Object(fields))]));
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(tagged, &mut track);
        Self::deserialize(tracked).map_err(|error| {
            let path = track.path().to_string();
            let field = path.strip_prefix(&kind).and_then(|field| field.strip_prefix('.'));
            match field {
                Some(field) => D::Error::custom(format!("{field}: {error}")),
                None => D::Error::custom(error),
            }
        })
    }
}

fn unavailable() -> Code {
    Code::Unavailable
}
