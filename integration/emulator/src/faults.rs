//! Faults as data: which call, which occurrence of it, and what happens then (testing.md 7.2).

use bigquery_write_proto::wire::storage_error::StorageErrorCode;
use serde::{Deserialize, Serialize};

use crate::machine::{Code, Refusal};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Each counts its own calls. Where several fire on one call, delays add up and of the others the first wins.
    #[serde(default)]
    pub rules: Vec<FaultRule>,
}

/// One rule.
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
    /// Which of the matching calls; by default all.
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
    /// The first request of an AppendRows call, besides being an `AppendRows` too.
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

/// Which of a rule's matching calls, counted from 1. Either `nth` alone, or any of the others.
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

/// What happens to a call. More kinds will come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
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
    /// Everything is done, but the answer is lost: the call ends with this status instead.
    LoseAnswer {
        /// gRPC code.
        #[serde(default = "unavailable")]
        code: Code,
    },
    /// Everything is done at once, and the answer held back.
    Delay {
        /// For so long.
        ms: u64,
    },
}

/// A plan that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FaultPlanError {
    /// Not JSON, or not of this form; the text names the unknown kind or field and the known ones.
    #[error("cannot read the fault plan: {0}")]
    Json(#[from] serde_json::Error),
    /// A rule contradicts itself.
    #[error("fault rule {rule}: {reason}")]
    Rule {
        /// Its place, from 0.
        rule: usize,
        /// What is wrong.
        reason: String,
    },
}

/// How often a rule matched and fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// The rule.
    pub rule: FaultRule,
    /// Calls it matched.
    pub seen: u64,
    /// Calls on which it fired.
    pub fired: u64,
}

/// A plan at work.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    counted: Vec<FaultReport>,
}

/// What the rules say about one call.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    pub(crate) delay_ms: u64,
    pub(crate) refuse: Option<Refusal>,
    pub(crate) lose: Option<Refusal>,
}

impl FaultPlan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`FaultPlanError`], for an unknown kind or field as well.
    pub fn parse(json: &str) -> Result<Self, FaultPlanError> {
        let plan: Self = serde_json::from_str(json)?;
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

impl FaultRule {
    fn check(&self) -> Result<(), String> {
        let Occurrence {
            nth,
            from,
            every,
            times,
        } = self.occurrence;
        if nth.is_some() && (from.is_some() || every.is_some() || times.is_some()) {
            return Err("`nth` stands alone, without `from`, `every` or `times`".to_owned());
        }
        if [nth, from, every].contains(&Some(0)) {
            return Err("calls are counted from 1: `nth`, `from` and `every` cannot be 0".to_owned());
        }
        if let FaultAction::Refuse {
            storage_error: Some(name),
            ..
        } = &self.action
            && StorageErrorCode::from_str_name(name).is_none()
        {
            return Err(format!("`storage_error` {name:?} is no StorageErrorCode"));
        }
        Ok(())
    }

    fn matches(&self, rpc: Rpc, table: &str, stream: Option<&str>) -> bool {
        self.rpc == rpc
            && self.table.as_deref().is_none_or(|wanted| is_name(wanted, table))
            && self
                .stream
                .as_deref()
                .is_none_or(|wanted| stream.is_some_and(|name| is_name(wanted, name)))
    }
}

impl Occurrence {
    fn hits(self, seen: u64, fired: u64) -> bool {
        if let Some(nth) = self.nth {
            return seen == nth;
        }
        let (from, every) = (self.from.unwrap_or(1), self.every.unwrap_or(1).max(1));
        seen >= from && (seen - from).is_multiple_of(every) && self.times.is_none_or(|times| fired < times)
    }
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let counted = plan.rules.into_iter().map(|rule| FaultReport {
            rule,
            seen: 0,
            fired: 0,
        });
        Self {
            counted: counted.collect(),
        }
    }

    pub(crate) fn report(&self) -> Vec<FaultReport> {
        self.counted.clone()
    }

    /// Counts a call to `table` (full name) and `stream` (full name), and says what happens to it.
    pub(crate) fn fire(&mut self, rpc: Rpc, table: &str, stream: Option<&str>) -> Fired {
        let mut fired = Fired::default();
        for counted in self
            .counted
            .iter_mut()
            .filter(|counted| counted.rule.matches(rpc, table, stream))
        {
            counted.seen += 1;
            if counted.rule.occurrence.hits(counted.seen, counted.fired) {
                counted.fired += 1;
                fired.add(&counted.rule.action, stream.unwrap_or(table));
            }
        }
        fired
    }
}

impl Fired {
    fn add(&mut self, action: &FaultAction, entity: &str) {
        let free = self.refuse.is_none() && self.lose.is_none();
        match action {
            FaultAction::Delay { ms } => self.delay_ms = self.delay_ms.saturating_add(*ms),
            FaultAction::Refuse {
                code,
                message,
                storage_error,
                in_band,
            } if free => {
                let mut refusal = Refusal::new(*code, message.clone()).in_band(*in_band);
                let storage = storage_error.as_deref().and_then(StorageErrorCode::from_str_name);
                refusal.storage = storage.map(|code| (code, entity.to_owned()));
                self.refuse = Some(refusal);
            }
            FaultAction::LoseAnswer { code } if free => {
                self.lose = Some(Refusal::new(*code, "The answer was lost (injected fault)."));
            }
            FaultAction::Refuse { .. } | FaultAction::LoseAnswer { .. } => {}
        }
    }
}

fn unavailable() -> Code {
    Code::Unavailable
}

fn is_name(wanted: &str, full: &str) -> bool {
    wanted == full || full.rsplit('/').next() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On which of ten calls a rule with this occurrence fires.
    fn fires(occurrence: &str) -> Vec<u64> {
        let json = format!(
            r#"{{"rules":[{{"rpc":"FlushRows","occurrence":{occurrence},"action":{{"kind":"delay","ms":1}}}}]}}"#
        );
        let mut faults = Faults::new(FaultPlan::parse(&json).unwrap());
        (1..=10)
            .filter(|_| faults.fire(Rpc::FlushRows, "t", None).delay_ms > 0)
            .collect()
    }

    #[test]
    fn occurrences_are_counted_from_one() {
        assert_eq!(fires("{}").len(), 10);
        assert_eq!(fires(r#"{"nth": 3}"#), [3]);
        assert_eq!(fires(r#"{"from": 4, "every": 3}"#), [4, 7, 10]);
        assert_eq!(fires(r#"{"times": 2}"#), [1, 2]);
        assert_eq!(fires(r#"{"from": 2, "every": 2, "times": 2}"#), [2, 4]);
    }

    #[test]
    fn a_rule_asks_for_its_table_and_stream_by_full_name_or_last_part() {
        let matches = |filter: &str, stream: Option<&str>| {
            let json =
                format!(r#"{{"rules":[{{"rpc":"FlushRows",{filter},"action":{{"kind":"delay","ms":1}}}}]}}"#);
            let mut faults = Faults::new(FaultPlan::parse(&json).unwrap());
            faults
                .fire(Rpc::FlushRows, "projects/p/datasets/d/tables/t", stream)
                .delay_ms
                > 0
        };
        assert!(matches(r#""table": "t""#, None));
        assert!(matches(r#""table": "projects/p/datasets/d/tables/t""#, None));
        assert!(!matches(r#""table": "tt""#, None));
        assert!(matches(
            r#""stream": "s""#,
            Some("projects/p/datasets/d/tables/t/streams/s")
        ));
        assert!(!matches(r#""stream": "s""#, None));
    }
}
