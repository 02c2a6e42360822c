//! A plan at work: counts calls, and says what happens to each.

use std::ops::Range;

use bigquery_write_proto::wire::storage_error::StorageErrorCode;

use super::{Delivered, FaultAction, FaultPlan, FaultReport, FaultRule, Rpc};
use crate::catalog::Millis;
use crate::machine::{Code, ConnectionId, Delivery, Refusal, Stall};
use crate::rows::RowErrors;

/// A plan at work.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    counted: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    report: FaultReport,
    /// AppendRows calls on the rule's table and stream so far, and the newest of them.
    opened: u64,
    newest: Option<ConnectionId>,
    /// The call that the rule's `connection` is about.
    wanted: Option<ConnectionId>,
}

/// A call as the rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) rpc: Rpc,
    /// Full name.
    pub(crate) table: &'a str,
    /// Full name.
    pub(crate) stream: Option<&'a str>,
    /// Rows of the stream.
    pub(crate) end: Option<u64>,
    /// The AppendRows call, and whether this is its first request.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) opening: bool,
    /// Offsets of the rows that it brings.
    pub(crate) rows: Option<Range<u64>>,
}

/// What the rules say about one call.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    /// What becomes of the world before.
    pub(crate) upsets: Vec<Upset>,
    /// What becomes of the call, if a rule decides about it.
    pub(crate) fate: Option<Fate>,
    pub(crate) stale_end: Option<StaleEnd>,
    pub(crate) updated_schema: bool,
    pub(crate) bytes_per_second: Option<u64>,
    pub(crate) delivery: Delivery,
}

/// A change of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upset {
    ExpireStream,
    RecreateTable,
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Refused(Refusal),
    /// It ends well; nothing is done.
    Closed,
    /// It ends without a status; nothing is done.
    Broken,
    /// The connection is cut.
    Cut {
        applied: bool,
    },
    /// It is done, and this is said instead of the answer.
    Lost(Refusal),
    Late {
        ms: u64,
        said: Option<Refusal>,
    },
    Twice(Delivered),
}

/// A connection does not know how many rows its stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaleEnd {
    pub(crate) ms: u64,
    pub(crate) rows: Option<u64>,
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let counted = plan.rules.into_iter().map(|rule| Counted {
            report: FaultReport {
                rule,
                seen: 0,
                fired: 0,
                last_fired_ms: None,
            },
            opened: 0,
            newest: None,
            wanted: None,
        });
        Self {
            counted: counted.collect(),
        }
    }

    pub(crate) fn report(&self) -> Vec<FaultReport> {
        self.counted
            .iter()
            .map(|counted| counted.report.clone())
            .collect()
    }

    /// Some rule asks which offsets an append brings.
    pub(crate) fn ask_for_rows(&self) -> bool {
        self.counted
            .iter()
            .any(|counted| counted.report.rule.offset.is_some())
    }

    /// Counts a call, and adds to `fired` what happens to it.
    pub(crate) fn fire(&mut self, now: Millis, subject: &Subject<'_>, fired: &mut Fired) {
        for counted in &mut self.counted {
            if !counted.lets_through(subject) {
                continue;
            }
            let report = &mut counted.report;
            report.seen += 1;
            if report.rule.occurrence.hits(report.seen, report.fired) {
                report.fired += 1;
                report.last_fired_ms = Some(now);
                fired.add(&report.rule.action, subject.stream.unwrap_or(subject.table));
            }
        }
    }
}

impl Counted {
    fn lets_through(&mut self, subject: &Subject<'_>) -> bool {
        let rule = &self.report.rule;
        if !rule.matches(subject) {
            return false;
        }
        if let Some(nth) = rule.connection {
            if subject.opening && self.newest != subject.connection {
                self.newest = subject.connection;
                self.opened += 1;
                if self.opened == nth {
                    self.wanted = subject.connection;
                }
            }
            if self.wanted.is_none() || self.wanted != subject.connection {
                return false;
            }
        }
        let many = rule
            .after_rows
            .is_none_or(|least| subject.end.is_some_and(|end| end >= least));
        let brings = |offset: u64| subject.rows.as_ref().is_some_and(|rows| rows.contains(&offset));
        many && rule.offset.is_none_or(brings)
    }
}

impl FaultRule {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        self.rpc == subject.rpc
            && self
                .table
                .as_deref()
                .is_none_or(|wanted| is_name(wanted, subject.table))
            && self
                .stream
                .as_deref()
                .is_none_or(|wanted| subject.stream.is_some_and(|name| is_name(wanted, name)))
    }
}

impl Fired {
    fn add(&mut self, action: &FaultAction, entity: &str) {
        match action {
            FaultAction::ExpireStream {} => self.upsets.push(Upset::ExpireStream),
            FaultAction::RecreateTable {} => self.upsets.push(Upset::RecreateTable),
            FaultAction::StaleEnd { ms, rows } => {
                self.stale_end = Some(StaleEnd { ms: *ms, rows: *rows });
            }
            FaultAction::UpdatedSchema {} => self.updated_schema = true,
            FaultAction::Delay { ms } => {
                self.delivery.delay_ms = self.delivery.delay_ms.saturating_add(*ms);
            }
            FaultAction::Stall { ms } => {
                self.delivery.stall.get_or_insert(Stall { ms: *ms });
            }
            FaultAction::Slow { bytes_per_second } => {
                let slowest = self.bytes_per_second.unwrap_or(u64::MAX).min(*bytes_per_second);
                self.bytes_per_second = Some(slowest);
            }
            FaultAction::GoAway {} => self.delivery.go_away = true,
            _ if self.fate.is_some() => {}
            decides => self.fate = Fate::of(decides, entity),
        }
    }
}

impl Fate {
    /// What a rule decides, if it is of a kind that does.
    fn of(action: &FaultAction, entity: &str) -> Option<Self> {
        Some(match action {
            FaultAction::Refuse {
                code,
                message,
                storage_error,
                in_band,
            } => {
                let mut refusal = Refusal::new(*code, message.clone()).in_band(*in_band);
                let storage = storage_error.as_deref().and_then(StorageErrorCode::from_str_name);
                refusal.storage = storage.map(|code| (code, entity.to_owned()));
                Self::Refused(refusal)
            }
            FaultAction::RowErrors { rows, message } => {
                let mut errors = RowErrors::default();
                for row in rows {
                    errors.add(*row as usize, || message.clone());
                }
                Self::Refused(errors.refusal(entity))
            }
            FaultAction::End { ok: true, .. } => Self::Closed,
            FaultAction::End { code: None, .. } => Self::Broken,
            FaultAction::End {
                code: Some(code),
                message,
                ..
            } => Self::Refused(Refusal::new(*code, message.clone())),
            FaultAction::Reset { applied } => Self::Cut { applied: *applied },
            FaultAction::LoseAnswer { code } => Self::Lost(lost(*code)),
            FaultAction::ApplyLate { ms, code } => Self::Late {
                ms: *ms,
                said: code.map(lost),
            },
            FaultAction::ApplyTwice { answer } => Self::Twice(*answer),
            _ => return None,
        })
    }
}

fn lost(code: Code) -> Refusal {
    Refusal::new(code, "The answer was lost (injected fault).")
}

fn is_name(wanted: &str, full: &str) -> bool {
    wanted == full || full.rsplit('/').next() == Some(wanted)
}
