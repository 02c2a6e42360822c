//! Faults as data: which call, which occurrence of it, and what happens then (testing.md 7.2).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::Millis;

pub use action::{Delivered, FaultAction};
pub(crate) use fire::{Fate, Faults, Fired, StaleEnd, Subject, Upset};

mod action;
mod fire;

/// A plan of faults; the default is none.
///
/// ```
/// # use bigquery_write_emulator::faults::FaultPlan;
/// let plan = FaultPlan::parse(
///     r#"{"rules": [
///         {"rpc": "FlushRows", "occurrence": {"nth": 2}, "action": {"kind": "lose_answer"}},
///         {"rpc": "AppendRows", "table": "flights", "occurrence": {"from": 10, "every": 10, "times": 3},
///          "action": {"kind": "refuse", "code": "ABORTED", "message": "server is restarted"}},
///         {"rpc": "FlushRows", "action": {"kind": "delay", "ms": 300}}
///     ]}"#,
/// )?;
/// assert_eq!(plan.rules.len(), 3);
/// # Ok::<(), bigquery_write_emulator::faults::FaultPlanError>(())
/// ```
///
/// # What comes before what
///
/// A call that names nothing readable, or lacks a token that the emulator asks for, meets no fault. On any other the
/// rules act before the emulator checks anything else: a call on a table that does not exist meets them too. Every
/// rule that lets the call through counts it, whatever other rules do; those that fire on it go together like this:
///
/// 1. The rules stand in their order in the plan. On the first request of an AppendRows call, those for
///    `AppendRowsOpen` stand before those for `AppendRows`.
/// 2. First the world changes: `recreate_table`, `expire_stream`, `stale_end`. All of them act, even if the call is
///    then refused.
/// 3. Then one rule decides about the call, the first one of a kind that decides: `refuse`, `row_errors`, `end`,
///    `reset`, `lose_answer`, `apply_late`, `apply_twice`. So an AppendRows call that is refused at its opening takes
///    no stream from an older one, whatever rules for `AppendRows` say. Without such a rule the call goes its way.
/// 4. An answer that says that rows were appended takes `updated_schema` along.
/// 5. Last, the way back: every `delay` adds to the others, as does the time that `slow` takes; then a `stall` holds.
///    `go_away` is sent at once, once. A call that has no answer (`reset`, `end` without a status, `apply_late`
///    without a code) has no way back, but may get `go_away`.
/// 6. Google's fault tables act after the plan: a table whose name ends in `_initial_connect_failure` fails only an
///    opening about which no rule decided.
///
/// A second delivery (`apply_twice`) and a late one (`apply_late`) are no calls of their own: no rule counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Each counts its own calls.
    #[serde(default)]
    pub rules: Vec<FaultRule>,
}

/// One rule. Each of its filters lets only some calls through; those are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// Which call.
    pub rpc: Rpc,
    /// Only this table: its full name or its last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Only this write stream: its full name or its last part (`_default`). Never matches CreateWriteStream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Only the AppendRows call that comes as so many-th, from 1, among those on such a table and stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// Only once the stream has at least so many rows; of a default stream, its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_rows: Option<u64>,
    /// Only an append that brings the row which has this offset in its stream; without an offset of its own, the
    /// append begins at the stream's end. Never matches a default stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Which of the calls that are let through; by default all.
    #[serde(default)]
    pub occurrence: Occurrence,
    /// What happens.
    pub action: FaultAction,
}

/// A call that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rpc {
    /// CreateWriteStream.
    CreateWriteStream,
    /// GetWriteStream.
    GetWriteStream,
    /// The first request of an AppendRows call, besides being an `AppendRows` too. One that is refused inside the
    /// stream leaves the next to be the first.
    AppendRowsOpen,
    /// Each request of an AppendRows call.
    AppendRows,
    /// FinalizeWriteStream.
    FinalizeWriteStream,
    /// FlushRows.
    FlushRows,
    /// BatchCommitWriteStreams.
    BatchCommitWriteStreams,
}

/// Which of a rule's calls, counted from 1. Either `nth` alone, or any of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrence {
    /// This one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// From this one on; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Of those every so many-th, the first included; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// At most so many times; default without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// A plan that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FaultPlanError {
    /// Not JSON.
    #[error("cannot read the fault plan: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not an object with a list of rules.
    #[error("cannot read the fault plan: {0}")]
    Form(String),
    /// A rule cannot be read, or contradicts itself.
    #[error("fault rule {rule}: {reason}")]
    Rule {
        /// Its place, from 0.
        rule: usize,
        /// The field and what is wrong with it.
        reason: String,
    },
}

/// How often a rule matched and fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// The rule.
    pub rule: FaultRule,
    /// Calls that it let through.
    pub seen: u64,
    /// Calls on which it fired.
    pub fired: u64,
    /// When it fired last, by the emulator's clock.
    #[serde(skip)]
    pub last_fired_ms: Option<Millis>,
}

impl FaultPlan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`FaultPlanError`], for an unknown kind or field as well.
    pub fn parse(json: &str) -> Result<Self, FaultPlanError> {
        let plan: Value = serde_json::from_str(json)?;
        Self::from_value(plan)
    }

    /// As [`FaultPlan::parse`], from JSON that has been read.
    ///
    /// # Errors
    /// As [`FaultPlan::parse`], except for what is not JSON.
    pub fn from_value(plan: Value) -> Result<Self, FaultPlanError> {
        // serde takes a list for an object's fields in their order.
        if !plan.is_object() {
            let text = "it must be an object with a list of `rules`";
            return Err(FaultPlanError::Form(text.to_owned()));
        }
        let plan: Self = serde_path_to_error::deserialize(plan).map_err(|error| misread(&error))?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks what the form alone does not.
    ///
    /// # Errors
    /// [`FaultPlanError::Rule`].
    pub fn check(&self) -> Result<(), FaultPlanError> {
        for (rule, of) in self.rules.iter().enumerate() {
            of.check()
                .map_err(|reason| FaultPlanError::Rule { rule, reason })?;
        }
        Ok(())
    }
}

/// Says in which rule and field the reading stopped.
fn misread(error: &serde_path_to_error::Error<serde_json::Error>) -> FaultPlanError {
    use serde_path_to_error::Segment;
    let reason = error.inner();
    let mut rule = None;
    let mut fields = Vec::new();
    for segment in error.path() {
        match segment {
            Segment::Seq { index } if rule.is_none() => rule = Some(*index),
            Segment::Map { key } if rule.is_some() => fields.push(key.as_str()),
            _ => {}
        }
    }
    match rule {
        None => FaultPlanError::Form(reason.to_string()),
        Some(rule) if fields.is_empty() => FaultPlanError::Rule {
            rule,
            reason: reason.to_string(),
        },
        Some(rule) => FaultPlanError::Rule {
            rule,
            reason: format!("{}: {reason}", fields.join(".")),
        },
    }
}

impl FaultRule {
    fn check(&self) -> Result<(), String> {
        self.occurrence.check()?;
        if self.connection == Some(0) {
            return Err("connection: calls are counted from 1".to_owned());
        }
        if !self.rpc.is_append() {
            let filters = [
                ("connection", self.connection.is_some()),
                ("offset", self.offset.is_some()),
            ];
            if let Some((name, _)) = filters.iter().find(|(_, set)| *set) {
                return Err(format!("{name}: only AppendRows and AppendRowsOpen have one"));
            }
        }
        if self.after_rows.is_some() && !self.rpc.names_stream() {
            return Err(format!("after_rows: {:?} names no stream", self.rpc));
        }
        self.action
            .check(self.rpc)
            .map_err(|reason| format!("action: {reason}"))
    }
}

impl Rpc {
    fn is_append(self) -> bool {
        matches!(self, Self::AppendRows | Self::AppendRowsOpen)
    }

    /// It is about one stream.
    fn names_stream(self) -> bool {
        !matches!(self, Self::CreateWriteStream | Self::BatchCommitWriteStreams)
    }
}

impl Occurrence {
    fn check(self) -> Result<(), String> {
        let Self {
            nth,
            from,
            every,
            times,
        } = self;
        if nth.is_some() && (from.is_some() || every.is_some() || times.is_some()) {
            return Err("occurrence: `nth` stands alone, without `from`, `every` or `times`".to_owned());
        }
        if [nth, from, every].contains(&Some(0)) {
            return Err(
                "occurrence: calls are counted from 1: `nth`, `from` and `every` cannot be 0".to_owned(),
            );
        }
        Ok(())
    }

    fn hits(self, seen: u64, fired: u64) -> bool {
        if let Some(nth) = self.nth {
            return seen == nth;
        }
        let (from, every) = (self.from.unwrap_or(1), self.every.unwrap_or(1).max(1));
        seen >= from && (seen - from).is_multiple_of(every) && self.times.is_none_or(|times| fired < times)
    }
}

#[cfg(test)]
mod tests;
